"""Serves one MCP client over a channel: recognises its requests, answers each once, and ends with it.

=======================  ===========================================================================================
method                   what is done
=======================  ===========================================================================================
initialize               the revision is settled; may come again
ping, logging/setLevel   answered at once
tools/list               a page of what the road shows this caller, in the order of ids
tools/call               a task on the road; its answer is a result, also where the call fails (-32602 for bad params)
notifications/cancelled  cancels that task; no answer is sent any more
anything else            -32601, at once: modern clients probe with server/discover
=======================  ===========================================================================================

Everything goes out by one writer in the order in which it was made. When the channel ends, every task of the session
is cancelled and awaited.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ...hookspecs import (
    AskPerson,
    BasculeError,
    Caller,
    Channel,
    ChannelClosed,
    Event,
    JsonObject,
    Limits,
    McpProtocolError,
    Progress,
    ProgressListener,
    SessionOptions,
    ToolCall,
    ToolCallFailed,
    ToolConverter,
    ToolDefinition,
    ToolResult,
    ToolsChanged,
)
from ..codecs import legacy_server as codec
from ..jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ErrorResponse,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    error_code,
)
from ..versions import version

log = logging.getLogger(__name__)

_MAX_WAITING = 4_096  # messages for a client that does not read; past it the session ends
_COALESCE_SECONDS = 0.05


class Road(Protocol):
    """What a session needs of the gateway."""

    async def tools(self, caller: Caller) -> Sequence[ToolDefinition]: ...

    async def call(
        self, call: ToolCall, *, progress: ProgressListener | None = None, ask: AskPerson | None = None
    ) -> ToolResult: ...


class Downstream:
    """One client's session."""

    def __init__(
        self,
        channel: Channel,
        caller: Caller,
        options: SessionOptions,
        *,
        road: Road,
        converter: ToolConverter,
        limits: Limits,
        listen: Callable[[], AbstractAsyncContextManager[AsyncIterator[Event]]],
    ) -> None:
        self._channel = channel
        self._caller = caller
        self._flat = options.names == "flat"
        self._road = road
        self._converter = converter
        self._limits = limits
        self._listen = listen
        self._client: codec.ClientInfo | None = None
        self._outgoing: deque[bytes] = deque()
        self._due = asyncio.Event()
        self._calls: dict[int | str, asyncio.Task[None]] = {}
        self._questions: dict[int, asyncio.Future[Any]] = {}
        self._last_question = 0
        self._overrun = False

    async def run(self) -> None:
        """Serve until the channel ends; whatever ended it, nothing of the session is left."""
        writer = asyncio.create_task(self._write())
        watcher = asyncio.create_task(self._watch_tools())
        try:
            async for message in self._channel:
                self._take(message)
                if self._overrun or writer.done():
                    break
        except ChannelClosed:
            log.debug("the channel of %s ended", self._caller.session, exc_info=True)
        finally:
            tasks = [writer, watcher, *self._calls.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- in -------------------------------------------------------------------------------------------

    def _take(self, line: bytes) -> None:
        batching = self._client is not None and self._client.batching
        try:
            message = decode(line, batch=batching)
        except McpProtocolError as fault:
            self._send(encode_error(None, error_code(fault), fault.message))
            return
        for each in message if isinstance(message, list) else (message,):
            self._dispatch(each)

    def _dispatch(self, message: Request | Notification | Response | ErrorResponse) -> None:
        if isinstance(message, Request):
            self._request(message)
        elif isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                self._cancel(message.params)
        else:
            self._answered(message)

    def _request(self, request: Request) -> None:
        method = request.method
        try:
            if method == "tools/call":
                self._call(request)
            elif method == "tools/list":
                self._start(request.id, self._list(request))
            elif method == "initialize":
                self._initialize(request)
            elif method in ("ping", "logging/setLevel"):
                self._send(encode_result(request.id, {}))
            else:
                self._send(encode_error(request.id, METHOD_NOT_FOUND, f"Method not found: {method[:100]}"))
        except McpProtocolError as fault:
            self._send(encode_error(request.id, INVALID_PARAMS, fault.message))

    def _initialize(self, request: Request) -> None:
        client = self._client = codec.read_initialize(request.params)
        log.info("%s %s speaks MCP %s (%s)", client.name, client.version, client.revision, self._caller.session)
        self._send(encode_result(request.id, codec.initialize_result(client, version(), None)))

    def _start(self, request_id: int | str, work: Any) -> None:
        if self._client is None:
            work.close()
            self._send(encode_error(request_id, INVALID_REQUEST, "initialize first"))
        elif request_id in self._calls:
            work.close()
            self._send(encode_error(request_id, INVALID_REQUEST, "a request of this id is in flight"))
        else:
            task = self._calls[request_id] = asyncio.create_task(work)
            task.add_done_callback(lambda _: self._calls.pop(request_id, None))

    # --- tools ----------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> None:
        tools = await self._road.tools(self._caller)
        try:
            start = codec.read_cursor(request.params)
        except McpProtocolError as fault:
            self._send(encode_error(request.id, INVALID_PARAMS, fault.message))
            return
        page: list[JsonObject] = [self._described(tool) for tool in tools[start : start + codec.PAGE_TOOLS]]
        result: dict[str, Any] = {"tools": page}
        if start + codec.PAGE_TOOLS < len(tools):
            result["nextCursor"] = str(start + codec.PAGE_TOOLS)
        self._send(encode_result(request.id, result))

    def _described(self, tool: ToolDefinition) -> JsonObject:
        written = self._converter.write_tool(tool)
        return {**written, "name": tool.alias} if self._flat else written

    def _call(self, request: Request) -> None:
        params = request.params
        if not isinstance(params, dict):
            raise McpProtocolError("tools/call has no params that are an object")
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise McpProtocolError("tools/call names no tool")
        if arguments is not None and not isinstance(arguments, dict):
            raise McpProtocolError("the arguments of tools/call are no object")
        client = self._client
        if client is None:
            self._send(encode_error(request.id, INVALID_REQUEST, "initialize first"))
            return
        call = ToolCall(name, arguments or {}, self._caller)
        self._start(request.id, self._run_call(request, call, client))

    async def _run_call(self, request: Request, call: ToolCall, client: codec.ClientInfo) -> None:
        try:
            result = await self._road.call(call, progress=self._listener(request, client), ask=self._asker(client))
            written = self._converter.write_result(result)
        except ToolCallFailed as error:
            written = self._failed(error)
        except BasculeError as error:
            written = codec.failure(error.code, str(error))
        self._send(encode_result(request.id, codec.fit_result(written, client.revision)))

    def _failed(self, error: ToolCallFailed) -> JsonObject:
        if error.result is None:
            return codec.failure(error.code, str(error))
        return self._converter.write_result(error.result)

    def _listener(self, request: Request, client: codec.ClientInfo) -> ProgressListener | None:
        token = codec.progress_token(request.params)
        if token is None:
            return None

        def listen(progress: Progress) -> None:
            params = codec.progress_params(token, progress, client.revision)
            self._send(encode_notification("notifications/progress", params))

        return listen

    def _cancel(self, params: object) -> None:
        request_id = codec.read_cancelled(params)
        task = self._calls.get(request_id) if request_id is not None else None
        if task is not None:
            task.cancel()

    # --- asking the client's person -------------------------------------------------------------------

    def _asker(self, client: codec.ClientInfo) -> AskPerson | None:
        """How to ask this client's person; ``None`` where it can't."""
        if not client.elicits:
            return None

        async def ask(question: str, call: ToolCall) -> bool:
            self._last_question += 1
            number = self._last_question
            future = self._questions[number] = asyncio.get_running_loop().create_future()
            params = codec.elicitation_params(question, client.revision)
            self._send(encode_request(number, "elicitation/create", params))
            try:
                return codec.accepted(await future)
            finally:
                self._questions.pop(number, None)

        return ask

    def _answered(self, message: Response | ErrorResponse) -> None:
        future = self._questions.get(message.id)
        if future is not None and not future.done():
            future.set_result(message.result if isinstance(message, Response) else None)

    # --- out ------------------------------------------------------------------------------------------

    def _send(self, message: bytes) -> None:
        if len(self._outgoing) >= _MAX_WAITING:
            self._overrun = True
            return
        self._outgoing.append(message)
        self._due.set()

    async def _write(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            while self._outgoing:
                try:
                    await self._channel.send(self._outgoing.popleft())
                except ChannelClosed:
                    return

    async def _watch_tools(self) -> None:
        """Tell the client of other tools, several changes at once."""
        async with self._listen() as events:
            async for event in events:
                if isinstance(event, ToolsChanged) and self._client is not None:
                    await asyncio.sleep(_COALESCE_SECONDS)
                    self._send(encode_notification("notifications/tools/list_changed"))
