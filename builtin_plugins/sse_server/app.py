"""The ASGI app: ``GET /sse``, ``POST /messages``. A framework on this path would cost more than the whole bridge.

What a POST is answered, in this order: 409 no session is open at all (A3) · 400 no session id · 404 an unknown or
replaced session, or another token's · 400 no JSON · 202 taken, the answer comes on the stream.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import parse_qs

import msgspec

from ...hookspecs import Caller, Gateway, Identity, Limits, SessionOptions
from ...hookspecs.http_servers import Message, Receive, Scope, Send
from .session import SseSession

log = logging.getLogger(__name__)

_json = msgspec.json.Decoder(msgspec.Raw)

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_ACCEPTED = (202, b"Accepted")


class SseApp:
    """Every session of one server. The newest give way to none: past ``max_sessions`` the oldest is closed."""

    def __init__(self, gateway: Gateway, limits: Limits, *, max_sessions: int, names: str) -> None:
        self._gateway = gateway
        self._limits = limits
        self._max_sessions = max_sessions
        self._names = names
        self._sessions: dict[str, SseSession] = {}
        self._closing = False
        self._streams: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        method = scope["method"]
        if path == "/messages":
            if method == "POST":
                await _answer(send, *await self._post(scope, receive))
            else:
                await _answer(send, 405, b"POST messages here", [(b"allow", b"POST")])
        elif path == "/sse":
            if method == "GET":
                await self._stream(scope, receive, send)
            else:
                await _answer(send, 405, b"GET opens a stream", [(b"allow", b"GET")])
        else:
            await _answer(send, 404, b"there is nothing here; try /sse")

    async def close(self) -> None:
        """End every stream in order; new ones are refused."""
        self._closing = True
        for session in list(self._sessions.values()):
            session.end("the server is stopping")
        if self._streams:
            await asyncio.wait(self._streams, timeout=2.0)

    # --- POST -----------------------------------------------------------------------------------------

    async def _post(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        if not self._sessions:
            return 409, b"no stream is open: GET /sse first"
        query = scope["query_string"]
        wanted = _parameter(query, "session_id")
        if wanted is None:
            return 400, b"the query names no session_id"
        session = self._sessions.get(wanted)
        if session is None or session.identity != scope["bascule.identity"]:
            return 404, b"there is no such session: GET /sse again"
        body = await _read(receive)
        try:
            _json.decode(body)
        except msgspec.DecodeError:
            return 400, b"the body is no JSON"
        if not session.put(body):
            return 429, b"too much waits to be read; slow down"
        return _ACCEPTED

    # --- GET ------------------------------------------------------------------------------------------

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._closing:
            await _answer(send, 503, b"the server is stopping")
            return
        names = _parameter(scope["query_string"], "names") or self._names
        if names not in ("canonical", "flat"):
            await _answer(send, 400, b"names is canonical or flat")
            return
        session = self._open(scope)
        task = asyncio.current_task()
        if task is not None:
            self._streams.add(task)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            endpoint = f"{scope.get('root_path', '')}/messages?session_id={session.id}"
            await session.run(endpoint, self._attend(session, scope, names), receive, send)
        finally:
            self._sessions.pop(session.id, None)
            if task is not None:
                self._streams.discard(task)
            log.info("session of %s ended: %s", session.peer, session.ended)

    def _open(self, scope: Scope) -> SseSession:
        while len(self._sessions) >= self._max_sessions:
            oldest = next(iter(self._sessions.values()))
            oldest.end("a newer connection took its place")
            del self._sessions[oldest.id]
        client = scope.get("client")
        peer = f"{client[0]}:{client[1]}" if client else "a local socket"
        session = SseSession(scope["bascule.identity"], peer, self._limits)
        self._sessions[session.id] = session
        log.info("session of %s begins", peer)
        return session

    async def _attend(self, session: SseSession, scope: Scope, names: str) -> None:
        caller = self._caller(session, scope["bascule.identity"])
        await self._gateway.attend(session, caller, SessionOptions(names=names))

    def _caller(self, session: SseSession, identity: Identity | None) -> Caller:
        """Who calls (A5): the document's names where nothing better is known."""
        user = "mcp-client" if identity is None else identity.name
        name = "mcp-server" if self._max_sessions == 1 else f"mcp-server-{session.id[:8]}"
        return Caller("mcp", user, name, "sse", identity)


def _parameter(query: bytes, name: str) -> str | None:
    prefix = f"{name}=".encode()
    if query.startswith(prefix) and b"&" not in query and b"%" not in query:  # how every client writes it
        return query[len(prefix) :].decode("latin-1")
    values = parse_qs(query.decode("latin-1"), max_num_fields=20).get(name)
    return values[0] if values else None


async def _read(receive: Receive) -> bytes:
    """The whole body; the guard bounds it."""
    message = await receive()
    if not message.get("more_body"):
        return bytes(message.get("body", b""))
    parts = [message.get("body", b"")]
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
    return b"".join(parts)


async def _answer(send: Send, status: int, text: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(text)).encode()),
            *(headers or ()),
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": text})
