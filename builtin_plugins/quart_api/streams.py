"""Server-sent events of one answer (WHATWG HTML, 9.2), and whether the client is still there."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from ...hookspecs.http_servers import Receive, Send
from .answers import encode

KEEP_ALIVE_SECONDS = 15.0
MOST_WAITING = 1_000
"""Events that wait for one reader; past it the newest are left out."""

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Begins when it is run: what fails before its first event can still be answered in HTTP's own words.

    Ended by :meth:`end` from any side; what was put before still goes out.
    """

    def __init__(self, keep_alive_seconds: float) -> None:
        self._keep_alive_seconds = keep_alive_seconds
        self._waiting: deque[bytes] = deque()
        self._due = asyncio.Event()
        self._ended = False
        self._begun = False

    @property
    def untouched(self) -> bool:
        """Whether nothing was said yet."""
        return not self._begun and not self._waiting

    def put(self, name: str, data: Any, *, always: bool = False) -> None:
        """Queue an event; ``always`` even where too many wait."""
        if always or len(self._waiting) < MOST_WAITING:
            self._waiting.append(b"event: %b\ndata: %b\n\n" % (name.encode(), encode(data)))
            self._due.set()

    def comment(self, text: str) -> None:
        """Queue what readers skip."""
        self._waiting.append(b": %b\n\n" % text.encode())
        self._due.set()

    def end(self) -> None:
        """Let it end once everything is out."""
        self._ended = True
        self._due.set()

    async def something(self) -> None:
        """Wait until there is an event, it has ended, or a sign of life is due."""
        try:
            async with asyncio.timeout(self._keep_alive_seconds):
                await self._due.wait()
        except TimeoutError:
            self.comment("keep-alive")

    async def run(self, send: Send) -> None:
        """Write until it ends. Raises ``TimeoutError`` where the reader takes nothing."""
        self._begun = True
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        while not self._ended or self._waiting:
            await self.something()
            self._due.clear()
            events = b"".join(self._waiting)
            self._waiting.clear()
            if events:
                await send({"type": "http.response.body", "body": events, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def left(receive: Receive) -> None:
    """Return once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read(receive: Receive) -> bytes | None:
    """The whole body, which the guard bounds; ``None`` where the client left in the middle of it."""
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        return bytes(message.get("body", b""))
    parts = [message.get("body", b"")]
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
    return None if message["type"] == "http.disconnect" else b"".join(parts)
