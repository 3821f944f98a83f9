"""Calls of tools and live events, as bare ASGI: everything else goes on to the framework.

A call is awaited by the request's own task; a second one watches whether the client leaves, which cancels the call and
so the work at the tool's server (N6.8).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

from ...hookspecs import (
    BasculeError,
    BridgeView,
    Event,
    Identity,
    Progress,
    RequestRefused,
    ScopeRequired,
    ToolArgumentsInvalid,
    ToolCall,
    ToolResult,
)
from ...hookspecs.http_servers import ASGIApp, Receive, Scope, Send
from .answers import TRACE_HEADER, Answer, problem, refusal, send_answer
from .operations import CALL, READ, caller_of, decode_json
from .streams import KEEP_ALIVE_SECONDS, EventStream, left, read

T = TypeVar("T")

_MOST_LISTENERS = 100
_CLOSE_SECONDS = 2.0  # less than what the HTTP servers give their apps to end
_WORDS = re.compile("(?<=[a-z])(?=[A-Z])")


class ClientLeft(Exception):
    """Nobody is there any more to be answered."""


class Front:
    """The app behind the guard. ``framework`` answers what it does not."""

    def __init__(
        self, bridge: BridgeView, framework: ASGIApp, *, keep_alive_seconds: float = KEEP_ALIVE_SECONDS
    ) -> None:
        self._bridge = bridge
        self._call_tool = bridge.gateway.call
        self._framework = framework
        self._keep_alive_seconds = keep_alive_seconds
        self._listeners: dict[EventStream, asyncio.Task[Any] | None] = {}
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if scope["method"] == "POST":
            whole = path.startswith("/api/tools/") and path.endswith("/call")
            name = path[11:-5] if whole else path[7:] if path.startswith("/tools/") else ""
            if name and "/" not in name:
                await _answer(self._call(scope, receive, send, name, whole), send)
                return
        elif path == "/api/events" and scope["method"] == "GET":
            await _answer(self._listen(scope, receive, send), send)
            return
        await self._framework(scope, receive, send)

    async def close(self) -> None:
        """End every stream of events in order; new ones are refused."""
        self._closing = True
        for stream in self._listeners:
            stream.end()
        tasks = [task for task in self._listeners.values() if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)

    # --- calls ----------------------------------------------------------------------------------------

    async def _call(self, scope: Scope, receive: Receive, send: Send, name: str, whole: bool) -> Answer | None:
        identity = _admit(scope, CALL)
        body = await read(receive)
        if body is None:
            raise ClientLeft
        arguments = decode_json(body)
        if not isinstance(arguments, dict):
            places = [{"pointer": "", "problem": "must be an object"}]
            raise ToolArgumentsInvalid("the arguments are no JSON object", problems=places)
        run, streamed = _wishes(scope)
        if run is not None:
            self._bridge.runs.owned(run, identity.name)
        call = ToolCall(name, arguments, caller_of(identity, _address(scope)), run)
        if streamed and whole:
            return await self._stream_call(call, receive, send)
        result = await _while_there(self._call_tool(call), receive)
        trace = result.trace_id
        return Answer(_whole(result) if whole else result.output, 200, {TRACE_HEADER: trace} if trace else {})

    async def _stream_call(self, call: ToolCall, receive: Receive, send: Send) -> Answer | None:
        """Progress as it comes, then one ``result`` or ``error``; what fails before all that is answered plainly."""
        stream = EventStream(self._keep_alive_seconds)
        early: list[Answer] = []

        def progress(sign: Progress) -> None:
            stream.put("progress", sign)

        async def produce() -> None:
            try:
                result = await self._call_tool(call, progress=progress)
            except BasculeError as error:
                if stream.untouched:
                    early.append(refusal(error))
                else:
                    stream.put("error", problem(error), always=True)
            else:
                stream.put("result", _whole(result), always=True)

        await _run(stream, produce(), receive, send)
        return early[0] if early else None

    # --- events ---------------------------------------------------------------------------------------

    async def _listen(self, scope: Scope, receive: Receive, send: Send) -> None:
        _admit(scope, READ)
        if self._closing or len(self._listeners) >= _MOST_LISTENERS:
            raise RequestRefused(f"{_MOST_LISTENERS} streams of events are open", status=429, hint="close some")
        stream = EventStream(self._keep_alive_seconds)
        self._listeners[stream] = asyncio.current_task()
        try:
            async with self._bridge.events() as events:
                stream.comment("listening")
                await _run(stream, _tell(events, stream), receive, send)
        finally:
            del self._listeners[stream]


async def _tell(events: AsyncIterator[Event], stream: EventStream) -> None:
    async for event in events:
        stream.put(_WORDS.sub("_", type(event).__name__).lower(), event)


async def _run(stream: EventStream, produce: Coroutine[Any, Any, None], receive: Receive, send: Send) -> None:
    """Run ``stream`` until its producer has ended or the client has left, which cancels the producer."""
    producing = asyncio.create_task(produce)
    leaving = asyncio.create_task(left(receive))
    for task in (producing, leaving):
        task.add_done_callback(lambda _: stream.end())
    try:
        await stream.something()
        if not stream.untouched and not leaving.done():
            await stream.run(send)
    finally:
        producing.cancel()
        leaving.cancel()
        broke, _ = await asyncio.gather(producing, leaving, return_exceptions=True)
    if isinstance(broke, Exception):
        raise broke


async def _while_there(work: Awaitable[T], receive: Receive) -> T:
    """Await ``work``; raise ``ClientLeft``, the work being cancelled, where the client does not wait for it."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker: this runs in one
    gone = False

    async def watch() -> None:
        nonlocal gone
        await left(receive)
        gone = True
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if gone and not task.uncancel():
            raise ClientLeft from None
        raise
    finally:
        watching.cancel()


async def _answer(work: Awaitable[Answer | None], send: Send) -> None:
    """Send what comes of ``work``; errors become problems."""
    try:
        answer = await work
    except ClientLeft:
        return
    except BasculeError as error:
        answer = refusal(error)
    if answer is not None:
        await send_answer(send, answer)


def _admit(scope: Scope, scopes: frozenset[str]) -> Identity:
    identity: Identity | None = scope["bascule.identity"]
    if identity is None or not scopes & identity.scopes:
        raise ScopeRequired(f"this needs a token with the scope {' or '.join(sorted(scopes))}")
    return identity


def _wishes(scope: Scope) -> tuple[str | None, bool]:
    """The run that the call is to be under, and whether the answer is to be a stream."""
    run, streamed = None, False
    for name, value in scope["headers"]:
        if name == b"bascule-run":
            run = value.decode("latin-1")
        elif name == b"accept":
            streamed = b"text/event-stream" in value.lower()
    return run, streamed


def _address(scope: Scope) -> str:
    """The client's host. Its port says nothing: connections come and go."""
    client = scope.get("client")
    return str(client[0]) if client else "a local socket"


def _whole(result: ToolResult) -> dict[str, Any]:
    return {
        "output": result.output,
        "content": result.content,
        "failed": result.failed,
        "trace_id": result.trace_id,
    }
