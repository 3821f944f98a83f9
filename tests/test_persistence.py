"""A bridge that remembers: what was installed, granted and enabled is there again after a restart, however it ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bascule.core.bridge import Bridge
from bascule.core.children import prints
from bascule.core.processes import process
from bascule.core.settings import Settings
from bascule.core.store import Store
from bascule.hookspecs import (
    ManifestInvalid,
    PackageNotFound,
    PluginHostStartFailed,
    PluginNotFound,
    PluginPermissionRequired,
    PluginState,
)

ALL = ("notes.read", "tools.call")


def named(directory: Path, plugin_id: str) -> Path:
    """Give a copy of the fixture an id of its own."""
    manifest = directory / "plugin.yaml"
    manifest.write_text(manifest.read_text().replace("mcp-fixture", plugin_id))
    return directory


async def put_in(bridge: Bridge, directory: Path) -> str:
    """Install, grant and enable."""
    view = await bridge.plugins.install(directory)
    await bridge.plugins.grant(view.plugin_id, view.permissions)
    await bridge.plugins.enable(view.plugin_id)
    return view.plugin_id


def states(bridge: Bridge) -> dict[str, PluginState]:
    return {view.plugin_id: view.state for view in bridge.plugins.list()}


@pytest.mark.req("N10")
async def test_what_was_enabled_comes_back_and_what_was_not_stays_off(settings, plugin_copy, echo):
    folders = [named(plugin_copy(echo, name=f"folder-{name}"), name) for name in ("on", "off", "new")]
    async with Bridge(settings) as bridge:
        await put_in(bridge, folders[0])
        await put_in(bridge, folders[1])
        await bridge.plugins.disable("off")
        await bridge.plugins.install(folders[2])
    for _ in range(2):
        async with Bridge(settings) as bridge:
            await bridge.settled()
            assert states(bridge) == {
                "on": PluginState.READY,
                "off": PluginState.DISABLED,
                "new": PluginState.AWAITING_GRANTS,
            }
            assert bridge.plugins.get("on").granted == ALL
            assert bridge.failures == {}
            assert not bridge.readiness()
            async with bridge.run("test") as run:
                assert (await run.call("on.echo", {"message": "back"})).output["message"] == "back"


@pytest.mark.req("N10")
async def test_one_that_fails_to_come_back_is_explained_and_the_rest_serves(settings, plugin_copy, echo, variant):
    good = named(plugin_copy(echo, name="good"), "good")
    server = plugin_copy(echo, name="broken")
    named(server, "broken")
    gone = named(plugin_copy(echo, name="gone"), "gone")
    garbled = named(plugin_copy(echo, name="garbled"), "garbled")
    async with Bridge(settings) as bridge:
        for folder in (good, server, gone, garbled):
            await put_in(bridge, folder)
    (server / "server.py").write_text("raise SystemExit(3)")
    shutil.rmtree(gone)
    (garbled / "plugin.yaml").write_text("id: [")
    async with Bridge(settings) as bridge:
        await bridge.settled()
        assert states(bridge) == {
            "good": PluginState.READY,
            "broken": PluginState.ERROR,
            "gone": PluginState.ERROR,
            "garbled": PluginState.ERROR,
        }
        kinds = {name: type(error) for name, error in bridge.failures.items()}
        assert kinds == {"broken": PluginHostStartFailed, "gone": PackageNotFound, "garbled": ManifestInvalid}
        assert set(bridge.readiness()) == {"broken", "gone", "garbled"}
        assert bridge.plugins.get("gone").host.error["code"] == "EXTENSION_PACKAGE_NOT_FOUND"
        async with bridge.run("test") as run:
            await run.call("good.echo", {"message": "still here"})
        shutil.copytree(good, gone)
        named(gone, "unused")
        (gone / "plugin.yaml").write_text((gone / "plugin.yaml").read_text().replace("good", "gone"))
        assert (await bridge.plugins.enable("gone")).state is PluginState.READY  # its manifest is the one it had
        assert "gone" not in bridge.failures
        await bridge.plugins.uninstall("garbled")
        assert "garbled" not in bridge.failures
    async with Bridge(settings, start=False) as bridge:
        assert "garbled" not in states(bridge)


@pytest.mark.req("N3.5")
@pytest.mark.parametrize("act", ["enable", "restart", "grant"])
async def test_a_manifest_that_changes_while_the_bridge_runs_waits_for_grants_anew(settings, plugin_copy, echo, act):
    folder = plugin_copy(echo)
    async with Bridge(settings) as bridge:
        await put_in(bridge, folder)
        if act == "enable":
            await bridge.plugins.disable("mcp-fixture")
        if act == "grant":
            await bridge.plugins.grant("mcp-fixture", ["tools.call"])
        with (folder / "plugin.yaml").open("a") as manifest:
            manifest.write("# changed\n")
        arguments = (ALL,) if act == "grant" else ()
        with pytest.raises(PluginPermissionRequired):
            await getattr(bridge.plugins, act)("mcp-fixture", *arguments)
        view = bridge.plugins.get("mcp-fixture")
        assert (view.state, view.granted) == (PluginState.AWAITING_GRANTS, ())
        await bridge.plugins.grant("mcp-fixture", ALL)
        assert (await bridge.plugins.enable("mcp-fixture")).state is PluginState.READY


async def test_a_changed_manifest_is_not_started_at_the_next_start_even_if_it_was_granted_since(
    settings, plugin_copy, echo
):
    folder = plugin_copy(echo)
    async with Bridge(settings) as bridge:
        await put_in(bridge, folder)
    with (folder / "plugin.yaml").open("a") as manifest:
        manifest.write("# changed\n")
    async with Bridge(settings) as bridge:
        assert "another manifest" in str(bridge.plugins.get("mcp-fixture").reason)
        await bridge.plugins.grant("mcp-fixture", ALL)
    async with Bridge(settings) as bridge:
        await bridge.settled()
        assert states(bridge) == {"mcp-fixture": PluginState.DISABLED}


async def test_taking_a_grant_away_is_possible_whatever_became_of_the_directory(settings, plugin_copy, echo):
    folder = plugin_copy(echo)
    async with Bridge(settings) as bridge:
        await put_in(bridge, folder)
        (folder / "plugin.yaml").unlink()
        assert (await bridge.plugins.grant("mcp-fixture", [])).state is PluginState.AWAITING_GRANTS
    async with Bridge(settings) as bridge:
        await bridge.settled()
        assert bridge.plugins.get("mcp-fixture").granted == ()


async def test_another_plugin_in_the_same_directory_is_not_the_one_that_was_installed(settings, plugin_copy, echo):
    folder = plugin_copy(echo)
    async with Bridge(settings) as bridge:
        await put_in(bridge, folder)
    named(folder, "other")
    async with Bridge(settings) as bridge:
        await bridge.settled()
        assert states(bridge) == {"mcp-fixture": PluginState.ERROR}
        assert "other" in str(bridge.failures["mcp-fixture"])
        with pytest.raises(ManifestInvalid):
            await bridge.plugins.enable("mcp-fixture")


async def test_uninstalling_takes_the_grants_too(settings, echo):
    async with Bridge(settings) as bridge:
        await put_in(bridge, echo)
        await bridge.plugins.uninstall("mcp-fixture")
        assert (await bridge.plugins.install(echo)).granted == ()


async def test_an_enable_that_waits_while_the_plugin_is_uninstalled_starts_nothing(settings, echo):
    async with Bridge(settings) as bridge:
        await put_in(bridge, echo)
        results = await asyncio.gather(
            bridge.plugins.uninstall("mcp-fixture"),
            bridge.plugins.enable("mcp-fixture"),
            bridge.plugins.restart("mcp-fixture"),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [type(None), PluginNotFound, PluginNotFound]
        assert psutil.Process().children() == []


async def test_plugins_are_remembered_in_the_order_of_their_installation(settings, plugin_copy, echo):
    async with Bridge(settings) as bridge:
        for name in ("c", "a", "b"):
            await bridge.plugins.install(named(plugin_copy(echo, name=name), name))
    async with Bridge(settings) as bridge:
        await bridge.plugins.disable("c")
    with Store.open(settings.state) as store:
        assert [record.plugin_id for record in store.load_plugins()] == ["c", "a", "b"]


async def test_a_given_plugin_stands_in_for_the_installed_one_and_is_not_remembered(settings, echo, plugin_copy):
    other = plugin_copy(echo)
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(echo)
    async with Bridge(settings, plugins=[other], grant=True) as bridge:
        await bridge.settled()
        view = bridge.plugins.get("mcp-fixture")
        assert (view.directory, view.state) == (other, PluginState.READY)
    async with Bridge(settings) as bridge:
        view = bridge.plugins.get("mcp-fixture")
        assert (view.directory, view.granted) == (echo.resolve(), ())


async def test_a_look_at_what_is_installed_takes_no_lock_and_changes_nothing(settings, plugin_copy, echo):
    folder = plugin_copy(echo)
    async with Bridge(settings) as bridge:
        await put_in(bridge, folder)
        async with Bridge(settings, remember=False, recall=True, start=False) as look:
            assert states(look) == {"mcp-fixture": PluginState.DISABLED}
            assert look.plugins.get("mcp-fixture").granted == ALL
        assert states(bridge) == {"mcp-fixture": PluginState.READY}


# --- what a killed bridge leaves ---------------------------------------------------------------------------

BRIDGE = """
import asyncio, sys
from pathlib import Path
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

async def main(state, *plugins):
    settings = Settings().with_(environment="development", state=Path(state), executables={"python3": sys.executable})
    async with Bridge(settings, plugins=map(Path, plugins), grant=True) as bridge:
        await bridge.settled()
        assert not bridge.failures, bridge.failures
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""

DEAF = """
import os, signal, subprocess, sys, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code])
sys.path.insert(0, os.getcwd())
import server
"""


@pytest.fixture
def killed(settings: Settings):
    """Starts a bridge in a process of its own with the given plugins, kills it, returns what it left running."""

    def kill(*plugins: Path) -> list[psutil.Process]:
        command = [sys.executable, "-c", BRIDGE, str(settings.state), *map(str, plugins)]
        bridge = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert bridge.stdout is not None
        with bridge:
            assert bridge.stdout.readline() == "ready\n"
            left = psutil.Process(bridge.pid).children(recursive=True)
            bridge.kill()
        return left

    return kill


def lives(one: psutil.Process) -> bool:
    return one.is_running() and one.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def stubborn(plugin_copy, echo) -> Path:
    """A plugin whose server outlives its stdin and SIGTERM, as does the process that it starts."""
    folder = plugin_copy(echo, lambda manifest: manifest["backend"].update(args=["deaf.py"]), name="stubborn")
    (folder / "deaf.py").write_text(DEAF + "\nimport time\ntry:\n    server.main()\nfinally:\n    time.sleep(600)\n")
    return folder


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells processes apart for sure")


@linux
@pytest.mark.req("N10", "N4.2.1")
async def test_servers_that_outlived_a_killed_bridge_are_ended_at_the_next_start(settings, killed, stubborn):
    left = killed(stubborn)
    assert len(left) == 2
    assert all(lives(one) for one in left)
    async with Bridge(settings):
        assert not any(lives(one) for one in left)
        with Store.open(settings.state) as store:
            assert store.children() == ()


@linux
async def test_what_a_server_started_is_ended_also_where_the_server_itself_is_gone(settings, killed, stubborn):
    server, grandchild = killed(stubborn)
    server.kill()
    psutil.wait_procs([server], timeout=60)
    assert lives(grandchild)
    async with Bridge(settings):
        assert not lives(grandchild)


@linux
async def test_a_server_whose_name_was_not_written_down_in_time_is_ended_too(settings, killed, stubborn):
    left = killed(stubborn)
    with Store.open(settings.state) as store, store._database.transaction() as connection:
        connection.execute("UPDATE children SET pid = NULL, process = NULL")
    async with Bridge(settings):
        assert not any(lives(one) for one in left)


def sleeper(directory: Path, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, cwd=directory, start_new_session=True)


@linux
async def test_strangers_are_left_alone(settings, tmp_path):
    """A process that has a dead child's number, one that runs the same elsewhere, one of a bridge that lives."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-c", "input()"]
    shown = prints(map(os.fsencode, command))
    strangers = [sleeper(elsewhere, command) for _ in range(3)]
    try:
        dead = f"{strangers[0].pid} 1 {process(os.getpid()).split()[2]}"
        with Store.open(settings.state) as store:
            number = store.child_begins("a", dead, tmp_path / "plugin", shown)
            store.child_is(number, strangers[0].pid, dead)
            store.child_begins("b", dead, tmp_path / "plugin", shown)
            living = store.child_begins("c", process(os.getpid()), elsewhere, shown)
            store.child_is(living, strangers[2].pid, process(strangers[2].pid))
        async with Bridge(settings):
            assert [stranger.poll() for stranger in strangers] == [None] * 3
        with Store.open(settings.state) as store:
            assert [record.seq for record in store.children()] == [living]
    finally:
        for stranger in strangers:
            stranger.communicate(b"\n")


async def test_a_bridge_that_closes_leaves_no_record_of_its_children(settings, echo):
    async with Bridge(settings, plugins=[echo], grant=True) as bridge:
        await bridge.settled()
        with Store.open(settings.state) as store:
            (record,) = store.children() if sys.platform.startswith("linux") else (None,)
        if record is not None:
            (child,) = psutil.Process().children()
            assert (record.pid, record.process) == (child.pid, process(child.pid))
    with Store.open(settings.state) as store:
        assert store.children() == ()


async def test_a_start_that_fails_leaves_no_record_either(settings, variant):
    async with Bridge(settings, plugins=[variant("exit-at-start")], grant=True) as bridge:
        await bridge.settled()
        assert bridge.failures
        with Store.open(settings.state) as store:
            assert store.children() == ()
