"""Runs a session over a channel: waiters, deadlines, and nobody left waiting.

The way of a call: the session makes the message; the channel takes it; the waiter's future is resolved by the reader.
Cancelling the task that awaits its answer, and a deadline that passes, do the same two things at once: the waiter is
free, and ``notifications/cancelled`` is queued for the server that knows of the call (N6.8). When the reader ends, for
whatever reason, every waiter is failed in the same turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from ...hookspecs import (
    BasculeError,
    Channel,
    ChannelClosed,
    JsonObject,
    Limits,
    LogListener,
    LogMessage,
    McpProtocolError,
    McpToolInvalid,
    PluginHostUnavailable,
    ProgressListener,
    ToolArgumentsInvalid,
    ToolBusy,
    ToolCallFailed,
    ToolCallTimeout,
    ToolResult,
    ToolResultTooLarge,
)
from ..codecs import legacy
from ..jsonrpc import ErrorResponse, Response, encode_notification, encode_result
from .session import Logged, Progressed, Reply, Session, ToolListChanged
from .waiters import OutgoingCall, Waiter

log = logging.getLogger(__name__)

_MAX_CONTROLS = 1_024  # replies and cancellations that wait for a server which does not read


class Upstream:
    """One server's client. ``run`` reads until the end and raises what ended it; ``on_fault`` is shown the bad line."""

    def __init__(
        self,
        channel: Channel,
        limits: Limits,
        *,
        on_tools_changed: Callable[[], None],
        on_fault: Callable[[bytes], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._channel = channel
        self._send_now: Callable[[bytes], bool] | None = getattr(channel, "send_now", None)
        self._receive_now: Callable[[], list[bytes]] | None = getattr(channel, "receive_now", None)
        self._limits = limits
        self._on_tools_changed = on_tools_changed
        self._on_fault = on_fault
        self._session = Session(limits, self.loop.time)
        self._waiters: dict[int, Waiter] = {}
        self._controls: deque[bytes] = deque()
        self._controls_due = asyncio.Event()
        self._end: Callable[[], BasculeError] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_due = inf
        self.info: legacy.ServerInfo | None = None
        self.last_seen = time.time()

    @property
    def in_flight(self) -> int:
        return len(self._waiters)

    # --- the reader -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read until the channel ends; always raises: ``ChannelClosed`` or ``McpProtocolError``."""
        controls = asyncio.create_task(self._send_controls())
        try:
            async for line in self._channel:
                self.last_seen = time.time()
                self._take(line)
                if self._receive_now is not None:
                    for another in self._receive_now():
                        self._take(another)
            raise ChannelClosed("the server closed the connection")
        finally:
            controls.cancel()
            with suppress(asyncio.CancelledError):
                await controls

    def fail(self, error: Callable[[], BasculeError]) -> None:
        """Refuse what comes and fail all that wait, each with an error of its own."""
        self._end = error
        waiters = list(self._waiters.values())
        self._waiters.clear()
        self._ring_at(inf)
        for waiter in waiters:
            waiter.fail(error())

    def _take(self, line: bytes) -> None:
        try:
            events = self._session.receive(line)
        except McpProtocolError:
            self._on_fault(line)
            raise
        for event in events:
            if isinstance(event, Response):
                self._answer(event, len(line))
            elif isinstance(event, ErrorResponse):
                self._refusal(event)
            elif isinstance(event, Progressed):
                self._progress(event)
            elif isinstance(event, Reply):
                self._control(event.message)
            elif isinstance(event, Logged):
                self._log(event.message)
            elif isinstance(event, ToolListChanged):
                self._on_tools_changed()

    def _answer(self, event: Response, size: int) -> None:
        waiter = self._waiters.pop(event.id, None)
        if waiter is None or waiter.future.done():
            return
        if waiter.tool is not None and size > self._limits.result_bytes:
            size = len(encode_result(event.id, event.result))
            if size > self._limits.result_bytes:
                waiter.future.set_exception(_too_large(size, self._limits.result_bytes))
                return
        waiter.future.set_result(event.result)

    def _refusal(self, event: ErrorResponse) -> None:
        waiter = self._waiters.pop(event.id, None)
        if waiter is None or waiter.future.done():
            return
        text = _error_text(event.error)
        waiter.future.set_exception(
            McpProtocolError(f"the server refused: {text}") if waiter.tool is None else ToolCallFailed(text)
        )

    def _progress(self, event: Progressed) -> None:
        waiter = self._waiters.get(event.id)
        if waiter is None or waiter.future.done():
            return
        waiter.deadline = min(max(waiter.deadline, self.loop.time() + waiter.idle), waiter.ceiling)
        if waiter.progress is not None:
            try:
                waiter.progress(event.progress)
            except Exception as error:  # noqa: BLE001 - the listener is the caller's; its fault ends its own call
                self.abandon(waiter, "the listener to its progress failed")
                waiter.fail(error)

    def _log(self, message: LogMessage) -> None:
        """Pass it on where all calls in flight have one listener; else it could be about somebody else's call."""
        listeners = {waiter.logs for waiter in self._waiters.values()}
        listener = listeners.pop() if len(listeners) == 1 else None
        if listener is None:
            self._session.dropped += 1
            return
        try:
            listener(message)
        except Exception:
            log.exception("the listener to a server's log failed")

    # --- requests -------------------------------------------------------------------------------------

    async def initialize(self, client_version: str) -> None:
        """Shake hands (2025-11-25, basic/lifecycle): the answer is checked before anything else is sent."""
        result = await self._request("initialize", legacy.initialize_params(client_version))
        self.info = legacy.read_initialize(result)
        self._session.batching = self.info.batching
        await self._channel.send(encode_notification("notifications/initialized", None))

    async def list_tools(self) -> list[JsonObject]:
        """Read every page of ``tools/list`` (N4.1.7); bounded in pages and tools, and a cursor may come but once."""
        tools: list[JsonObject] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(self._limits.list_pages):
            page, cursor = legacy.read_tools_page(
                await self._request("tools/list", {} if cursor is None else {"cursor": cursor})
            )
            tools.extend(page)
            if len(tools) > self._limits.tools_per_plugin:
                raise McpToolInvalid(f"the server lists more than {self._limits.tools_per_plugin:,} tools")
            if cursor is None:
                return tools
            if cursor in seen:
                raise McpProtocolError("the server's tools/list repeats a cursor and would never end")
            seen.add(cursor)
        raise McpProtocolError(f"the server's tools/list has more than {self._limits.list_pages} pages")

    async def _request(self, method: str, params: JsonObject) -> Any:
        if self._end is not None:
            raise self._end()
        request_id, message = self._session.request(method, params)
        waiter = self._waiters[request_id] = Waiter(request_id, self.loop.create_future())
        try:
            await self._channel.send(message)
            return await waiter.future
        finally:
            self._waiters.pop(request_id, None)

    def prepare(
        self,
        name: str,
        arguments: bytes,
        read: Callable[[JsonObject], ToolResult],
        *,
        seconds: float,
        idle_seconds: float,
        progress: ProgressListener | None = None,
        logs: LogListener | None = None,
    ) -> OutgoingCall:
        """Make a call of a tool, with the JSON of its arguments, ready to be sent; ``read`` is given the result.

        It is to be answered within ``seconds`` from now, or within ``idle_seconds`` of its last sign of life. Whoever
        has it must await its ``answer``.

        Raises ``ToolBusy``, ``ToolArgumentsInvalid`` (too large to send) or ``PluginHostUnavailable``; its answer, in
        addition, ``ToolCallTimeout``, ``ToolCallFailed``, ``ToolResultTooLarge``, ``ToolResultInvalid``, and what
        ``read`` raises.
        """
        if self._end is not None:
            raise self._end()
        if len(self._waiters) >= self._limits.calls_per_host:
            raise ToolBusy(f"{len(self._waiters):,} calls are in flight at this server", hint="try again in a while")
        request_id, message = self._session.call(name, arguments)
        if len(message) > self._limits.message_bytes:
            self._session.forget(request_id)
            raise ToolArgumentsInvalid(
                f"the call takes {len(message):,} bytes; a message may have {self._limits.message_bytes:,}"
            )
        now, most = self.loop.time(), self._limits.tool_seconds_max
        deadline = now + seconds
        times = deadline, now + (seconds if seconds > most else most), idle_seconds, seconds
        future = self.loop.create_future()
        call = self._waiters[request_id] = OutgoingCall(
            request_id, future, name, progress, logs, *times, upstream=self, message=message, read=read
        )
        if deadline < self._next_due:
            self._ring_at(deadline)
        return call

    def dispatch(self, call: OutgoingCall) -> None:
        """Give a call to the channel, in a task of its own where that has no room for it now."""
        try:
            if self._send_now is not None and self._send_now(call.message):
                return
        except ChannelClosed as closed:
            call.fail(self._unsent(closed))
        except Exception as error:  # noqa: BLE001 - a transport's; told to the one who calls
            call.fail(error)
        else:
            call.sending = self.loop.create_task(self._send(call))

    async def _send(self, call: OutgoingCall) -> None:
        try:
            await self._channel.send(call.message)
        except ChannelClosed as closed:
            call.fail(self._unsent(closed))
        except Exception as error:  # noqa: BLE001 - as above
            call.fail(error)

    def abandon(self, waiter: Waiter, reason: str) -> None:
        """Forget a request, and tell the server so where it may know of it."""
        self._waiters.pop(waiter.id, None)
        if not waiter.was_sent:
            self._session.forget(waiter.id)
            return
        message = self._session.cancel(waiter.id, reason)
        if message is not None:
            self._control(message)

    def forget(self, request_id: int) -> None:
        """Forget a request whose wait is over, however it ended."""
        if self._waiters.pop(request_id, None) is not None:
            self._session.forget(request_id)

    def _ring_at(self, when: float) -> None:
        """One timer serves all waiters: calls mostly have one and the same time, so it is hardly ever moved."""
        if self._timer is not None:
            self._timer.cancel()
        self._next_due = when
        self._timer = None if when == inf else self.loop.call_at(when, self._ring)

    def _ring(self) -> None:
        """Give up on those whose deadline has passed; answers and progress may have moved the next one."""
        now = self.loop.time()
        for call in [call for call in self._waiters.values() if call.deadline <= now]:
            self.abandon(call, "it took too long")
            call.fail(
                ToolCallTimeout(
                    f"{call.tool} did not answer within {call.seconds:g} s",
                    hint="a tool that reports progress is given longer; see backend.tool_timeout_seconds",
                )
            )
        self._ring_at(min((waiter.deadline for waiter in self._waiters.values()), default=inf))

    def _unsent(self, closed: ChannelClosed) -> BasculeError:
        return self._end() if self._end is not None else PluginHostUnavailable(closed.message)

    # --- what is sent beside requests ------------------------------------------------------------------

    def _control(self, message: bytes) -> None:
        if len(self._controls) < _MAX_CONTROLS:
            self._controls.append(message)
            self._controls_due.set()

    async def _send_controls(self) -> None:
        while True:
            await self._controls_due.wait()
            self._controls_due.clear()
            while self._controls:
                try:
                    await self._channel.send(self._controls.popleft())
                except ChannelClosed:
                    return  # the reader meets the end and tells everyone


def _too_large(size: int, limit: int) -> ToolResultTooLarge:
    return ToolResultTooLarge(
        f"the result has {size:,} bytes; {limit:,} are allowed", hint="ask the tool for less, or for pages"
    )


def _error_text(error: object) -> str:
    """The server's own words for why a request failed; a generic text where it has none."""
    message = error.get("message") if isinstance(error, dict) else None
    return message[:8_192] if isinstance(message, str) and message else "the server answered with an error"
