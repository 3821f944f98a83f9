"""One stream and what is posted to it, as a channel.

Written on the way down: the stream ends (the client left, was replaced, did not read, or the server stops) → the
channel's iteration ends → ``attend`` cancels and awaits the session's calls → the response is completed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from ...hookspecs import ChannelClosed, Identity, Limits
from ...hookspecs.http_servers import Receive, Send

_KEEP_ALIVE_SECONDS = 15.0
_MAX_INBOX = 1_024  # posted messages that the session has not looked at yet
_MAX_OUTBOX_BYTES = 8 * 1024 * 1024  # what waits for a client that does not read


class SseSession:
    """A ``Channel`` whose one side is an SSE stream. ``identity`` is the token's that opened it."""

    def __init__(self, identity: Identity | None, peer: str, limits: Limits) -> None:
        self.id = secrets.token_urlsafe(32)
        self.identity = identity
        self.peer = peer
        self.ended = ""
        self._limits = limits
        self._inbox: deque[bytes] = deque()
        self._posted = asyncio.Event()
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._due = asyncio.Event()

    # --- the channel ----------------------------------------------------------------------------------

    def put(self, message: bytes) -> bool:
        """Take a posted message; ``False`` where too many wait."""
        if len(self._inbox) >= _MAX_INBOX or self.ended:
            return False
        self._inbox.append(message)
        self._posted.set()
        return True

    def __aiter__(self) -> SseSession:
        return self

    async def __anext__(self) -> bytes:
        while not self._inbox:
            if self.ended:
                raise StopAsyncIteration
            self._posted.clear()
            await self._posted.wait()
        return self._inbox.popleft()

    async def send(self, message: bytes) -> None:
        """Queue one event; a message over the bound of an event is the session's affair to avoid."""
        if self.ended:
            raise ChannelClosed(self.ended)
        self._outbox.append(message)
        self._outbox_bytes += len(message)
        if self._outbox_bytes > _MAX_OUTBOX_BYTES:
            self.end("the client does not read")
            raise ChannelClosed(self.ended)
        self._due.set()

    def end(self, reason: str) -> None:
        """End the session for ``reason``; the first one stays."""
        self.ended = self.ended or reason
        self._posted.set()
        self._due.set()

    # --- the stream -----------------------------------------------------------------------------------

    async def run(self, endpoint: str, attend: Coroutine[Any, Any, None], receive: Receive, send: Send) -> None:
        """Hold the stream until it ends. The first event says where to post, relative to this origin."""
        attending = asyncio.create_task(attend)
        leaving = asyncio.create_task(self._watch(receive))
        attending.add_done_callback(lambda _: self.end("the session is over"))
        try:
            await send(_chunk(f"event: endpoint\r\ndata: {endpoint}\r\n\r\n".encode()))
            await self._pump(send)
        except (OSError, TimeoutError):
            self.end("the client does not read")
        finally:
            self.end("the stream was closed")
            leaving.cancel()
            await asyncio.gather(leaving, attending, return_exceptions=True)
            with suppress(OSError, TimeoutError, RuntimeError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        """All events of one turn of the loop go out together."""
        while not self.ended:
            try:
                async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                    await self._due.wait()
            except TimeoutError:
                await send(_chunk(b": keep-alive\r\n\r\n"))
                continue
            self._due.clear()
            await asyncio.sleep(0)
            messages, self._outbox = self._outbox, []
            self._outbox_bytes = 0
            if messages:
                await send(_chunk(b"".join(part for message in messages for part in _event(message))))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end("the client left")


def _event(message: bytes) -> tuple[bytes, bytes, bytes]:
    return b"event: message\r\ndata: ", message, b"\r\n\r\n"


def _chunk(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}
