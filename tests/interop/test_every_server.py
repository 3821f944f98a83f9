"""What holds for every server alike: it is hosted from its manifest, and what it lists comes through as it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from interop import probe

from bascule.core.bridge import Bridge
from bascule.hookspecs import HostStatus

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90, func_only=True)]

TOOL_LISTS = Path(__file__).resolve().parents[2] / "fixtures" / "tool-lists"

RECORDED = {
    "time": "mcp-server-time",
    "git": "mcp-server-git",
    "sqlite": "mcp-server-sqlite",
    "fetch": "mcp-server-fetch",
    "everything": "server-everything",
    "filesystem": "server-filesystem",
    "memory": "server-memory",
    "sequential-thinking": "server-sequential-thinking",
}
SAMPLES = {"sdk1": "py-sdk1-sample", "sdk2": "py-sdk2-sample", "fastmcp4": "fastmcp4-sample"}


def by_name(tools: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Tools as text, since 1, 1.0 and true are equal to Python."""
    return {tool["name"]: json.dumps(tool, sort_keys=True) for tool in tools}


def recorded(name: str) -> tuple[str | None, dict[str, str]]:
    """What such a server listed when the fixture was made, and its version then."""
    record = json.loads((TOOL_LISTS / f"{name}.json").read_text())
    return record["initialize_result"]["serverInfo"]["version"], by_name(record["tools_list_result"]["tools"])


@pytest.mark.req("N1.2", "N3.2", "N3.3", "N4.1.9", "N4.2.1", "N5.1", "N6.2")
@pytest.mark.parametrize("plugin", [*RECORDED, *SAMPLES], indirect=True)
async def test_a_server_is_hosted_from_its_manifest_and_its_tools_come_through_unchanged(plugin, hosted):
    backend = plugin.manifest["backend"]
    argv = [str(plugin.executable), *backend.get("args", ())]
    welcome, tools = await asyncio.to_thread(probe.listed, argv, plugin.folder, backend.get("env", {}))
    async with hosted(plugin) as server:
        host = server.view.host
        assert (host.status, host.tools_count) == (HostStatus.READY, len(tools))
        assert host.protocol_version == welcome["protocolVersion"]
        info = welcome["serverInfo"]
        assert (host.server_name, host.server_version) == (info["name"], info["version"])
        definitions = await server.run.tools()
        assert by_name(tool.origin.value for tool in definitions) == by_name(tools)
        assert {tool.remote_name for tool in definitions} == {tool["name"] for tool in tools}
        compare_with_fixture(plugin.id, info["version"], by_name(tools))


@pytest.mark.req("N1.1", "N4.2.1", "N4.2.4")
async def test_all_of_them_run_side_by_side_and_leave_together(everyone, settings):
    bound = settings.with_(
        executables={plugin.manifest["backend"]["command"]: plugin.executable for plugin in everyone}
    )
    folders = [plugin.folder for plugin in everyone]
    async with Bridge(bound, plugins=folders, grant=True, remember=False) as bridge:
        await bridge.settled()
        assert bridge.readiness() == {}
        assert len(psutil.Process().children()) == len(everyone)
        async with bridge.run("interop") as run:
            tools = await run.tools()
            assert {tool.name for tool in tools} == {name for view in bridge.plugins.list() for name in view.tools}
            assert len({tool.alias for tool in tools}) == len(tools) > 80
            answers = await asyncio.gather(*(run.call(f"{name}.add", {"a": 1}) for name in SAMPLES))
            assert [answer.output for answer in answers] == [{"result": 3}] * len(SAMPLES)
    assert psutil.Process().children(recursive=True) == []


def compare_with_fixture(name: str, version: str, listed: dict[str, str]) -> None:
    then, tools = recorded(RECORDED.get(name) or SAMPLES[name])
    if then != version:
        return
    if name in SAMPLES:  # the sample that was recorded had fewer tools
        listed = {name: tool for name, tool in listed.items() if name in tools}
    assert listed == tools
