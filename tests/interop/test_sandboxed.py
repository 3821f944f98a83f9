"""Every server that was not written here works in full isolation, with what its manifest asks for and no more."""

from __future__ import annotations

from typing import Any

import pytest
from interop.conftest import PROGRAMS
from sandbox import need

from bascule.core.bridge import Bridge
from bascule.hookspecs import PluginState

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180, func_only=True)]

WORK: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "time": [("get_current_time", {"timezone": "Asia/Tokyo"})],
    "git": [("git_status", {"repo_path": "repository"})],
    "sqlite": [("create_table", {"query": "CREATE TABLE t (a TEXT)"}), ("list_tables", {})],
    "fetch": [],
    "everything": [("echo", {"message": "here"})],
    "filesystem": [("write_file", {"path": "a", "content": "x"}), ("read_text_file", {"path": "a"})],
    "memory": [("create_entities", {"entities": [{"name": "kiwi", "entityType": "bird", "observations": []}]})],
    "sequential-thinking": [
        ("sequentialthinking", {"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1})
    ],
    "sdk1": [("add", {"a": 1})],
    "sdk2": [("add", {"a": 1})],
    "fastmcp4": [("add", {"a": 1})],
}


@pytest.mark.req("N6.10")
@pytest.mark.parametrize("plugin", PROGRAMS, indirect=True)
async def test_a_real_server_works_in_full_isolation(plugin, settings):
    need("bubblewrap")
    name = plugin.manifest["backend"]["command"]
    bound = settings.with_(executables={name: plugin.executable}, launcher="bubblewrap")
    async with Bridge(bound, plugins=[plugin.folder], grant=True, remember=False) as bridge:
        await bridge.settled()
        view = bridge.plugins.get(plugin.id)
        assert view.state is PluginState.READY, (bridge.plugins.why(plugin.id), bridge.plugins.logs(plugin.id))
        assert (view.launcher, view.isolation) == ("bubblewrap", "full")
        async with bridge.run("interop") as run:
            for tool, arguments in WORK[plugin.id]:
                result = await run.call(f"{plugin.id}.{tool}", arguments)
                assert not result.text.startswith(("Error", "Database error")), result.text
