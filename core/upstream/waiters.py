"""Who waits for an answer, and a call that is ready to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from ...hookspecs import BasculeError, JsonObject, LogListener, ProgressListener, ToolResult, ToolResultInvalid

if TYPE_CHECKING:
    from .driver import Upstream


class Waiter(msgspec.Struct, eq=False):
    """Someone who waits for the answer to one request; ``tool`` where it is a call. Times are those of the loop."""

    id: int
    future: asyncio.Future[Any]
    tool: str | None = None
    progress: ProgressListener | None = None
    logs: LogListener | None = None
    deadline: float = inf
    ceiling: float = 0.0
    idle: float = 0.0
    seconds: float = 0.0

    @property
    def was_sent(self) -> bool:
        """Whether the server may know of the request."""
        return True

    def fail(self, error: BaseException) -> None:
        """Let the wait end with ``error``, unless it has ended."""
        if not self.future.done():
            self.future.set_exception(error)


class OutgoingCall(Waiter, kw_only=True):
    """A ``tools/call``, registered and ready: ``send`` puts it on its way, ``answer`` waits for what comes of it.

    ``sent_at`` is when it was given to the channel, by ``perf_counter``; 0 before.
    """

    upstream: Upstream
    message: bytes
    read: Callable[[JsonObject], ToolResult]
    sending: asyncio.Task[None] | None = None
    sent_at: float = 0.0

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
        self.upstream.dispatch(self)

    async def answer(self) -> ToolResult:
        """Wait for the result; raises what ``Upstream.prepare`` names."""
        try:
            result = await self.future
        except asyncio.CancelledError:
            self.upstream.abandon(self, "the caller no longer waits")
            raise
        except BaseException:  # it may have come to nothing before it was sent
            self.upstream.forget(self.id)
            raise
        finally:
            if self.sending is not None:
                self.sending.cancel()
        if not isinstance(result, dict):
            raise ToolResultInvalid("the server's answer to the call is no object")
        return self.read(result)
