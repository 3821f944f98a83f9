"""Every change to a command, or to a file that it may load, is seen at the next start and named; nothing is started."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import PackageUnsafe, PluginPermissionRequired, PluginState, TrustApprovalRequired

Edit = Callable[[dict[str, Any]], object]

PLUGIN = "mcp-fixture"


@pytest.fixture
def production(settings: Settings, tmp_path: Path) -> Settings:
    """Outside development, with an interpreter that the test may change."""
    interpreter = tmp_path / "interpreter"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable!r} "$@"\n')
    interpreter.chmod(0o755)
    other = Path(shutil.copy(interpreter, tmp_path / "other"))
    return settings.with_(
        environment="production", executables={"python3": interpreter, "other-python": other}, launcher="local"
    )


@pytest.fixture
def folder(plugin_copy, echo) -> Path:
    copied: Path = plugin_copy(echo)
    (copied / "data.txt").write_text("beside the code")
    (copied / "link").symlink_to("data.txt")
    return copied


def manifest(edit: Edit) -> Callable[[Path, Settings], None]:
    """A change to the manifest."""

    def change(folder: Path, settings: Settings) -> None:
        data = yaml.safe_load((folder / "plugin.yaml").read_text())
        edit(data)
        (folder / "plugin.yaml").write_text(yaml.safe_dump(data))

    return change


def file(act: Callable[[Path], object]) -> Callable[[Path, Settings], None]:
    """A change to the plugin's files."""
    return lambda folder, settings: act(folder) and None


def _relink(folder: Path) -> bool:
    (folder / "link").unlink()
    (folder / "link").symlink_to("server.py")
    return True


def _append(path: Path) -> bool:
    with path.open("a") as opened:
        return bool(opened.write("# other\n"))


def _interpreter(folder: Path, settings: Settings) -> None:
    _append(settings.executables["python3"])


CHANGES: dict[str, tuple[Callable[[Path, Settings], None], str]] = {
    "an argument more": (manifest(lambda data: data["backend"]["args"].append("--extra")), 'argv[2]: + "--extra"'),
    "another argument": (manifest(lambda data: data["backend"].update(args=["./server.py"])), "argv[1]: "),
    "another executable": (manifest(lambda data: data["backend"].update(command="other-python")), "executable path: "),
    "the executable's bytes": (_interpreter, "executable sha256: "),
    "a variable by name": (manifest(lambda data: data["backend"].update(pass_env=["LANG"])), 'environment: + "LANG"'),
    "a variable's value": (manifest(lambda data: data["backend"].update(env={"A": "1"})), "manifest (sha256): "),
    "a permission": (manifest(lambda data: data["permissions"].append("files.read")), 'permissions: + "files.read"'),
    "a file's bytes": (file(lambda at: _append(at / "server.py")), 'file changed: "server.py"'),
    "a new file": (file(lambda at: (at / "sitecustomize.py").write_text("1")), 'file added: "sitecustomize.py"'),
    "a file less": (file(lambda at: os.remove(at / "data.txt") or True), 'file removed: "data.txt"'),
    "a link's target": (file(_relink), 'file changed: "link"'),
    "an executable bit": (file(lambda at: (at / "data.txt").chmod(0o755) or True), "(now executable)"),
}


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.mark.req("N6.10", "N6.9")
@pytest.mark.parametrize("change", CHANGES)
async def test_the_change_is_seen_and_named_and_starts_nothing(production, folder, approve, change):
    act, named = CHANGES[change]
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        await approve(bridge)
        assert (await bridge.plugins.enable(PLUGIN)).state is PluginState.READY
        await bridge.plugins.disable(PLUGIN)
        act(folder, production)
        with pytest.raises((TrustApprovalRequired, PluginPermissionRequired)):
            await bridge.plugins.enable(PLUGIN)
        assert children() == []
        view = await bridge.plugins.approval(PLUGIN)
        assert (view.state, view.pending) == ("changed", True)
        assert any(named in line for line in view.difference), view.difference
        await approve(bridge)
        assert (await bridge.plugins.approval(PLUGIN)).difference == ()


@pytest.mark.req("N6.10")
async def test_another_launcher_is_another_approval(production, folder, approve, strangers):
    strangers.write(
        "other-launcher",
        "from bascule.builtin_plugins.local_launcher import LocalLauncher\n"
        "from bascule.hookspecs import hookimpl\n"
        "class Other(LocalLauncher):\n    name = 'other'\n"
        "@hookimpl\ndef bascule_launchers():\n    return [Other()]\n",
    )
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        await approve(bridge)
    async with Bridge(production.with_(launchers={PLUGIN: "other"})) as bridge:
        with pytest.raises(TrustApprovalRequired) as refusal:
            await bridge.plugins.enable(PLUGIN)
        assert refusal.value.difference == ('isolation launcher: "local" -> "other"',)


@pytest.mark.req("N6.10")
async def test_a_copy_elsewhere_was_not_approved(production, folder, approve, tmp_path):
    shutil.copytree(folder, tmp_path / "copy", symlinks=True)
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        await approve(bridge)
        await bridge.plugins.uninstall(PLUGIN)
        await bridge.plugins.install(tmp_path / "copy")
        with pytest.raises(TrustApprovalRequired, match="has not been approved"):
            await bridge.plugins.enable(PLUGIN)


# --- what can't be approved -------------------------------------------------------------------------------


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def _socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "x"))


UNSAFE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link out": (lambda at: (at / "x").symlink_to("/etc/hostname"), "link out of the directory"),
    "a dangling link out": (lambda at: (at / "x").symlink_to("/nowhere/at/all"), "link out of the directory"),
    "a folder's link out": (lambda at: (at / "x").symlink_to("/etc"), "link out of the directory"),
    "a named pipe": (lambda at: os.mkfifo(at / "x"), "pipe, a socket or a device"),
    "a socket": (_socket, "can't be read"),
    "a set-uid file": (lambda at: ((at / "x").write_text(""), (at / "x").chmod(0o4755)), "set-uid"),
}


@pytest.mark.req("N6.10")
@pytest.mark.parametrize("thing", UNSAFE)
async def test_what_no_approval_can_be_bound_to_is_refused(production, echo, short, thing):
    make, said = UNSAFE[thing]
    folder = short / "p"
    shutil.copytree(echo, folder)
    make(folder)
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        with pytest.raises(PackageUnsafe, match=said):
            await bridge.plugins.approval(PLUGIN)


@pytest.mark.req("N6.10")
async def test_a_file_with_another_name_elsewhere_is_told_to_the_approver(production, folder, tmp_path):
    os.link(folder / "data.txt", tmp_path / "other name")
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        view = await bridge.plugins.approval(PLUGIN)
        assert any("other names" in warning for warning in view.warnings)


@pytest.mark.req("N6.10")
async def test_a_program_outside_that_an_argument_names_is_part_of_it(
    production, variant, approve, tmp_path, plugin_copy
):
    program = tmp_path / "program.py"
    shutil.copy(variant("witness").parent / "engine.py", tmp_path)
    program.write_text("import engine; engine.Server().run()\n")

    def edit(data: dict[str, Any]) -> None:
        data["contributes"]["tools"] = ["fx-missing-tool.ping"]
        data["backend"]["args"] = [str(program)]

    folder = plugin_copy(variant("missing-tool"), edit)
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        assert any("outside" in warning for warning in (await bridge.plugins.approval("fx-missing-tool")).warnings)
        await approve(bridge, "fx-missing-tool")
        _append(program)
        with pytest.raises(TrustApprovalRequired, match="file outside changed"):
            await bridge.plugins.enable("fx-missing-tool")
