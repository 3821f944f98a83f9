"""One stream and what is posted to it, as a channel.

Written on the way down: the stream ends (the client left, was replaced, did not read, or the server stops) → the
channel's iteration ends → ``attend`` cancels and awaits the session's calls → the response is completed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ...hookspecs import ChannelClosed, Identity
from ...hookspecs.http_servers import Receive, Send

log = logging.getLogger(__name__)

_INBOX_MESSAGES = 1_024  # posted, and not looked at yet
_OUTBOX_BYTES = 1024 * 1024  # written, and not taken by the server yet; one message may stand above it

# Line ends to Python's str.splitlines, which many readers of SSE use, though not to SSE: inside JSON, only in strings.
_TAKEN_FOR_LINES = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)

NOT_READING = "the client does not read"


OnEnd = Callable[["SseSession"], None]


class _Bell:
    """An event that one task waits for: without the queue of those who wait, that takes most of ``asyncio.Event``."""

    __slots__ = ("_rung", "_waited")

    def __init__(self) -> None:
        self._rung = False
        self._waited: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._rung = True
        if self._waited is not None and not self._waited.done():
            self._waited.set_result(None)

    async def rung(self) -> None:
        """Wait until it was set since this was last awaited."""
        if not self._rung:
            self._waited = asyncio.get_running_loop().create_future()
            try:
                await self._waited
            finally:
                self._waited = None
        self._rung = False


class SseSession:
    """A ``Channel`` whose one side is an SSE stream. ``identity`` is the token's that opened it."""

    __slots__ = (
        "_beat",
        "_due",
        "_event_bytes",
        "_inbox",
        "_inbox_room",
        "_on_end",
        "_outbox",
        "_outbox_bytes",
        "_posted",
        "_room",
        "ended",
        "id",
        "identity",
        "name",
    )

    def __init__(
        self, name: str, identity: Identity | None, inbox_bytes: int, on_end: OnEnd, *, event_bytes: int
    ) -> None:
        self.id = secrets.token_urlsafe(32)
        self.name = name
        self.identity = identity
        self.ended = ""
        self._on_end = on_end
        self._event_bytes = event_bytes
        self._inbox: list[bytes] = []  # mostly of one message or none: a deque's first block takes 600 bytes
        self._inbox_room = inbox_bytes
        self._posted = _Bell()
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._due = _Bell()
        self._room: asyncio.Event | None = None  # made where someone waits for it: one takes 700 bytes
        self._beat: asyncio.TimerHandle | None = None

    # --- the channel ----------------------------------------------------------------------------------

    def put(self, message: bytes) -> bool:
        """Take a posted message; ``False`` where too much waits."""
        if len(self._inbox) >= _INBOX_MESSAGES or len(message) > self._inbox_room:
            return False
        self._inbox_room -= len(message)
        self._inbox.append(message)
        self._posted.set()
        return True

    def __aiter__(self) -> SseSession:
        return self

    async def __anext__(self) -> bytes:
        while not self.ended:
            if self._inbox:
                message = self._inbox.pop(0)
                self._inbox_room += len(message)
                return message
            await self._posted.rung()
        raise StopAsyncIteration

    async def send(self, message: bytes) -> None:
        """Queue one event; wait while too many wait to be taken."""
        while not self.send_now(message):
            self._room = self._room or asyncio.Event()
            self._room.clear()
            await self._room.wait()

    def send_now(self, message: bytes) -> bool:
        """Queue one event, unless too many wait to be taken."""
        if self.ended:
            raise ChannelClosed(self.ended)
        if self._outbox_bytes > _OUTBOX_BYTES:
            return False
        if not message.isascii():
            message = _on_one_line(message, self._event_bytes)
        self._outbox += (b"event: message\r\ndata: ", message, b"\r\n\r\n")
        self._outbox_bytes += len(message)
        self._due.set()
        return True

    def end(self, reason: str) -> None:
        """End the session for ``reason``; the first one stays."""
        if not self.ended:
            self.ended = reason
            self._on_end(self)
            if self._beat is not None:
                self._beat.cancel()
            for waited in (self._posted, self._due, self._room):
                if waited is not None:
                    waited.set()

    # --- the stream -----------------------------------------------------------------------------------

    async def run(
        self, endpoint: str, attend: Coroutine[Any, Any, None], receive: Receive, send: Send, keep_alive: float
    ) -> None:
        """Hold the stream until it ends. The first event says where to post, relative to this origin."""
        attending = asyncio.create_task(attend)
        leaving = asyncio.create_task(_left(receive))
        attending.add_done_callback(lambda _: self.end("the session is over"))
        leaving.add_done_callback(lambda _: self.end("the client left"))
        self._outbox.append(f"event: endpoint\r\ndata: {endpoint}\r\n\r\n".encode())
        self._due.set()
        self._beat_later(keep_alive)
        try:
            await self._pump(send)
        except OSError:  # a send that took too long, too
            self.end(NOT_READING)
        finally:
            self.end("the stream was closed")
            leaving.cancel()
            _, over = await asyncio.gather(leaving, attending, return_exceptions=True)
            if isinstance(over, Exception):
                log.error("%s broke", self.name, exc_info=over)
            if self.ended != NOT_READING:
                with suppress(OSError, RuntimeError):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        """All events of one turn of the loop go out together."""
        while not self.ended:
            await self._due.rung()
            await asyncio.sleep(0)
            events, self._outbox = self._outbox, []
            self._outbox_bytes = 0
            if self._room is not None:
                self._room.set()
            if events:
                await send({"type": "http.response.body", "body": b"".join(events), "more_body": True})

    def _beat_later(self, seconds: float) -> None:
        """Something comes at least every so often: proxies and clients take silence for an end."""

        def beat() -> None:
            if not self.ended:
                self._outbox.append(b": keep-alive\r\n\r\n")
                self._due.set()
                self._beat_later(seconds)

        self._beat = asyncio.get_running_loop().call_later(seconds, beat)


def _on_one_line(message: bytes, most: int) -> bytes:
    """Escape what some readers take for a line's end, where the event stays within ``most`` bytes."""
    escaped = message
    for mark, escape in _TAKEN_FOR_LINES:
        if mark in escaped:
            escaped = escaped.replace(mark, escape)
    return escaped if len(escaped) <= most else message


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
