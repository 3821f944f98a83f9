"""Runs a session over a channel: waiters, deadlines, and nobody left waiting.

The way of a call: the session makes the message; the channel takes it; the waiter's future is resolved by the reader.
Cancelling the task that awaits ``call``, and a deadline that passes, do the same two things at once: the waiter is
free, and ``notifications/cancelled`` is queued for the server (N6.8). When the reader ends, for whatever reason, every
waiter is failed in the same turn of the loop.
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
    ToolResultInvalid,
    ToolResultTooLarge,
)
from ..codecs import legacy
from ..jsonrpc import ErrorResponse, Response, encode_notification, encode_result
from .session import Logged, Progressed, Reply, Session, ToolListChanged

log = logging.getLogger(__name__)

_MAX_CONTROLS = 1_024  # replies and cancellations that wait for a server which does not read


class _Waiter:
    """Someone who waits for the answer to one request."""

    __slots__ = ("ceiling", "deadline", "future", "idle", "logs", "progress", "seconds", "tool")

    def __init__(self, future: asyncio.Future[Any], tool: str | None = None) -> None:
        self.future = future
        self.tool = tool
        self.progress: ProgressListener | None = None
        self.logs: LogListener | None = None
        self.deadline = inf
        self.ceiling = self.idle = self.seconds = 0.0


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
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._send_now: Callable[[bytes], bool] | None = getattr(channel, "send_now", None)
        self._limits = limits
        self._on_tools_changed = on_tools_changed
        self._on_fault = on_fault
        self._session = Session(limits, self._loop.time)
        self._waiters: dict[int, _Waiter] = {}
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
                try:
                    self._take(line)
                except McpProtocolError:
                    self._on_fault(line)
                    raise
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
            if not waiter.future.done():
                waiter.future.set_exception(error())

    def _take(self, line: bytes) -> None:
        for event in self._session.receive(line):
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
        waiter.deadline = min(max(waiter.deadline, self._loop.time() + waiter.idle), waiter.ceiling)
        if waiter.progress is not None:
            try:
                waiter.progress(event.progress)
            except Exception as error:  # noqa: BLE001 - the listener is the caller's; its fault ends its own call
                self._abandon(event.id, "the listener to its progress failed")
                waiter.future.set_exception(error)

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
        waiter = self._waiters[request_id] = _Waiter(self._loop.create_future())
        try:
            await self._channel.send(message)
            return await waiter.future
        finally:
            self._waiters.pop(request_id, None)

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        *,
        seconds: float,
        idle_seconds: float,
        progress: ProgressListener | None = None,
        logs: LogListener | None = None,
    ) -> JsonObject:
        """Call a tool: answer within ``seconds``, or within ``idle_seconds`` of its last sign of life.

        Raises ``ToolCallTimeout``, ``ToolCallFailed``, ``ToolBusy``, ``ToolResultTooLarge``, ``ToolResultInvalid``,
        ``ToolArgumentsInvalid`` (no JSON, or too large to send) or ``PluginHostUnavailable``.
        """
        if self._end is not None:
            raise self._end()
        if len(self._waiters) >= self._limits.calls_per_host:
            raise ToolBusy(f"{len(self._waiters):,} calls are in flight at this server", hint="try again in a while")
        request_id, message = self._encode(name, arguments)
        waiter = self._wait(request_id, name, seconds, idle_seconds)
        waiter.progress, waiter.logs = progress, logs
        try:
            if self._send_now is None or not self._send_now(message):
                await self._channel.send(message)
            result = await waiter.future
        except ChannelClosed as closed:
            raise self._unsent(closed) from closed
        except asyncio.CancelledError:
            self._abandon(request_id, "the caller no longer waits")
            raise
        finally:
            if self._waiters.pop(request_id, None) is not None:
                self._session.forget(request_id)
        if not isinstance(result, dict):
            raise ToolResultInvalid("the server's answer to the call is no object")
        return result

    def _encode(self, name: str, arguments: JsonObject) -> tuple[int, bytes]:
        try:
            request_id, message = self._session.call(name, arguments, progress=True)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise ToolArgumentsInvalid(f"the arguments are no JSON: {error}"[:300]) from error
        if len(message) > self._limits.message_bytes:
            self._session.forget(request_id)
            raise ToolArgumentsInvalid(
                f"the call takes {len(message):,} bytes; a message may have {self._limits.message_bytes:,}"
            )
        return request_id, message

    def _wait(self, request_id: int, tool: str, seconds: float, idle_seconds: float) -> _Waiter:
        waiter = self._waiters[request_id] = _Waiter(self._loop.create_future(), tool)
        now = self._loop.time()
        waiter.seconds = seconds
        waiter.idle = idle_seconds
        waiter.deadline = now + seconds
        waiter.ceiling = now + max(seconds, self._limits.tool_seconds_max)
        if waiter.deadline < self._next_due:
            self._ring_at(waiter.deadline)
        return waiter

    def _ring_at(self, when: float) -> None:
        """One timer serves all waiters: calls mostly have one and the same time, so it is hardly ever moved."""
        if self._timer is not None:
            self._timer.cancel()
        self._next_due = when
        self._timer = None if when == inf else self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        """Give up on those whose deadline has passed; answers and progress may have moved the next one."""
        now = self._loop.time()
        for request_id, waiter in [item for item in self._waiters.items() if item[1].deadline <= now]:
            self._abandon(request_id, "it took too long")
            if not waiter.future.done():
                waiter.future.set_exception(
                    ToolCallTimeout(
                        f"{waiter.tool} did not answer within {waiter.seconds:g} s",
                        hint="a tool that reports progress is given longer; see backend.tool_timeout_seconds",
                    )
                )
        self._ring_at(min((waiter.deadline for waiter in self._waiters.values()), default=inf))

    def _abandon(self, request_id: int, reason: str) -> None:
        """Forget a request and tell the server so."""
        self._waiters.pop(request_id, None)
        message = self._session.cancel(request_id, reason)
        if message is not None:
            self._control(message)

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
