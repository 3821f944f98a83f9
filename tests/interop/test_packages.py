"""Packages of real indexes: fetched once, after a yes, and started from where they were fetched (N6.11)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import PackageFetchFailed, PluginState, TrustApprovalRequired

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True), pytest.mark.req("N6.11", "N6.10")]

PINS = Path(__file__).parent / "pins"


def python_version(name: str) -> str:
    found = re.search(rf"^{name}==(\S+)$", (PINS / "python-servers.txt").read_text(), re.MULTILINE)
    assert found
    return found[1]


def node_version(name: str) -> str:
    lock = json.loads((PINS / "node-servers" / "package-lock.json").read_text())
    return str(lock["packages"][f"node_modules/{name}"]["version"])


def plugin(folder: Path, command: str, *args: str, tools: tuple[str, ...]) -> Path:
    folder.mkdir()
    manifest: dict[str, Any] = {
        "id": "fetched",
        "name": "Fetched",
        "version": "1",
        "permissions": ["tools.call"],
        "contributes": {"tools": [f"fetched.{tool}" for tool in tools]},
        "backend": {
            "type": "mcp",
            "transport": "stdio",
            "command": command,
            "args": list(args),
            "startup_timeout_seconds": 120,
        },
    }
    (folder / "plugin.yaml").write_text(yaml.safe_dump(manifest))
    return folder


CLOCK = ("get_current_time", "convert_time")
MEMORY = (
    *("create_entities", "create_relations", "add_observations", "delete_entities", "delete_observations"),
    *("delete_relations", "read_graph", "search_nodes", "open_nodes"),
)


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    spec = f"mcp-server-time=={python_version('mcp-server-time')}"
    return plugin(tmp_path / "a plugin", "uvx", spec, "--local-timezone", "UTC", tools=CLOCK)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("npm is not there: apt-get install npm")
    name = "@modelcontextprotocol/server-memory"
    return plugin(tmp_path / "a plugin", "npx", "-y", f"{name}@{node_version(name)}", tools=MEMORY)


@pytest.fixture
def production(settings: Settings) -> Settings:
    return settings.with_(environment="production", launcher="local")


@pytest.mark.parametrize(
    ("which", "kind", "tool", "arguments"),
    [("clock", "pypi", "get_current_time", {"timezone": "UTC"}), ("memory", "npm", "read_graph", {})],
)
async def test_it_is_fetched_after_a_yes_and_started_without_an_index(
    production, request, approve, monkeypatch, which, kind, tool, arguments
):
    folder = request.getfixturevalue(which)
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        before = await bridge.plugins.approval("fetched")
        assert (before.source["type"], "fetched" in before.source) == (kind, False)
        await approve(bridge, "fetched")
        view = await bridge.plugins.approval("fetched")
        assert view.source["fetched"]
        assert view.command is not None
        assert str(production.state) in " ".join(view.command.argv)
    for name in ("PIP_INDEX_URL", "NPM_CONFIG_REGISTRY", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    async with Bridge(production) as bridge:
        assert (await bridge.plugins.enable("fetched")).state is PluginState.READY
        async with bridge.run("test") as run:
            assert not (await run.call(f"fetched.{tool}", arguments)).failed
        await bridge.plugins.disable("fetched")
        (code,) = list(production.state.glob("packages/fetched/*"))
        changed = next(
            path for path in sorted(code.rglob("*.py" if kind == "pypi" else "*.js")) if not path.is_symlink()
        )
        changed.write_text(changed.read_text() + "\n")
        with pytest.raises(TrustApprovalRequired, match="package file changed"):
            await bridge.plugins.enable("fetched")


async def test_a_version_that_is_not_there_leaves_nothing(production, tmp_path, approve):
    folder = plugin(tmp_path / "p", "uvx", "mcp-server-time==0.0.0.1", tools=CLOCK)
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        with pytest.raises(PackageFetchFailed) as refusal:
            await approve(bridge, "fetched")
        assert "0.0.0.1" in str(refusal.value.diagnosis)
        assert (await bridge.plugins.approval("fetched")).state == "none"
        assert not list(production.state.glob("packages/fetched/*/*"))


async def test_a_command_that_the_package_does_not_have_is_told(production, tmp_path, approve):
    spec = f"python-dotenv=={python_version('python-dotenv')}"  # it needs nothing else, and has one command
    folder = plugin(tmp_path / "p", "uvx", "--from", spec, "no-such-command", tools=CLOCK)
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        with pytest.raises(PackageFetchFailed, match="no-such-command") as refusal:
            await approve(bridge, "fetched")
        assert "dotenv" in str(refusal.value.hint)
