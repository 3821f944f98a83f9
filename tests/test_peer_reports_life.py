"""Faults that users reported of other gateways and bridges, as tests of ours: what becomes of servers and their tools.

Each test's docstring begins with the class of the report and says what happens here.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from memory_channel import attended
from scripted import Scripted, scripted, tool

from bascule.core.bridge import Bridge
from bascule.core.processes import is_running, process
from bascule.hookspecs import BasculeError, McpToolInvalid, PluginState

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc, which is Linux's")


@pytest.fixture
def local(settings):
    """Unsandboxed, so that the server can record what reached it."""
    return settings.with_(launcher="local")


def alive(pids: list[int]) -> list[int]:
    """Those that run; a zombie does not."""
    found = []
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found.append(pid)
    return found


async def environment(host, use, fx: Scripted) -> dict[str, str]:
    async with host(fx.path, use=use) as bridge, bridge.run("agent") as run:
        return json.loads((await run.call("fx.do")).text)


ENVIRONMENT = "def call(*_): return text(json.dumps(dict(os.environ)))"


async def test_a_variable_of_ones_own_takes_no_path_away(host, local, tmp_path):
    """config.env: giving env drops PATH and nothing is found; here env is laid over the base."""
    seen = await environment(host, local, scripted(tmp_path, ENVIRONMENT, env={"A": "1"}))
    assert (seen["A"], seen["PATH"]) == ("1", os.environ["PATH"])


async def test_a_variable_that_the_server_needs_can_be_passed(host, local, tmp_path, monkeypatch):
    """config.env: too strict a base breaks servers; here the manifest names what is let through."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    seen = await environment(host, local, scripted(tmp_path, ENVIRONMENT, pass_env=["XDG_CONFIG_HOME"]))
    assert seen["XDG_CONFIG_HOME"] == "/somewhere"


@pytest.mark.parametrize("env", [{}, {"A": "1"}], ids=["without env", "with env"])
async def test_no_secret_of_the_host_reaches_a_server(host, local, tmp_path, monkeypatch, env):
    """security.env_leak: the whole environment is copied, or the allow-list is bypassed where env is set; not here."""
    monkeypatch.setenv("HOST_SECRET", "planted")
    monkeypatch.setenv("OPENAI_API_KEY", "planted")
    seen = await environment(host, local, scripted(tmp_path, ENVIRONMENT, env=env))
    assert "planted" not in str(seen)


async def test_one_command_serves_two_plugins_with_other_variables(host, local, tmp_path):
    """config: one server can't be registered twice with other credentials; here a plugin is its id and nothing else."""
    code = "def call(*_): return text(os.environ['WHO'])"
    plugins = [scripted(tmp_path, code, id=who, env={"WHO": who}) for who in ("ann", "bob")]
    async with host(*(each.path for each in plugins), use=local) as bridge, bridge.run("agent") as run:
        assert [(await run.call(f"{who}.do")).text for who in ("ann", "bob")] == ["ann", "bob"]


def test_the_test_of_a_plugin_is_its_start(bascule, tmp_path):
    """config.env: "test" uses another environment than the session; here check, call and serve plan with one code."""
    fx = scripted(tmp_path, "os.environ['CRASH'] == 'no' or sys.exit('it crashed')", env={"CRASH": "yes"})
    called = bascule("call", "fx.do", "{}", "--dev", "--plugin", fx.path)
    assert called.code != 0
    assert "it crashed" in called.err
    assert "CRASH" in bascule("check", fx.path, "--json").json["command"]["environment"]


# --- processes --------------------------------------------------------------------------------------------


async def test_many_callers_share_one_process(host, local, tmp_path):
    """lifecycle.orphan: each call leaks a container; here one supervised process serves all callers."""
    fx = scripted(tmp_path)
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        await asyncio.gather(*(run.call("fx.do", {"n": number}) for number in range(200)))
    assert len(fx.starts) == 1
    assert len(fx.received("tools/call")) == 200


@linux
async def test_a_server_behind_a_launching_shell_ends_with_it(host, local, tmp_path, until):
    """lifecycle.orphan: the launcher is killed and the real server runs on; here the whole group ends."""
    fx = scripted(
        tmp_path, command="sh", args=["-c", "exec 3<&0; sleep 300 & echo $! > child; python3 server.py <&3 & wait"]
    )
    async with host(fx.path, use=local) as bridge:
        assert not bridge.failures
        child = int((fx.path / "child").read_text())
        assert alive([*fx.starts, child])
    await until(lambda: not alive([*fx.starts, child]), 30)


@linux
async def test_a_server_that_ignores_its_end_leaves_nothing_over_many_cycles(host, local, tmp_path):
    """lifecycle.orphan: children pile up with every reconnect; here each stop waits until its process is gone."""
    code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "def finish():\n    record(eof=True)\n    time.sleep(300)\n"
    fx = scripted(tmp_path, code, shutdown_grace_seconds=0.1)
    async with host(fx.path, use=local) as bridge:
        for _ in range(4):
            await bridge.plugins.disable("fx")
            assert not alive(fx.starts)
            await bridge.plugins.enable("fx")
    assert len(fx.starts) == 5
    assert not alive(fx.starts)


@linux
async def test_a_start_that_is_broken_off_leaves_no_process(host, local, tmp_path, until):
    """lifecycle.orphan: a cancelled connect leaves its child holding a resource; here it is ended and awaited."""
    fx = scripted(tmp_path, "def initialize(*_): return None", startup_timeout_seconds=60)
    async with host(use=local) as bridge:
        view = await bridge.plugins.install(fx.path, keep=False)
        await bridge.plugins.grant("fx", view.permissions)
        enabling = asyncio.create_task(bridge.plugins.enable("fx"))
        await until(lambda: bool(fx.received("initialize")), 30)
        enabling.cancel()
        await asyncio.gather(enabling, return_exceptions=True)
        await until(lambda: not alive(fx.starts), 30)
        assert bridge.plugins.get("fx").state == PluginState.ERROR


async def test_concurrent_enables_start_one_process(host, local, tmp_path):
    """lifecycle.spawn_storm: one call spawns a hundred containers; here a start is one flight for all who want it."""
    fx = scripted(tmp_path, "def before(): time.sleep(0.3)")
    async with host(use=local) as bridge:
        view = await bridge.plugins.install(fx.path, keep=False)
        await bridge.plugins.grant("fx", view.permissions)
        await asyncio.gather(*(bridge.plugins.enable("fx") for _ in range(50)))
    assert len(fx.starts) == 1


async def test_a_server_that_fails_at_once_is_not_started_again_by_lists(host, local, tmp_path):
    """startup.slow: every listing re-spawns a broken server; here it has failed, says why, and waits for its owner."""
    fx = scripted(tmp_path, "def before():\n    print('API_KEY is not set', file=sys.stderr)\n    sys.exit(1)")
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        for _ in range(10):
            assert (await client.request("tools/list"))["result"]["tools"] == []
        error = bridge.failures["fx"]
        assert error.code == "PLUGIN_HOST_START_FAILED"
        assert "API_KEY is not set" in str(error.diagnosis)
    assert len(fx.starts) == 1


async def test_a_server_has_the_time_to_flush_that_its_manifest_asks_for(host, local, tmp_path):
    """lifecycle.shutdown: a fixed two seconds kill a server that still writes; here the grace is the plugin's own."""
    fx = scripted(tmp_path, "def finish():\n    time.sleep(2.5)\n    record(flushed=True)", shutdown_grace_seconds=30)
    async with host(fx.path, use=local) as bridge:
        assert not bridge.failures
    assert fx.records("flushed")


async def test_a_slow_server_keeps_no_one_waiting(local, tmp_path):
    """startup.slow: one slow backend blocks the first listing; here the others serve, and it joins when it is ready."""
    code = "def before():\n    while not os.path.exists('go'): time.sleep(0.02)"
    slow, fast = scripted(tmp_path, code, id="slow", startup_timeout_seconds=100), scripted(tmp_path, id="fast")
    async with (
        Bridge(local, plugins=[slow.path, fast.path], grant=True, remember=False) as bridge,
        attended(bridge) as client,
        asyncio.timeout(60),
    ):
        await client.initialize()
        while not (tools := (await client.request("tools/list"))["result"]["tools"]):
            await asyncio.sleep(0.02)
        assert [each["name"] for each in tools] == ["fast.do"]
        (slow.path / "go").touch()
        await client.message(lambda each: each.get("method") == "notifications/tools/list_changed", 60)
        await bridge.settled()
        names = [each["name"] for each in (await client.request("tools/list"))["result"]["tools"]]
        assert names == ["fast.do", "slow.do"]


async def test_a_server_that_never_answers_is_given_up(host, local, tmp_path):
    """startup.hang: a call waits for ever for a handshake; here a start has a deadline, and stderr says the rest."""
    code = "def before(): print('waiting for a licence', file=sys.stderr, flush=True)\ndef initialize(*_): return None"
    async with host(scripted(tmp_path, code, startup_timeout_seconds=2).path, use=local) as bridge:
        error = bridge.failures["fx"]
        assert (error.code, "within 2 s" in str(error)) == ("PLUGIN_HOST_START_FAILED", True)
        assert "waiting for a licence" in str(error.diagnosis)


async def test_one_handshake_serves_all_calls(host, local, tmp_path):
    """startup.slow: each call initialises the remote anew; here a session is opened once."""
    fx = scripted(tmp_path)
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        for _ in range(20):
            await run.call("fx.do")
    assert (len(fx.received("initialize")), len(fx.received("tools/list"))) == (1, 1)


async def test_after_a_crash_and_a_restart_the_tools_are_the_same(host, local, tmp_path, until):
    """resilience.restart: a restarted server looks healthy and lists nothing; here a restart discovers anew."""
    fx = scripted(tmp_path, tools=["one", "two"])
    async with host(fx.path, use=local) as bridge:
        before = [entry.tool for entry in bridge.registry.entries()]
        os.kill(fx.starts[0], signal.SIGKILL)
        await until(lambda: bridge.plugins.get("fx").state == "error", 30)
        assert bridge.plugins.get("fx").host.tools_count == 0
        view = await bridge.plugins.restart("fx")
        assert (view.state, view.host.tools_count) == ("ready", 2)
        assert [entry.tool for entry in bridge.registry.entries()] == before


async def test_enabled_in_one_task_and_disabled_in_another(host, local, tmp_path):
    """sdk.cleanup: "exit cancel scope in a different task"; here one task owns a connection, whoever closes it."""
    plugins = [scripted(tmp_path, id=f"p{number}") for number in range(3)]
    async with host(use=local) as bridge:
        for each in plugins:
            view = await bridge.plugins.install(each.path, keep=False)
            await bridge.plugins.grant(view.plugin_id, view.permissions)
        for order in ((0, 2, 1), (2, 1, 0), (1, 0, 2)):
            for number in range(3):
                await asyncio.create_task(bridge.plugins.enable(f"p{number}"))
            for number in order:
                view = await asyncio.create_task(bridge.plugins.disable(f"p{number}"))
                assert view.state == "disabled"


async def test_a_broken_hook_plugin_stops_no_one(host, echo, strangers):
    """extension.isolation: one broken package stops the whole program; here it is reported and the rest works."""
    strangers.install("broken-on-import")
    async with host(echo) as bridge, bridge.run("agent") as run:
        assert (await run.call("mcp-fixture.echo", {"message": "x"})).output["message"] == "x"
        assert [plugin.name for plugin in bridge.lineup.broken] == ["broken_on_import"]


# --- noise and errors at the start ------------------------------------------------------------------------

BANNER = "def before(): print('🖥️ Server mode: STDIO', flush=True)"


async def test_a_banner_is_skipped_where_the_manifest_says_so_and_named_where_not(host, local, tmp_path):
    """stdio.noise: a banner on stdout breaks the client; here it is skipped on demand, else the owner is shown it."""
    tolerant = scripted(tmp_path, BANNER, id="tolerant", stdout="tolerant")
    strict = scripted(tmp_path, BANNER, id="strict")
    async with host(tolerant.path, strict.path, use=local) as bridge, bridge.run("agent") as run:
        assert not (await run.call("tolerant.do")).failed
        error = bridge.failures["strict"]
        assert error.code == "MCP_PROTOCOL_ERROR"
        assert "Server mode: STDIO" in str(error.diagnosis)


async def test_a_server_that_lacks_a_module_says_which(host, local, tmp_path):
    """supply.drift: an update breaks servers, and all one sees is "connection closed"; here stderr is kept."""
    async with host(scripted(tmp_path, "import mcp.server.no_such_module").path, use=local) as bridge:
        error = bridge.failures["fx"]
        assert error.code == "PLUGIN_HOST_START_FAILED"
        assert "ModuleNotFoundError" in str(error.diagnosis)


# --- names ------------------------------------------------------------------------------------------------


async def test_tools_of_one_name_stay_two_tools_whoever_comes_and_goes(host, local, tmp_path):
    """naming.collision, naming.stability: the last server wins, or names change; here ids are fixed."""
    plugins = [scripted(tmp_path, f"def call(*_): return text('{who}')", ["send"], id=who) for who in ("ann", "bob")]
    async with host(plugins[0].path, use=local) as bridge, bridge.run("agent") as run:
        alone = [(entry.tool.name, entry.tool.alias) for entry in bridge.registry.entries()]
        view = await bridge.plugins.install(plugins[1].path, keep=False)
        await bridge.plugins.grant("bob", view.permissions)
        await bridge.plugins.enable("bob")
        assert [(entry.tool.name, entry.tool.alias) for entry in bridge.registry.entries()][:1] == alone
        assert [(await run.call(f"{who}.send")).text for who in ("ann", "bob")] == ["ann", "bob"]


NAMES = ["read-file", "read_file", "read.file", "read__file", "read/file", "a", "a.b", "get_" + "x" * 90]


async def test_names_that_sanitising_would_merge_reach_their_own_tools(host, local, tmp_path):
    """naming.collision, naming.split, naming.length: cleaned names collide, or are split wrongly; not here."""
    code = "def call(name, *_): return text(name)"
    plugins = [scripted(tmp_path, code, NAMES, id=id) for id in ("ha-mcp", "a_b", "a__b")]
    async with host(*(each.path for each in plugins), use=local) as bridge, bridge.run("agent") as run:
        assert not bridge.failures
        tools = [entry.tool for entry in bridge.registry.entries()]
        assert len({each.alias for each in tools}) == len(tools) == 3 * len(NAMES)
        for each in tools:
            assert len(each.alias) <= 64
            for name in (each.name, each.alias):
                assert (await run.call(name)).text == each.remote_name


async def test_a_client_is_told_when_tools_come(host, local, tmp_path):
    """notify.list_changed: clients must reconnect to see new tools; here those who are connected are told."""
    async with host(use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        assert (await client.request("tools/list"))["result"]["tools"] == []
        view = await bridge.plugins.install(scripted(tmp_path).path, keep=False)
        await bridge.plugins.grant("fx", view.permissions)
        await bridge.plugins.enable("fx")
        await client.message(lambda each: each.get("method") == "notifications/tools/list_changed", 30)
        assert len((await client.request("tools/list"))["result"]["tools"]) == 1


async def test_a_cursor_that_does_not_move_ends_the_listing(host, local, variant):
    """pagination: a server repeats its cursor and the list grows for ever; here that is a fault, told by name."""
    async with host(variant("cursor-loop"), use=local) as bridge:
        (error,) = bridge.failures.values()
        assert error.code == "MCP_PROTOCOL_ERROR"
        assert "cursor" in str(error)


# --- schemas ----------------------------------------------------------------------------------------------

LEGAL = {
    "schema.array_items: items left out": {"type": "object", "properties": {"Tags": {"type": "array"}}},
    "schema.array_items: items of any type": {"type": "object", "properties": {"a": {"type": "array", "items": True}}},
    "schema.nullable: several types": {"type": "object", "properties": {"a": {"type": ["string", "array", "null"]}}},
    "schema.ref: anyOf with a reference": {
        "type": "object",
        "properties": {"f": {"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}]}},
        "$defs": {"Filter": {"type": "object", "properties": {"q": {"type": "string"}}}},
    },
    "schema.toplevel: alternatives": {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
}
ILLEGAL = {
    "schema.invalid: a type that is none": {"type": "object", "properties": {"x": {"type": "strin"}}},
    "schema.dos: references that explode": {
        "type": "object",
        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}},
        "$ref": "#/$defs/a",
    },
}


@pytest.mark.parametrize("schema", LEGAL.values(), ids=LEGAL)
async def test_a_legal_schema_is_taken_as_it_is(host, local, tmp_path, schema):
    """schema.*: what JSON Schema allows breaks clients; here it is taken, checked against and relayed unchanged."""
    fx = scripted(tmp_path, tools=[tool("do", schema)])
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        assert not bridge.failures
        assert (await run.tools())[0].parameters == schema
        await run.call("fx.do", {"a": None} if "several" in str(schema) else {"a": []})


@pytest.mark.parametrize("schema", ILLEGAL.values(), ids=ILLEGAL)
async def test_a_bad_schema_is_told_with_its_place_and_hurts_no_other_plugin(host, local, tmp_path, schema, echo):
    """schema.invalid, schema.dos: one bad schema makes a whole gateway unusable; here its own plugin is refused."""
    fx = scripted(tmp_path, tools=[tool("do", schema)])
    async with host(fx.path, echo, use=local) as bridge, bridge.run("agent") as run:
        error: BasculeError = bridge.failures["fx"]
        assert isinstance(error, McpToolInvalid)
        assert "fx.do inputSchema" in str(error.where)
        assert (await run.call("mcp-fixture.echo", {"message": "x"})).output["message"] == "x"


@linux
async def test_a_server_that_lingers_keeps_no_lock_from_its_successor(local, tmp_path, until):
    """lifecycle.orphan: orphans hold a lock and new servers wait for it; here the next one finds nothing left."""
    code = "import fcntl\nlock = open('lock', 'w')\nfcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    code += "def finish(): time.sleep(300)"
    fx = scripted(tmp_path, code)
    async with Bridge(local) as bridge:
        view = await bridge.plugins.install(fx.path)
        await bridge.plugins.grant("fx", view.permissions)
        await bridge.plugins.enable("fx")
        assert is_running(process(fx.starts[0]))
    async with Bridge(local) as bridge:
        await bridge.settled()
        assert bridge.plugins.get("fx").state == "ready", bridge.plugins.why("fx")
    assert len(fx.starts) == 2
    await until(lambda: not alive(fx.starts), 30)
