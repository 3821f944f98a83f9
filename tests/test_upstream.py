"""The client's side of a session, without a server: what answers mean for requests that are gone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bascule.core.upstream import Upstream
from bascule.core.upstream.session import Session
from bascule.hookspecs import Limits, McpProtocolError, ToolCallTimeout, ToolResult


def session() -> Session:
    return Session(Limits(), lambda: 0.0)


def answer(request_id: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": {"content": []}}).encode()


@pytest.mark.req("N6.8")
def test_a_crowd_that_leaves_its_calls_behind_makes_no_fault_of_their_late_answers() -> None:
    """A client may go while thousands of its calls wait for a slow server: each of them is answered in the end."""
    calls = session()
    numbers = [calls.call("slow", b"{}")[0] for _ in range(20_000)]
    for number in numbers:
        assert calls.cancel(number, "the caller no longer waits") is not None
    for number in numbers:
        assert not calls.receive(answer(number))


def test_a_second_answer_is_a_fault_also_after_a_cancel() -> None:
    calls = session()
    number, _ = calls.call("slow", b"{}")
    calls.cancel(number, "the caller no longer waits")
    calls.receive(answer(number))
    with pytest.raises(McpProtocolError, match="not open"):
        calls.receive(answer(number))


class Slow:
    """A channel without room: what is sent waits for ``room``, and is kept there even if its sender gave up."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    def send_now(self, message: bytes) -> bool:
        return False

    async def send(self, message: bytes) -> None:
        taken = asyncio.ensure_future(self._take(message))
        await asyncio.shield(taken)

    async def _take(self, message: bytes) -> None:
        await self.room.wait()
        self.sent.append(json.loads(message))

    def __aiter__(self) -> Slow:
        return self

    async def __anext__(self) -> bytes:
        return await self.lines.get()


@pytest.mark.req("N6.8")
@pytest.mark.parametrize("how", ["its time passes", "its caller leaves"])
def test_a_call_given_up_while_it_waits_for_room_makes_no_fault_of_its_late_answer(until, how: str) -> None:
    async def main() -> None:
        channel = Slow()
        faults: list[bytes] = []
        upstream = Upstream(channel, Limits(), on_tools_changed=lambda: None, on_fault=faults.append)
        reading = asyncio.create_task(upstream.run())
        call = upstream.prepare("slow", b"{}", read_nothing, seconds=0.01, idle_seconds=0.01)
        call.send()
        answering = asyncio.create_task(call.answer())
        if how == "its caller leaves":
            await asyncio.sleep(0)
            answering.cancel()
        with pytest.raises((ToolCallTimeout, asyncio.CancelledError)):
            await answering
        channel.room.set()
        await until(lambda: len(channel.sent) == 2)  # the call, and that it was given up
        channel.lines.put_nowait(answer(call.id))
        await until(channel.lines.empty)
        await asyncio.sleep(0)
        assert sorted(message["method"] for message in channel.sent) == ["notifications/cancelled", "tools/call"]
        assert not reading.done()
        assert not faults
        assert upstream.in_flight == 0
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(main())


def read_nothing(result: Any) -> ToolResult:
    raise AssertionError(result)
