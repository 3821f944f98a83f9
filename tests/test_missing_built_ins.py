"""Each built-in can be turned off: the bridge starts without it, says what is lost, and everything else works."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from bascule.core.bridge import Bridge
from bascule.hookspecs import BasculeError
from bascule.hookspecs.kit import free_port

BUILT_INS = {
    point.name: point.value
    for point in importlib.metadata.distribution("bascule").entry_points.select(group="bascule.plugins")
}

WAYS_IN = {"sse_server": "sse", "quart_api": "rest"}

# What the bridge says of what no other built-in does, and what then becomes of a plugin's start or a call.
LOST = {
    "stdio_client": ("no client transport is there", "EXTENSION_MANIFEST_INVALID"),
    "mcp_converter": ("no converter for mcp is there", "HOOK_PLUGIN_BROKEN"),
    "grants": ("no permission check is there", "TOOL_PERMISSION_DENIED"),
    "group_exposure": ("no exposure policy is there", "TOOL_NOT_FOUND"),
}
# Where uvicorn is not installed either, nothing opens a way in.
ONLY_HYPERCORN = importlib.util.find_spec("uvicorn") is None
if ONLY_HYPERCORN:
    LOST["hypercorn_server"] = ("no HTTP server is there", "ok")
# One of several that start a process: which of the others works is the machine's affair.
LAUNCHERS = {name for name in BUILT_INS if name.endswith("_launcher")}


async def outcome(bridge: Bridge) -> str:
    """The code of what went wrong first on the way to an answer, or ``ok``."""
    for failure in bridge.failures.values():
        return failure.code
    async with bridge.run("test") as run:
        try:
            assert (await run.call("mcp-fixture.echo", {"message": "x"})).output["message"] == "x"
        except BasculeError as error:
            return error.code
    return "ok"


@pytest.mark.req("D4")
@pytest.mark.parametrize("name", sorted(BUILT_INS))
async def test_without_it_the_bridge_starts_and_says_what_is_lost(name, settings, echo, caplog):
    ports: dict[str, Any] = {way: {"port": free_port()} for way in WAYS_IN}
    changed = settings.with_(disabled_hook_plugins=(name,), plugins=ports)
    async with Bridge(changed, plugins=[echo], grant=True, remember=False) as bridge:
        await bridge.settled()
        states = {
            plugin.name: (plugin.disabled, plugin.error)
            for plugin in bridge.lineup.hook_plugins
            if plugin.found.built_in
        }
        assert states == {each: (each == name, None) for each in BUILT_INS}
        words, code = LOST.get(name, ("", "ok"))
        came = await outcome(bridge)
        if name not in LAUNCHERS:
            assert came == code
            assert [each.getMessage() for each in caplog.records if "is there: " in each.getMessage()] == (
                [next(each.getMessage() for each in caplog.records if words in each.getMessage())] if words else []
            )
        async with bridge.serve() as opened:
            closed = ONLY_HYPERCORN and name == "hypercorn_server"
            expected = {way for built_in, way in WAYS_IN.items() if built_in != name and not closed}
            assert set(opened) == expected, bridge.failures


@pytest.mark.req("D4")
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_a_dialect_that_is_off_is_named(settings, dialect):
    async with Bridge(settings.with_(disabled_hook_plugins=(f"{dialect}_converter",)), remember=False) as bridge:
        with pytest.raises(BasculeError, match=f"no hook plugin offers a converter for '{dialect}'"):
            bridge.converter(dialect)


ALONE = """
import asyncio, json, sys
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

async def main():
    settings = Settings(state=sys.argv[1], disabled_hook_plugins=tuple(sys.argv[2:]))
    async with Bridge(settings, remember=False) as bridge, bridge.serve() as opened:
        assert opened == []
    print(json.dumps([name for name in sys.modules if name.startswith("bascule.builtin_plugins.")]))

asyncio.run(main())
"""


@pytest.mark.req("D4")
def test_with_all_of_them_off_nothing_of_them_is_imported_and_the_bridge_starts(tmp_path):
    command = [sys.executable, "-c", ALONE, str(tmp_path / "state"), *BUILT_INS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    for words, _ in LOST.values():
        assert words in done.stderr
    assert "no launcher is there" in done.stderr
    assert "no HTTP server is there" in done.stderr


@pytest.mark.req("D4")
def test_the_command_line_says_what_is_lost_too(bascule):
    shown = bascule("hooks", "--json", "--no-hook-plugin", "grants", "--no-hook-plugin", "stdio_client")
    states = {plugin["name"]: plugin["state"] for plugin in shown.json["hook_plugins"]}
    assert {name for name, state in states.items() if state == "disabled"} == {"grants", "stdio_client"}
    assert [words.split(" is there")[0] for words in shown.json["warnings"]] == [
        "no client transport",
        "no permission check",
    ]


REPLACEMENT = """
from bascule.hookspecs import Allow, hookimpl

class Everyone:
    name = "everyone"
    async def __call__(self, call, tool, facts):
        return Allow("everyone may", "everyone")

@hookimpl
def bascule_permission_checks():
    return [Everyone()]
"""


@pytest.mark.req("D4")
async def test_a_strangers_takes_the_place_of_one_that_is_off(settings, strangers, echo, caplog):
    strangers.write("everyone", REPLACEMENT)
    changed = settings.with_(disabled_hook_plugins=("grants",))
    async with Bridge(changed, plugins=[echo], grant=True, remember=False) as bridge:
        await bridge.settled()
        assert await outcome(bridge) == "ok"
    assert not [record for record in caplog.records if "is there: " in record.getMessage()]
