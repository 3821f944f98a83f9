"""What is spared on the way of a call changes nothing of what a client, a check or a trace sees."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from memory_channel import CALLER, Memory, attended

from bascule.core.combine import permitted
from bascule.core.downstream import Downstream
from bascule.core.gateway import Gateway, Guards
from bascule.core.registry import Registry
from bascule.hookspecs import (
    Allow,
    Caller,
    CallFacts,
    ChannelClosed,
    Deny,
    Exposure,
    Limits,
    SessionOptions,
    ToolCall,
    ToolDefinition,
)


class Prompt(Memory):
    """A channel that takes messages without a wait, as long as there is room."""

    def __init__(self) -> None:
        super().__init__()
        self.room = True
        self.gone = False

    def send_now(self, message: bytes) -> bool:
        if self.gone:
            raise ChannelClosed("the client went away")
        if self.room:
            self.sent.append(json.loads(message))
        return self.room


def session_over(channel: Memory) -> Downstream:
    class NoRoad:
        def tools(self, caller: Caller) -> list[ToolDefinition]:
            return []

    road: Any = NoRoad()
    converter: Any = None
    return Downstream(channel, CALLER, SessionOptions(), road=road, converter=converter, watchers=set())


async def test_no_message_overtakes_one_that_waits_for_room(until):
    channel = Prompt()
    running = asyncio.create_task(session_over(channel).run())
    channel.write({"jsonrpc": "2.0", "id": 0, "method": "ping"})
    await until(lambda: len(channel.sent) == 1)
    channel.room = False
    channel.may_send.clear()
    for number in range(1, 4):
        channel.write({"jsonrpc": "2.0", "id": number, "method": "ping"})
    await until(lambda: not channel.unread)
    channel.room = True  # from here on there would be room, but the first of them still waits
    for number in range(4, 7):
        channel.write({"jsonrpc": "2.0", "id": number, "method": "ping"})
    await until(lambda: not channel.unread)
    channel.may_send.set()
    await until(lambda: len(channel.sent) == 7)
    assert [message["id"] for message in channel.sent] == list(range(7))
    channel.close()
    await running


async def test_a_client_that_is_gone_ends_the_session_also_where_messages_are_taken_at_once(until):
    channel = Prompt()
    running = asyncio.create_task(session_over(channel).run())
    channel.gone = True
    channel.write({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    channel.write({"jsonrpc": "2.0", "id": 2, "method": "ping"})
    channel.close()
    await asyncio.wait_for(running, 60)
    assert channel.sent == []


async def test_a_call_that_is_cancelled_before_it_began_leaves_its_id_free(host, echo):
    async with host(echo) as bridge, attended(bridge) as client:
        await client.initialize()
        for _ in range(3):
            client.begin_call("mcp-fixture.echo", {"message": "never"}, id="mine")
            client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}})
            await client.request("ping")
        client.begin_call("mcp-fixture.echo", {"message": "now"}, id="mine")
        assert (await client.answer("mine"))["result"]["structuredContent"]["message"] == "now"


# --- checks -----------------------------------------------------------------------------------------------

TOOL = ToolDefinition("a.b", "", {})
CALL = ToolCall("a.b", {}, CALLER)
FACTS = CallFacts(frozenset(), "development", Exposure(), False, None)


def asked(check: Any, seconds: float = 60) -> Any:
    check.name = "only"
    return permitted({"only": check}, seconds, CALL, TOOL, FACTS)


async def allows(call: Any, tool: Any, facts: Any) -> Any:
    return Allow("yes", "only")


async def allows_later(call: Any, tool: Any, facts: Any) -> Any:
    async with asyncio.timeout(60):  # it is in the same task before and after its wait
        await asyncio.sleep(0)
    return Allow("yes, later", "only")


async def says_nothing(call: Any, tool: Any, facts: Any) -> Any:
    return None


async def says_nothing_later(call: Any, tool: Any, facts: Any) -> Any:
    await asyncio.sleep(0)


async def fails_later(call: Any, tool: Any, facts: Any) -> Any:
    await asyncio.sleep(0)
    raise ValueError("a check's own fault")


async def never_answers(call: Any, tool: Any, facts: Any) -> Any:
    await asyncio.Event().wait()


def is_no_coroutine(call: Any, tool: Any, facts: Any) -> Any:
    raise ValueError("a check's own fault")


async def test_a_single_check_that_waits_for_nothing_is_answered_at_once():
    assert asked(allows) == Allow("yes", "only")


async def test_a_single_check_may_wait():
    assert await asked(allows_later) == Allow("yes, later", "only")


@pytest.mark.req("N5.5")
@pytest.mark.parametrize("check", [says_nothing, says_nothing_later, fails_later, is_no_coroutine])
async def test_what_is_no_yes_of_a_single_check_is_a_no(check):
    answer = asked(check)
    assert isinstance(answer if isinstance(answer, Deny) else await answer, Deny)


async def test_a_single_check_that_never_answers_denies_in_time():
    answer = await asked(never_answers, 0.01)
    assert isinstance(answer, Deny)
    assert "did not answer" in answer.reason


# --- callers and lists ------------------------------------------------------------------------------------


def test_equal_callers_share_their_places_however_they_were_made():
    unused: Any = None
    gateway = Gateway(Registry(), Guards({}, {}, "development"), unused, unused, Limits())
    first, second = (Caller("mcp", "ann", "s", "sse") for _ in range(2))
    assert gateway._slots(first) is gateway._slots(first) is gateway._slots(second)
    assert gateway._slots(Caller("mcp", "ann", "other", "sse")) is not gateway._slots(first)


def test_callers_that_come_once_are_not_kept_for_ever():
    unused: Any = None
    gateway = Gateway(Registry(), Guards({}, {}, "development"), unused, unused, Limits())
    busy = Caller("mcp", "busy", "s", "sse")
    gateway._slots(busy).count = 1
    for number in range(5_000):
        gateway._slots(Caller("mcp", "ann", str(number), "sse"))
    assert len(gateway._callers) < 2_000
    assert len(gateway._known) < 2_000
    assert gateway._slots(Caller("mcp", "busy", "s", "sse")).count == 1


@pytest.mark.req("A4")
async def test_a_list_that_was_written_for_one_session_is_written_anew_after_a_change(host, echo):
    async with host(echo) as bridge:
        for flat in ("canonical", "flat", "canonical"):
            async with attended(bridge, options=SessionOptions(names=flat)) as client:
                await client.initialize()
                names = {tool["name"] for tool in (await client.request("tools/list"))["result"]["tools"]}
                assert ("mcp-fixture.echo" in names) == (flat == "canonical")
        assert bridge.registry.written
        await bridge.plugins.disable("mcp-fixture")
        assert not bridge.registry.written
