"""Lets the conformance suite, which speaks only Streamable HTTP, test an HTTP+SSE server.

Each ``Mcp-Session-Id`` is one SSE connection. ``Host`` and ``Origin`` go through as they came, so that the server is
the one to judge them, and so does every message, byte by byte. Only names of tools are changed, both ways: the suite
calls them without the plugin's id.

``adapter.py PORT ADDRESS PLUGIN``; needs starlette, httpx, httpx-sse and uvicorn.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

import httpx
import uvicorn
from httpx_sse import EventSource
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

PORT, ADDRESS, PLUGIN = int(sys.argv[1]), sys.argv[2], sys.argv[3]
PREFIX = f'"name":"{PLUGIN}.'.encode()

Stream = asyncio.Queue[bytes | None]


class Refused(Exception):
    """The server's own answer, to be handed on."""

    def __init__(self, answer: httpx.Response, body: bytes) -> None:
        self.answer = Response(body, answer.status_code)


class Session:
    """One SSE connection: what is posted goes there, what comes is sorted to the streams that wait."""

    def __init__(self, http: httpx.AsyncClient, headers: dict[str, str]) -> None:
        self.id = secrets.token_hex(16)
        self._http = http
        self._endpoint = ""
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[str | int, Stream] = {}
        self._tokens: dict[str | int, Stream] = {}
        self._lists: set[str | int] = set()
        self.standing: Stream = asyncio.Queue()  # what belongs to no request
        self._reading = asyncio.create_task(self._read(headers))

    async def opened(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._opened), 10)

    def close(self) -> None:
        self._reading.cancel()

    async def _read(self, headers: dict[str, str]) -> None:
        try:
            async with self._http.stream("GET", ADDRESS, headers=headers, timeout=None) as answer:
                if answer.status_code != 200:
                    raise Refused(answer, await answer.aread())
                async for event in EventSource(answer).aiter_sse():
                    if event.event == "endpoint":
                        self._endpoint = urljoin(ADDRESS, event.data)
                        self._opened.set_result(None)
                    elif event.event == "message":
                        self._sort(event.data.encode())
        except (Refused, httpx.HTTPError) as fault:
            if not self._opened.done():
                self._opened.set_exception(fault)
        finally:
            for stream in (*self._waiting.values(), self.standing):
                stream.put_nowait(None)

    def _sort(self, data: bytes) -> None:
        message = json.loads(data)
        request_id = message.get("id")
        if "method" not in message and request_id in self._waiting:
            stream = self._waiting.pop(request_id)
            if request_id in self._lists:
                data = data.replace(PREFIX, b'"name":"')
            stream.put_nowait(data)
            stream.put_nowait(None)
            return
        token = (message.get("params") or {}).get("progressToken")
        newest = next(reversed(self._waiting.values()), self.standing)
        self._tokens.get(token, newest).put_nowait(data)

    async def post(self, body: bytes, message: Any, headers: dict[str, str]) -> Stream | httpx.Response:
        """Hand a message on. A request has a stream for its answer; else the server's own answer is returned."""
        stream: Stream | None = None
        if isinstance(message, dict) and "id" in message and "method" in message:
            stream = self._waiting[message["id"]] = asyncio.Queue()
            params = message.get("params") or {}
            token = (params.get("_meta") or {}).get("progressToken")
            if token is not None:
                self._tokens[token] = stream
            if message["method"] == "tools/list":
                self._lists.add(message["id"])
            elif message["method"] == "tools/call":
                params["name"] = f"{PLUGIN}.{params['name']}"
                body = json.dumps(message).encode()
        answer = await self._http.post(self._endpoint, content=body, headers=headers)
        return stream if stream is not None and answer.status_code == 202 else answer


class Adapter:
    """The one address ``/mcp``."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._http = httpx.AsyncClient(limits=httpx.Limits(max_connections=None), trust_env=False)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self._http:
            yield
            for session in self._sessions.values():
                session.close()

    async def answer(self, request: Request) -> Response:
        try:
            if request.method == "POST":
                return await self._post(request)
            session = self._session(request)
            if session is None:
                return _missing(request)
            if request.method == "GET":
                return _streaming(session.standing, session)
            del self._sessions[session.id]
            session.close()
            return Response(status_code=200)
        except Refused as refused:
            return refused.answer

    def _session(self, request: Request) -> Session | None:
        return self._sessions.get(request.headers.get("mcp-session-id", ""))

    async def _post(self, request: Request) -> Response:
        body = await request.body()
        message = json.loads(body)
        passed = {name: request.headers[name] for name in ("host", "origin", "content-type") if name in request.headers}
        session = self._session(request)
        if isinstance(message, dict) and message.get("method") == "initialize":
            session = Session(self._http, {name: value for name, value in passed.items() if name != "content-type"})
            await session.opened()
            self._sessions[session.id] = session
        if session is None:
            return _missing(request)
        taken = await session.post(body, message, passed)
        if isinstance(taken, httpx.Response):
            return Response(b"" if taken.status_code == 202 else taken.content, taken.status_code)
        return _streaming(taken, session)


def _missing(request: Request) -> Response:
    known = "mcp-session-id" in request.headers
    return PlainTextResponse("there is no such session", 404 if known else 400)


def _streaming(stream: Stream, session: Session) -> Response:
    async def events() -> AsyncIterator[bytes]:
        while (data := await stream.get()) is not None:
            yield b"event: message\r\ndata: " + data + b"\r\n\r\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Mcp-Session-Id": session.id})


adapter = Adapter()
app = Starlette(routes=[Route("/mcp", adapter.answer, methods=["GET", "POST", "DELETE"])], lifespan=adapter.lifespan)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning", timeout_graceful_shutdown=1)
