"""The ASGI app: ``GET /sse``, ``POST /messages``. A framework on this path would cost more than the whole bridge.

What a POST is answered, in this order: 409 no session is open at all (A3) · 400 no session id · 404 an unknown or
replaced session, or another token's · 400 no JSON · 429 too much waits · 202 taken, the answer comes on the stream.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import Any
from urllib.parse import parse_qs

import msgspec

from ...hookspecs import Caller, Gateway, Identity, Limits, Prompt, PromptAnswer, SessionOptions
from ...hookspecs.http_servers import Message, Receive, Scope, Send
from .session import SseSession

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0
_CLOSE_SECONDS = 2.0  # less than what the HTTP servers give their apps to end

_json = msgspec.json.Decoder(msgspec.Raw)

_TAKEN = PromptAnswer(202, b"Accepted")
_NO_SESSION = PromptAnswer(404, b"there is no such session: GET /sse again")

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class SseApp:
    """Every session of one server: past ``max_sessions`` the oldest gives way.

    ``prefix`` is where a proxy publishes the app, if its server does not say so (``root_path``).
    """

    def __init__(
        self,
        gateway: Gateway,
        limits: Limits,
        *,
        max_sessions: int = 1,
        names: str = "canonical",
        prefix: str = "",
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._gateway = gateway
        self._limits = limits
        self._max_sessions = max_sessions
        self._names = names
        self._prefix = prefix.rstrip("/")
        self._keep_alive_seconds = keep_alive_seconds
        self._sessions: dict[str, SseSession] = {}
        self._numbers = count(1)
        self._closing = False
        self._streams: set[asyncio.Task[Any]] = set()

    def prompt(self, scope: Scope) -> Prompt | None:
        """Take messages on the spot; where one can't be taken, the ordinary road says why (see ``PromptApp``)."""
        _, path = self._place(scope)
        if path != "/messages" or scope["method"] != "POST":
            return None
        session = self._session(scope)
        if isinstance(session, PromptAnswer):
            return None

        def take(body: bytes) -> PromptAnswer | None:
            return _TAKEN if self._take(session, body) is _TAKEN else None

        return take

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix, path = self._place(scope)
        method = scope["method"]
        if path == "/messages":
            if method == "POST":
                answer = await self._post(scope, receive)
                if answer is not _TAKEN:
                    log.info(
                        "a message of %s was refused, %d: %s", _address(scope), answer.status, answer.body.decode()
                    )
                await _answer(send, answer.status, answer.body)
            else:
                await _answer(send, 405, b"POST messages here", [(b"allow", b"POST")])
        elif path == "/sse":
            if method == "GET":
                await self._stream(scope, receive, send, prefix)
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
            await asyncio.wait(self._streams, timeout=_CLOSE_SECONDS)

    def _place(self, scope: Scope) -> tuple[str, str]:
        """The prefix under which the app stands, and the path below it."""
        prefix = scope.get("root_path") or self._prefix
        path: str = scope["path"]
        return prefix, path[len(prefix) :] if prefix and path.startswith(f"{prefix}/") else path

    # --- POST -----------------------------------------------------------------------------------------

    async def _post(self, scope: Scope, receive: Receive) -> PromptAnswer:
        session = self._session(scope)
        if isinstance(session, PromptAnswer):
            return session
        return self._take(session, await _read(receive))

    def _session(self, scope: Scope) -> SseSession | PromptAnswer:
        """The session that a message is for, or why there is none."""
        if not self._sessions:
            return PromptAnswer(409, b"no stream is open: GET /sse first")
        wanted = _parameter(scope["query_string"], "session_id")
        if wanted is None:
            return PromptAnswer(400, b"the query names no session_id")
        session = self._sessions.get(wanted)
        if session is None:
            return _NO_SESSION
        identity = scope["bascule.identity"]
        return session if session.identity is identity or session.identity == identity else _NO_SESSION

    def _take(self, session: SseSession, body: bytes) -> PromptAnswer:
        try:
            _json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return PromptAnswer(400, b"the body is no JSON")
        if session.ended:
            return _NO_SESSION
        if not session.put(body):
            return PromptAnswer(429, b"too much waits to be read; slow down")
        return _TAKEN

    # --- GET ------------------------------------------------------------------------------------------

    async def _stream(self, scope: Scope, receive: Receive, send: Send, prefix: str) -> None:
        if self._closing:
            await _answer(send, 503, b"the server is stopping")
            return
        names = _parameter(scope["query_string"], "names") or self._names
        if names not in ("canonical", "flat"):
            await _answer(send, 400, b"names is canonical or flat")
            return
        session, caller = self._open(scope)
        options = SessionOptions(names=names, message_bytes=self._limits.sse_event_bytes)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker: this runs in one
        self._streams.add(task)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
            endpoint = f"{prefix}/messages?session_id={session.id}"
            attend = self._gateway.attend(session, caller, options)
            await session.run(endpoint, attend, receive, send, self._keep_alive_seconds)
        finally:
            session.end("the stream did not begin")
            self._streams.discard(task)
            log.info("%s of %s ended: %s", session.name, caller.address, session.ended)

    def _open(self, scope: Scope) -> tuple[SseSession, Caller]:
        while len(self._sessions) >= self._max_sessions:
            next(iter(self._sessions.values())).end("a newer connection took its place")
        identity: Identity | None = scope["bascule.identity"]
        user = "mcp-client" if identity is None else identity.name
        address = _address(scope)
        name = "mcp-server" if self._max_sessions == 1 else f"mcp-server-{next(self._numbers)}"
        inbox, event = 2 * self._limits.http_body_bytes, self._limits.sse_event_bytes
        session = SseSession(name, identity, inbox, self._forget, event_bytes=event)
        self._sessions[session.id] = session
        log.info("%s of %s begins, as %s", name, address, user)
        # the document's names where nothing better is known (A5)
        return session, Caller("mcp", user, name, "sse", identity, address)

    def _forget(self, session: SseSession) -> None:
        self._sessions.pop(session.id, None)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return f"{client[0]}:{client[1]}" if client else "a local socket"


def _parameter(query: bytes, name: str) -> str | None:
    first, _, value = query.partition(b"=")
    if first == name.encode() and b"&" not in value and b"%" not in value:  # how every client writes it
        return value.decode("latin-1")
    try:
        values = parse_qs(query.decode("latin-1"), max_num_fields=20).get(name)
    except ValueError:
        return None
    return values[0] if values else None


async def _read(receive: Receive) -> bytes:
    """The whole body, which the guard bounds; nothing where the client left in the middle of it."""
    message = await receive()
    if not message.get("more_body"):
        return bytes(message.get("body", b""))
    parts = [message.get("body", b"")]
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
    return b"" if message["type"] == "http.disconnect" else b"".join(parts)


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
