"""The HTTP server ``hypercorn``: built in, imported when something is served.

Connections are accepted here and run by Hypercorn: its own loop keeps one that the client has left until the keep-alive
time is over, half a minute for each, since nothing stops the task that waits for that. A request whose head came before
on its connection is answered here where the app can do that on the spot (``PromptApp``): Hypercorn's parser and its
events cost more than all that is done with a message.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..hookspecs import ASGIApp, HttpServer, KnownHead, Limits, hookimpl, show_head

if TYPE_CHECKING:
    from hypercorn.config import Config

_GRACE_SECONDS = 3.0
_BACKLOG = 256
_MOST_HELD = 32 * 1024  # bytes of an answer that wait for the end of the turn
_NEGOTIATING = frozenset({b"connection", b"expect", b"upgrade", b"transfer-encoding"})


class HypercornServer:
    """Runs an app on Hypercorn in this loop. ``idle_seconds`` bounds a silent connection and a slow head."""

    name = "hypercorn"

    def __init__(self, idle_seconds: float = 30.0) -> None:
        self._idle_seconds = idle_seconds

    @asynccontextmanager
    async def serve(self, app: ASGIApp, sock: socket.socket, limits: Limits) -> AsyncIterator[None]:
        from hypercorn.asyncio.tcp_server import TCPServer
        from hypercorn.asyncio.worker_context import WorkerContext

        loop = asyncio.get_running_loop()
        context, config = WorkerContext(None), self._config()
        connections: set[asyncio.Task[Any]] = set()
        idles: set[_IdleTask] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            connections.add(task)
            task.add_done_callback(connections.discard)
            running = _Running(app)
            sink = _Writer(writer, loop)
            source = _Reader(reader, _Heads(running, sink))
            connection = TCPServer(cast(Any, running), loop, config, context, {}, cast(Any, source), cast(Any, sink))
            silence = _Silence(source, running, writer.transport, self._idle_seconds)
            idle = source.idle = _IdleTask(connection.idle_task, self._idle_seconds)
            connection.idle_task = cast(Any, idle)
            source.heads.server = connection
            idles.add(idle)
            try:
                await connection
            except (
                asyncio.CancelledError
            ):  # cut by _end: no one waits for this task, and asyncio would log it as a fault
                writer.transport.abort()
            finally:
                silence.end()
                idles.discard(idle)

        # it closes the socket that it is given, and the core closes its own
        listener = await asyncio.start_server(connected, sock=sock.dup(), backlog=_BACKLOG)
        try:
            yield
        finally:
            listener.close()
            await context.terminated.set()
            for idle in tuple(idles):
                idle.ring()
            await _end(connections)

    def _config(self) -> Config:
        from hypercorn.config import Config

        config = Config()
        config.h2_max_concurrent_streams = 1  # cleartext HTTP/2 can't be turned off here: the guard answers 505
        config.h11_max_incomplete_size = 16 * 1024
        config.keep_alive_timeout = 0  # waited for here, see _IdleTask
        config.keep_alive_max_requests = 100_000
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        return config


class _IdleTask:
    """Lets a connection wait for its next request: by a timer, where Hypercorn begins and ends two tasks a request.

    The task that closes the connection begins when the time is over or the server stops; never once the client left.
    """

    def __init__(self, task: Any, seconds: float) -> None:
        self._task = task
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._close: Callable[[], None] | None = None
        self._over = False

    async def restart(self, task_group: Any, action: Callable[[], Any]) -> None:
        await self.stop()
        if not self._over:
            self._close = partial(task_group.spawn, self._task.restart, task_group, action)
            self.touch()
            self._timer = self._loop.call_later(self._seconds, self._look)

    def touch(self) -> None:
        """A request was answered: the time begins anew, without moving the timer."""
        self._since = self._loop.time()

    def _look(self) -> None:
        due = self._since + self._seconds
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self.ring()

    def ring(self) -> None:
        """Close the connection, if it waits for a request."""
        close, self._close = self._close, None
        if close is not None:
            close()

    async def stop(self) -> None:
        self._close = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._task.stop()

    async def end(self) -> None:
        self._over = True
        await self.stop()


class _Running:
    """The app as one connection has it: how many of its requests are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.requests = 0
        self.begun = 0
        self.wanted = False
        self.scope: Any = None  # of the last one, where it is wanted

    async def __call__(
        self, scope: Any, receive: Any, send: Any, sync_spawn: Callable[..., Any], call_soon: Callable[..., Any]
    ) -> None:
        self.requests += 1
        self.begun += 1
        self.scope = scope if self.wanted else None
        try:
            await self.app(scope, receive, send)
        finally:
            self.requests -= 1


class _Silence:
    """Ends a connection on which nothing comes and nothing is answered.

    Hypercorn itself waits without end on one whose WebSocket it has refused.
    """

    def __init__(self, source: _Reader, running: _Running, transport: asyncio.WriteTransport, seconds: float) -> None:
        self._source = source
        self._running = running
        self._transport = transport
        self._seconds = 2 * seconds  # whoever waits for a next request is parted from in order before that
        self._loop = asyncio.get_running_loop()
        self._read = -1
        self._timer = self._loop.call_later(self._seconds, self._look)

    def _look(self) -> None:
        if self._running.requests == 0 and self._source.reads == self._read:
            self._transport.abort()
            return
        self._read = self._source.reads
        self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        self._timer.cancel()


class _Heads:
    """Answers requests whose head came before. ``server`` is the connection as Hypercorn has it.

    A head is learned from a request that Hypercorn took for one, whole and alone in what was read, and was done with
    when the next one came.
    """

    server: Any

    def __init__(self, running: _Running, sink: _Writer) -> None:
        self._running = running
        self._sink = sink
        self._known: KnownHead | None = None
        self._last: bytes | None = None  # what was read, where it may be a request that a head is learned from
        self._begun = 0

    def answered(self, data: bytes) -> bool:
        """Whether that was all; else Hypercorn reads ``data``."""
        if self._last is not None:
            self._known = self._learned(self._last)
            self._want(None)
        if self._known is not None:
            answer = self._known.answer(data) if self._sink.has_room() else None
            if answer is not None:
                self._sink.write(answer)
                return True
            self._known = None
        if data.startswith(b"POST ") and len(data) < _MOST_HELD and self._at_rest():
            self._want(data)
        return False

    def _want(self, request: bytes | None) -> None:
        self._last, self._begun = request, self._running.begun
        self._running.wanted, self._running.scope = request is not None, None

    def _learned(self, request: bytes) -> KnownHead | None:
        running = self._running
        scope = running.scope
        if running.begun != self._begun + 1 or not self._at_rest() or scope["http_version"] != "1.1":
            return None
        if any(name in _NEGOTIATING for name, _ in scope["headers"]):
            return None
        prompt = show_head(running.app, scope)
        return None if prompt is None else KnownHead.of(request, prompt)

    def _at_rest(self) -> bool:
        """Whether the connection owes no answer, and all that came was read."""
        from h11 import IDLE, Connection

        parser = getattr(self.server.protocol.protocol, "connection", None)
        return (
            isinstance(parser, Connection)
            and parser.our_state is IDLE
            and parser.their_state is IDLE
            and not parser.trailing_data[0]
            and self._running.requests == 0
        )


class _Reader:
    """What Hypercorn reads from: at the client's end its idle connection is no longer waited for."""

    idle: _IdleTask

    def __init__(self, reader: asyncio.StreamReader, heads: _Heads) -> None:
        self._reader = reader
        self.heads = heads
        self.reads = 0

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def read(self, most: int) -> bytes:
        while True:
            try:
                data = await self._reader.read(most)
            except OSError:
                await self.idle.end()
                raise
            self.reads += 1
            if not data:
                await self.idle.end()
                return data
            if not self.heads.answered(data):
                return data
            self.idle.touch()


class _Writer:
    """What Hypercorn writes to: head, body and end of an answer go out together, at the end of a turn of the loop."""

    def __init__(self, writer: asyncio.StreamWriter, loop: asyncio.AbstractEventLoop) -> None:
        self._writer = writer
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.get_extra_info = writer.get_extra_info
        self.wait_closed = writer.wait_closed

    def has_room(self) -> bool:
        """Whether the client takes what is written."""
        transport = self._writer.transport
        return not transport.is_closing() and transport.get_write_buffer_size() + self._held_bytes < _MOST_HELD

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _MOST_HELD:
            self._flush()

    async def drain(self) -> None:
        await self._writer.drain()

    def write_eof(self) -> None:
        self._flush()
        self._writer.write_eof()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        held, self._held = self._held, []
        self._held_bytes = 0
        if held and not self._writer.is_closing():
            with suppress(RuntimeError, OSError):  # the end was written, or met: whoever reads or drains is told
                self._writer.write(b"".join(held))


async def _end(connections: set[asyncio.Task[Any]]) -> None:
    """Give what is under way a moment; then it is cut."""
    if connections:
        await asyncio.wait(set(connections), timeout=_GRACE_SECONDS)
    left = set(connections)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_GRACE_SECONDS)


@hookimpl
def bascule_http_servers() -> Iterable[HttpServer]:
    """Offer ``hypercorn``."""
    return [HypercornServer()]
