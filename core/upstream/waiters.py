"""Who waits for an answer, and a call that is ready to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...hookspecs import BasculeError, JsonObject, LogListener, ProgressListener, ToolResult, ToolResultInvalid

if TYPE_CHECKING:
    from .driver import Upstream


class Waiter:
    """Someone who waits for the answer to one request; ``tool`` where it is a call. Times are those of the loop."""

    __slots__ = ("ceiling", "deadline", "future", "id", "idle", "logs", "progress", "seconds", "tool")

    def __init__(self, request_id: int, future: asyncio.Future[Any]) -> None:
        self.id = request_id
        self.future = future
        self.tool: str | None = None
        self.progress: ProgressListener | None = None
        self.logs: LogListener | None = None
        self.deadline = inf
        self.ceiling = self.idle = self.seconds = 0.0

    @property
    def was_sent(self) -> bool:
        """Whether the server may know of the request."""
        return True

    def fail(self, error: BaseException) -> None:
        """Let the wait end with ``error``, unless it has ended."""
        if not self.future.done():
            self.future.set_exception(error)


class OutgoingCall(Waiter):
    """A ``tools/call``, registered and ready: ``send`` puts it on its way, ``answer`` waits for what comes of it.

    ``sent_at`` is when it was given to the channel, by ``perf_counter``; 0 before.
    """

    __slots__ = ("_upstream", "message", "read", "sending", "sent_at")

    def __init__(
        self, upstream: Upstream, call_id: int, message: bytes, tool: str, read: Callable[[JsonObject], ToolResult]
    ) -> None:
        # not by way of Waiter's: this is done at every call, and prepare() sets the rest
        self.id = call_id
        self.future = upstream.loop.create_future()
        self.tool = tool
        self._upstream = upstream
        self.message = message
        self.read = read
        self.sending: asyncio.Task[None] | None = None
        self.sent_at = 0.0

    @property
    def was_sent(self) -> bool:
        return self.sent_at > 0

    def send(self, error: BasculeError | None = None) -> None:
        """Give it to the channel, or let it fail with what keeps it from being sent; raises nothing."""
        if self.future.done():
            return  # it was cancelled, or its time has passed
        if error is not None:
            self.future.set_exception(error)
            return
        self.sent_at = perf_counter()
        self._upstream.dispatch(self)

    async def answer(self) -> ToolResult:
        """Wait for the result; raises what ``Upstream.prepare`` names."""
        try:
            result = await self.future
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._upstream.abandon(self, "the caller no longer waits")
            self._upstream.forget(self.id)
            raise
        finally:
            if self.sending is not None:
                self.sending.cancel()
        if not isinstance(result, dict):
            raise ToolResultInvalid("the server's answer to the call is no object")
        return self.read(result)
