"""`bascule new`: what it writes is whole: its tests pass, Bascule takes it, and nothing is written over."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.core.cli.new import TEMPLATES


def pytest_in(folder: Path, bascule, *options: str) -> str:
    """Run what was written as its author does."""
    environment = {**bascule.env, "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-m", "pytest", "-q", *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["my-tools", "7_up"])
def test_a_plugin_is_hosted_and_its_test_passes(bascule, name):
    written = bascule("new", "plugin", name)
    assert written.code == 0
    folder = bascule.folder / name
    assert {path.name for path in folder.iterdir()} == {"plugin.yaml", "server.py", "README.md"}
    assert all(f"wrote {name}/{path.name}" in written.out for path in folder.iterdir())
    assert "3 passed" in pytest_in(bascule.folder, bascule, f"test_{name.replace('-', '_')}.py")
    assert len(list(folder.rglob("*"))) == 3, "what was approved would not be what is there"
    called = bascule("call", f"{name}.add", '{"a": 1, "b": 2}', "--dev", "--plugin", folder, "--json")
    assert called.json["content"] == [{"type": "text", "text": "3"}]


@pytest.mark.fresh
def test_what_is_printed_next_runs(bascule):
    following = bascule("new", "plugin", "my-tools", "--json", "--into", "a folder").json["next"]
    run = subprocess.run(
        ["sh", "-c", following],
        cwd=bascule.folder,
        env=bascule.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "Hello, Ada!\n"), run.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.req("D5")
def test_a_hook_plugins_own_test_passes(bascule):
    pytest.importorskip("hypothesis")
    assert bascule("new", "hook-plugin", "my-transport").code == 0
    assert "passed" in pytest_in(bascule.folder / "my-transport", bascule)


@pytest.mark.req("D5", "D3")
@pytest.mark.parametrize("name", ["my-transport", "bascule-over-carrier-pigeon", "x"])
def test_a_hook_plugin_offers_its_transport(bascule, strangers, name):
    written = bascule("new", "hook-plugin", name, "--json").json
    files = [Path(path) for path in written["files"]]
    module = name.replace("-", "_")
    assert {path.name for path in files} == {"pyproject.toml", "README.md", f"{module}.py", f"test_{module}.py"}
    code = (bascule.folder / name / f"{module}.py").read_text(encoding="utf-8")
    strangers.write(name, code)
    (told,) = [each for each in bascule("hooks", "--json").json["hook_plugins"] if each["distribution"] == name]
    assert told["state"] == "ok", told
    assert told["offers"] == {"bascule_client_transports": [name.removeprefix("bascule-")]}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.req("D5")
def test_a_hook_plugin_that_pip_installs_hosts_a_server(bascule, tmp_path):
    from test_hook_plugins import TCP_ECHO, FreshEnvironment, tcp_server

    assert bascule("new", "hook-plugin", "my-transport").code == 0
    environment = FreshEnvironment(tmp_path / "fresh")
    environment.pip("install", bascule.folder / "my-transport", env={**bascule.env, "PYTHONWARNINGS": "ignore"})
    bascule.program = [str(environment.python), "-c", "from bascule.core.cli import main; main()"]
    plugin = tmp_path / "plugin"
    shutil.copytree(TCP_ECHO, plugin)
    with tcp_server() as port:
        manifest = (
            (plugin / "plugin.yaml").read_text(encoding="utf-8").replace("transport: tcp", "transport: my-transport")
        )
        (plugin / "plugin.yaml").write_text(manifest.replace("port: 7071", f"port: {port}"), encoding="utf-8")
        called = bascule("call", "tcp-fixture.echo", '{"message": "hi"}', "--dev", "--plugin", plugin, "--json")
    assert called.code == 0, called.err
    assert called.json["output"]["message"] == "hi"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("plugin", name) for name in ("My-Tools", "../x", "a.b", "", "-x", "x" * 64, "ü")),
        *(
            ("hook-plugin", name)
            for name in ("json", "class", "bascule", "stdio", "a_b", "a--b", "../x", "7x", "A", "x" * 64)
        ),
    ],
)
def test_a_name_that_can_not_be_is_refused_and_nothing_is_written(bascule, kind, name):
    before = sorted(bascule.folder.rglob("*"))
    refused = bascule("new", kind, "--", name)
    assert refused.code == 2
    assert "Error: " in refused.err
    assert sorted(path for path in bascule.folder.rglob("*") if "stderr" not in path.name) == before


@pytest.mark.parametrize("kind", ["plugin", "hook-plugin"])
def test_what_is_there_is_never_written_over(bascule, kind):
    folder = bascule.folder / "mine"
    folder.mkdir()
    assert bascule("new", kind, "mine").code == 0  # empty
    (folder / "README.md").write_text("my own")
    refused = bascule("new", kind, "mine", "--json")
    assert refused.code == 2
    assert "is not empty" in json.loads(refused.out)["error"]["message"]
    assert (folder / "README.md").read_text() == "my own"


def test_a_test_that_is_there_is_not_written_over(bascule):
    (bascule.folder / "test_mine.py").write_text("my own")
    refused = bascule("new", "plugin", "mine")
    assert refused.code == 2
    assert "test_mine.py is there already" in refused.err
    assert (bascule.folder / "test_mine.py").read_text() == "my own"
    assert not list((bascule.folder / "mine").iterdir())


def test_where_nothing_can_be_written_the_reason_is_told(bascule):
    (bascule.folder / "file").write_text("")
    refused = bascule("new", "plugin", "mine", "--into", "file/below")
    assert refused.code == 2
    assert "can't be written" in refused.err or "is a file" in refused.err


def test_templates_are_shipped_beside_the_command() -> None:
    assert {path.name for path in TEMPLATES.iterdir()} == {"plugin", "hook-plugin"}
