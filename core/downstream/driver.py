"""Serves one MCP client over a channel: recognises its requests, answers each once, and ends with it.

=======================  ===========================================================================================
method                   what is done
=======================  ===========================================================================================
initialize               the revision is settled; may come again
ping                     answered at once
logging/setLevel         from now on only what is as grave as that is passed on
tools/list               a page of what the road shows this caller, in the order of ids
tools/call               a task on the road; its answer is a result, also where the call fails (-32602 for bad params)
notifications/cancelled  cancels that task; no answer is sent any more
anything else            -32601, at once: modern clients probe with server/discover
=======================  ===========================================================================================

Everything goes out by one writer in the order in which it was made. While much waits for a client that reads slowly,
nothing more is taken from it, and it hears of no progress. When the channel ends, every task of the session is
cancelled and awaited; before that, calls may still be answered for as long as the options say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from msgspec import Raw

from ...hookspecs import (
    AskPerson,
    BasculeError,
    Caller,
    Channel,
    ChannelClosed,
    JsonObject,
    LogListener,
    LogMessage,
    McpProtocolError,
    Progress,
    ProgressListener,
    SessionOptions,
    ToolCall,
    ToolCallFailed,
    ToolConverter,
    ToolDefinition,
    ToolResult,
    ToolResultTooLarge,
)
from ..codecs import legacy
from ..codecs import legacy_server as codec
from ..jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    error_code,
)
from ..versions import version
from .outgoing import Outgoing

log = logging.getLogger(__name__)

_MANY_WAITING = 1024 * 1024  # bytes for a client that reads slowly; past them nothing more is taken from it
_COALESCE_SECONDS = 0.05


class Road(Protocol):
    """What a session needs of the gateway."""

    def tools(self, caller: Caller) -> Sequence[ToolDefinition]: ...

    async def call(
        self,
        call: ToolCall,
        *,
        progress: ProgressListener | None = None,
        ask: AskPerson | None = None,
        logs: LogListener | None = None,
    ) -> ToolResult: ...


class Downstream:
    """One client's session. ``watchers`` are called when the registry holds other tools, ``written`` are those it holds
    as they were written for other sessions."""

    def __init__(
        self,
        channel: Channel,
        caller: Caller,
        options: SessionOptions,
        *,
        road: Road,
        converter: ToolConverter,
        watchers: set[Callable[[], None]],
        written: dict[tuple[str, str], bytes] | None = None,
        run: str | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._outgoing = Outgoing(channel)
        self._caller = caller
        self._options = options
        self._road = road
        self._converter = converter
        self._watchers = watchers
        self._written = {} if written is None else written
        self._run = run
        self._client: codec.ClientInfo | None = None
        self._initialized = False
        self._level = 0
        self._calls: dict[int | str, asyncio.Task[None]] = {}
        self._questions: dict[int, asyncio.Future[Any]] = {}
        self._last_question = 0
        self._changed: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve until the channel ends; whatever ended it, nothing of the session is left."""
        outgoing = self._outgoing
        self._watchers.add(self._tools_changed)
        try:
            async for message in self._channel:
                self._take(message)
                while outgoing.waiting > _MANY_WAITING and not outgoing.over:
                    await outgoing.room()
                if outgoing.over:
                    break
            await self._linger()
        except ChannelClosed:
            log.debug("the channel of %s ended", self._caller.session, exc_info=True)
        finally:
            self._watchers.discard(self._tools_changed)
            if self._changed is not None:
                self._changed.cancel()
            for task in self._calls.values():
                task.cancel()
            await asyncio.gather(*self._calls.values(), *outgoing.end(), return_exceptions=True)

    async def _linger(self) -> None:
        """Answer what was asked before the client's last word, where it may still listen; it answers us no more."""
        if not self._options.linger_seconds:
            return
        for answer in self._questions.values():
            if not answer.done():
                answer.set_result(None)
        writer = self._outgoing.writer()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.linger_seconds):
                while self._calls and not writer.done():
                    await asyncio.wait({writer, *self._calls.values()}, return_when=asyncio.FIRST_COMPLETED)
                while self._outgoing.waiting and not writer.done():
                    await self._outgoing.room()

    # --- in -------------------------------------------------------------------------------------------

    def _take(self, line: bytes) -> None:
        batching = self._client is not None and self._client.batching
        try:
            message = decode(line, batch=batching)
        except McpProtocolError as fault:
            self._dispatch(fault)
            return
        for each in message if isinstance(message, list) else (message,):
            self._dispatch(each)

    def _dispatch(self, message: Message | McpProtocolError) -> None:
        if isinstance(message, McpProtocolError):
            self._send(encode_error(None, error_code(message), message.message))
        elif isinstance(message, Request):
            self._request(message)
        elif not isinstance(message, Notification):
            self._answered(message)
        elif message.method == "notifications/cancelled":
            self._cancel(message.params)
        elif message.method == "notifications/initialized":
            self._initialized = True

    def _request(self, request: Request) -> None:
        try:
            self._serve(request)
        except McpProtocolError as fault:
            self._send(encode_error(request.id, INVALID_PARAMS, fault.message))
        except Exception:
            log.exception("%s of %s failed", request.method[:100], self._caller.session)
            self._send(encode_error(request.id, INTERNAL_ERROR, "Internal error"))

    def _serve(self, request: Request) -> None:
        method, client = request.method, self._client
        result: JsonObject = {}
        if method == "tools/call" and client is not None:
            self._call(request, client)
            return
        if method == "tools/list" and client is not None:
            result = self._list(request)
        elif method == "initialize":
            result = self._initialize(request)
        elif method == "logging/setLevel":
            self._level = codec.read_level(request.params)
        elif method != "ping":
            self._send(self._no(request))
            return
        self._send(encode_result(request.id, result))

    def _no(self, request: Request) -> bytes:
        if request.method in ("tools/call", "tools/list"):
            return encode_error(request.id, INVALID_REQUEST, "initialize first")
        return encode_error(request.id, METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")

    def _initialize(self, request: Request) -> JsonObject:
        client = self._client = codec.read_initialize(request.params)
        self._caller = replace(self._caller, client=f"{client.name} {client.version}")
        log.info("%s: %s %s speaks MCP %s", self._caller.session, client.name, client.version, client.revision)
        return codec.initialize_result(client, version(), None)

    # --- tools ----------------------------------------------------------------------------------------

    def _list(self, request: Request) -> JsonObject:
        """One page: it goes on behind the last tool of the one before, so that changes between them lose nothing."""
        after = codec.read_cursor(request.params)
        most = room = self._options.message_bytes - codec.PAGE_OVERHEAD
        page: list[Raw] = []
        last = ""
        for tool in self._road.tools(self._caller):
            if tool.name <= after:
                continue
            written = self._described(tool)
            if len(written) >= most:
                log.warning(
                    "%s takes %d bytes and can't be listed to %s", tool.name, len(written), self._caller.session
                )
                continue
            room -= len(written) + 1
            if room < 0 or len(page) == codec.PAGE_TOOLS:
                return {"tools": page, "nextCursor": codec.write_cursor(last)}
            page.append(Raw(written))
            last = tool.name
        return {"tools": page}

    def _described(self, tool: ToolDefinition) -> bytes:
        key = tool.name, self._options.names
        written = self._written.get(key)
        if written is None:
            shown = self._converter.write_tool(tool)
            written = encode({**shown, "name": tool.alias} if self._options.names == "flat" else shown)
            self._written[key] = written
        return written

    def _call(self, request: Request, client: codec.ClientInfo) -> None:
        name, arguments = codec.read_call(request.params)
        if request.id in self._calls:
            self._send(encode_error(request.id, INVALID_REQUEST, "a request of this id is in flight"))
            return
        work = self._run_call(request, ToolCall(name, arguments, self._caller, self._run), client)
        self._calls[request.id] = self._loop.create_task(work)

    async def _run_call(self, request: Request, call: ToolCall, client: codec.ClientInfo) -> None:
        try:
            result = await self._outcome(request, call, client)
            message = encode_result(request.id, codec.fit_result(result, client.revision))
        except Exception:
            log.exception("a call of %s failed in the bridge", call.tool)
            message = encode_error(request.id, INTERNAL_ERROR, "the call failed in the bridge")
        finally:
            self._calls.pop(request.id, None)
        most = self._options.message_bytes
        if len(message) > most:
            words = f"the result takes {len(message):,} bytes; a message to this client may have {most:,}"
            message = encode_result(request.id, codec.failure(ToolResultTooLarge.code, words))
        self._send(message)

    async def _outcome(self, request: Request, call: ToolCall, client: codec.ClientInfo) -> JsonObject:
        try:
            result = await self._road.call(
                call, progress=self._listener(request, client), ask=self._asker(client), logs=self._relay
            )
        except BasculeError as error:
            if not isinstance(error, ToolCallFailed) or error.result is None:
                return codec.failure(error.code, str(error))
            result = error.result
        return self._converter.write_result(result)

    def _listener(self, request: Request, client: codec.ClientInfo) -> ProgressListener | None:
        token = codec.progress_token(request.params)
        if token is None:
            return None

        def listen(progress: Progress) -> None:
            self._notify("notifications/progress", codec.progress_params(token, progress, client.revision))

        return listen

    def _relay(self, message: LogMessage) -> None:
        if legacy.LEVELS.index(message.level) >= self._level:
            self._notify("notifications/message", codec.log_params(message))

    def _cancel(self, params: object) -> None:
        request_id = codec.read_cancelled(params)
        task = self._calls.get(request_id) if request_id is not None else None
        if task is not None:
            task.cancel()
            task.add_done_callback(partial(self._forget, request_id))  # one that has not begun forgets nothing itself

    def _forget(self, request_id: int | str | None, task: asyncio.Task[None]) -> None:
        if request_id is not None and self._calls.get(request_id) is task:
            del self._calls[request_id]

    # --- asking the client's person -------------------------------------------------------------------

    def _asker(self, client: codec.ClientInfo) -> AskPerson | None:
        """How to ask this client's person; ``None`` where it can't."""
        if not client.elicits:
            return None

        async def ask(question: str, call: ToolCall) -> bool:
            self._last_question += 1
            number = self._last_question
            answer = self._questions[number] = self._loop.create_future()
            params = codec.elicitation_params(question, encode(call.arguments), client.revision)
            self._send(encode_request(number, "elicitation/create", params))
            try:
                return codec.accepted(await answer)
            except asyncio.CancelledError:
                params = legacy.cancelled_params(number, "no one waits for the answer any more")
                self._send(encode_notification("notifications/cancelled", params))
                raise
            finally:
                del self._questions[number]

        return ask

    def _answered(self, message: Response | ErrorResponse) -> None:
        answer = self._questions.get(message.id)
        if answer is not None and not answer.done():
            answer.set_result(message.result if isinstance(message, Response) else None)

    # --- out ------------------------------------------------------------------------------------------

    def _notify(self, method: str, params: JsonObject) -> None:
        """Tell what may be missed, but not to a client that lags behind."""
        if self._outgoing.waiting <= _MANY_WAITING:
            self._send(encode_notification(method, params))

    def _send(self, message: bytes) -> None:
        if len(message) > self._options.message_bytes:  # an id or a token that is longer than any message
            log.warning("a message of %d bytes to %s was dropped", len(message), self._caller.session)
            return
        self._outgoing.send(message)

    def _tools_changed(self) -> None:
        """Several changes at once are told once, and only to a client that has finished its handshake."""
        if self._initialized and self._changed is None:
            self._changed = self._loop.call_later(_COALESCE_SECONDS, self._tell_change)

    def _tell_change(self) -> None:
        self._changed = None
        self._send(encode_notification("notifications/tools/list_changed"))
