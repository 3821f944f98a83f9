"""Servers built on the SDKs: structured output, failures, progress, cancels, odd names, prints on stdout."""

from __future__ import annotations

import asyncio

import pytest

from bascule.hookspecs import (
    HostStatus,
    PluginHostUnavailable,
    PluginState,
    Progress,
    ToolArgumentsInvalid,
    ToolCallFailed,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(90, func_only=True),
]
each = pytest.mark.parametrize("plugin", ["sdk1", "sdk2", "fastmcp4"], indirect=True)


@each
@pytest.mark.req("N5.1", "N5.3", "N5.6")
async def test_structured_output_is_the_output_and_meets_its_schema(plugin, hosted):
    async with hosted(plugin) as server:
        assert (await server.call("add", a=1)).output == {"result": 3}
        assert (await server.call("add", a=1, b=5, note=None)).output == {"result": 6}
        odd = await server.call("weird%2Fname%20with%20space", x={"k": 1})
        assert odd.output == {"a": 1, "b": "dict"}
        assert (await server.call("noargs")).output == {"result": "nothing was needed"}
        steps = await server.run.trace()
        assert [step.output_valid for step in steps] == [True] * 4
        assert steps[2].tool == f"{plugin.id}.weird%2Fname%20with%20space"


@each
@pytest.mark.req("N5.5", "N5.7")
async def test_a_failing_tool_and_unfit_arguments_are_told_apart(plugin, hosted):
    async with hosted(plugin) as server:
        with pytest.raises(ToolCallFailed, match="boom") as caught:
            await server.call("boom")
        assert caught.value.result.failed
        with pytest.raises(ToolArgumentsInvalid, match="/a"):
            await server.call("add", a="one")
        assert [step.code for step in await server.run.trace()] == ["MCP_TOOL_CALL_FAILED", "TOOL_ARGUMENTS_INVALID"]


@each
@pytest.mark.req("N1.1")
async def test_progress_comes_in_order_and_with_its_words(plugin, hosted):
    seen: list[Progress] = []
    async with hosted(plugin) as server:
        counted = await server.call("count", to=3, progress=seen.append)
        assert counted.output == {"result": "counted to 3"}
    assert seen == [Progress(step, 3, f"step {step}") for step in (1, 2, 3)]


@each
@pytest.mark.req("N6.8")
async def test_a_cancel_reaches_the_tool_that_waits(plugin, hosted):
    async with hosted(plugin) as server:
        waiting = asyncio.Event()
        call = asyncio.create_task(server.call("wait", label="mine", progress=lambda _: waiting.set()))
        await waiting.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        for _ in range(500):
            told = (await server.call("given_up")).output
            if told["result"]:
                break
            await asyncio.sleep(0.01)  # the server ends the tool's task when it gets to it
        assert told == {"result": ["mine"]}
        assert (await server.call("add", a=1)).output == {"result": 3}


@each
@pytest.mark.req("N4.2.1")
async def test_a_call_in_flight_does_not_keep_a_server_from_being_ended(plugin, hosted):
    async with hosted(plugin) as server:
        waiting = asyncio.Event()
        call = asyncio.create_task(server.call("wait", label="x", progress=lambda _: waiting.set()))
        await waiting.wait()
        await server.bridge.plugins.disable(plugin.id)
        with pytest.raises(PluginHostUnavailable, match="was stopped"):
            await call


@each
@pytest.mark.req("N4.2.2")
async def test_a_tool_that_prints_does_not_lose_the_server(plugin, hosted):
    """SDK 1 lets the line through to stdout, where the manifest tolerates it; the others turn it aside."""
    async with hosted(plugin) as server:
        assert (await server.call("chatter")).output == {"result": "said"}
        assert (await server.call("noargs")).output == {"result": "nothing was needed"}
        assert "a line that is no message" in server.bridge.plugins.logs(plugin.id)


@pytest.mark.parametrize("plugin", ["sdk1"], indirect=True)
@pytest.mark.req("N4.2.2")
async def test_what_a_tool_prints_with_sdk_1_ends_a_strict_connection(plugin, hosted):
    plugin.edit(lambda manifest: manifest["backend"].update(stdout="strict"))
    async with hosted(plugin) as server:
        with pytest.raises(PluginHostUnavailable):
            await server.call("chatter")
        view = server.bridge.plugins.get(plugin.id)
        assert (view.state, view.host.status, view.tools) == (PluginState.ERROR, HostStatus.UNHEALTHY, ())
        assert "a line that is no message" in server.bridge.plugins.logs(plugin.id)
        await server.bridge.plugins.restart(plugin.id)
        assert (await server.call("add", a=1)).output == {"result": 3}
