"""What goes over the wire while a plugin is enabled, as a server that writes everything down has seen it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bascule.core.bridge import Bridge
from bascule.hookspecs import PluginState, PluginToolConflict

RECORDER = """
import json, sys
seen = open("seen.jsonl", "a")
for line in sys.stdin:
    seen.write(line); seen.flush()
    message = json.loads(line)
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "recorder", "version": "1"}},
        "tools/list": {"tools": [{"name": "note", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "noted"}]},
    }
    if message.get("method") in answers:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]}), flush=True)
"""


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """A plugin whose server keeps what it is told in `seen.jsonl`."""
    folder = tmp_path / "recorder"
    folder.mkdir()
    (folder / "server.py").write_text(RECORDER)
    manifest = {
        "id": "recorder",
        "name": "Recorder",
        "version": "1",
        "contributes": {"tools": ["recorder.note"]},
        "backend": {"type": "mcp", "transport": "stdio", "command": "python3", "args": ["server.py"]},
    }
    (folder / "plugin.yaml").write_text(yaml.safe_dump(manifest))
    return folder


def seen(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]


@pytest.mark.req("N4.1.4", "N4.1.6", "N4.1.7")
async def test_the_handshake_comes_first_and_in_its_order(host, recorder):
    async with host(recorder):
        pass
    first, second, third = seen(recorder)
    assert first["method"] == "initialize"
    assert first["params"]["protocolVersion"] == "2025-11-25"
    assert first["params"]["capabilities"] == {}
    assert first["params"]["clientInfo"]["name"] == "bascule"
    assert second == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert third["method"] == "tools/list"
    assert len({first["id"], third["id"]}) == 2


@pytest.mark.req("N4.1.4", "N5.3")
async def test_a_call_carries_its_arguments_and_a_token_of_its_own(host, recorder):
    async with host(recorder) as bridge, bridge.run("test") as run:
        await run.call("recorder.note", {"deep": {"null": None, "list": []}, "text": '{"not": "parsed"}'})
        await run.call("recorder.note", {})
    first, second = seen(recorder)[3:]
    assert first["params"]["name"] == "note"
    assert first["params"]["arguments"] == {"deep": {"null": None, "list": []}, "text": '{"not": "parsed"}'}
    assert second["params"]["arguments"] == {}
    tokens = [message["params"]["_meta"]["progressToken"] for message in (first, second)]
    assert len(set(tokens)) == 2


async def test_one_server_serves_all_calls_over_one_handshake(host, recorder):
    async with host(recorder) as bridge, bridge.run("test") as run:
        for _ in range(20):
            await run.call("recorder.note", {})
    methods = [message["method"] for message in seen(recorder)]
    assert (methods.count("initialize"), methods.count("tools/list"), methods.count("tools/call")) == (1, 1, 20)


@pytest.mark.req("N4.1.2")
async def test_a_tool_id_that_is_taken_is_refused_before_anything_starts(settings, recorder):
    """Ids hold their plugin's id, so two plugins can't meet; what else stands in the registry can."""
    named = settings.with_(executables={"python3": Path(sys.executable)})
    async with Bridge(named) as bridge:
        await bridge.plugins.install(recorder)
        await bridge.plugins.grant("recorder", ["tools.call"])
        await bridge.plugins.enable("recorder")
        (entry,) = bridge.registry.of("recorder")
        await bridge.plugins.disable("recorder")
        (recorder / "seen.jsonl").unlink()
        bridge.registry.replace("someone-else", [replace(entry, tool=replace(entry.tool, plugin_id="someone-else"))])
        with pytest.raises(PluginToolConflict, match="someone-else"):
            await bridge.plugins.enable("recorder")
        assert not (recorder / "seen.jsonl").exists()
        assert bridge.plugins.get("recorder").state is PluginState.ERROR
