"""A connection as Hypercorn is given it, and what bounds it.

Idle ones are many, and what each holds is held all the time: hence the slots, and none of asyncio's streams and events,
which keep queues for those who might wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from hypercorn.asyncio.worker_context import WorkerContext

from ...hookspecs import ASGIApp

if TYPE_CHECKING:
    from .heads import Heads

_MOST_HELD = 32 * 1024  # bytes of an answer that wait for the end of the turn
_SILENT_LOOKS = 2  # whoever waits for a next request is parted from in order before that
_MOST_UNREAD = 64 * 1024  # bytes that wait for Hypercorn; past them nothing more is taken from the client


class Event:
    """An event as Hypercorn has it. One belongs to each connection, and only pipelined requests ever wait for it."""

    __slots__ = ("_is_set", "_waited")

    def __init__(self) -> None:
        self._is_set = False
        self._waited: asyncio.Event | None = None

    async def clear(self) -> None:
        self._is_set = False
        if self._waited is not None:
            self._waited.clear()

    async def wait(self) -> None:
        if not self._is_set:
            self._waited = self._waited or asyncio.Event()
            await self._waited.wait()

    async def set(self) -> None:
        self._is_set = True
        if self._waited is not None:
            self._waited.set()

    def is_set(self) -> bool:
        return self._is_set


class Context(WorkerContext):
    """What Hypercorn's connections share."""

    event_class = Event


class Connection(asyncio.Protocol):
    """What Hypercorn reads from and writes to. ``begin`` is told when it is there.

    At the client's end its idle connection is no longer waited for. Head, body and end of an answer go out together, at
    the end of a turn of the loop.
    """

    __slots__ = (
        "_begin",
        "_closed",
        "_drained",
        "_ended",
        "_full",
        "_held",
        "_held_bytes",
        "_loop",
        "_lost",
        "_more",
        "_reading",
        "_reset",
        "_unread",
        "heads",
        "idle",
        "reads",
        "transport",
    )

    transport: asyncio.Transport
    heads: Heads
    idle: IdleTask

    def __init__(self, loop: asyncio.AbstractEventLoop, begin: Callable[[Connection], None]) -> None:
        self._loop = loop
        self._begin = begin
        self.reads = 0
        self._unread = bytearray()
        self._reading = True
        self._more: asyncio.Future[None] | None = None
        self._ended = self._lost = self._reset = False
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._full = False
        self._drained: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] | None = None

    # --- the loop's side ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._begin(self)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self._unread += data
        _wake(self._more)
        if self._reading and len(self._unread) > _MOST_UNREAD:
            self._reading = False
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._more)
        return True  # who asked may still be answered

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = self._lost = True
        self._reset = exc is not None
        for waited in (self._more, self._drained, self._closed):
            _wake(waited)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._drained)

    # --- what Hypercorn reads -------------------------------------------------------------------------

    def at_eof(self) -> bool:
        return self._ended and not self._unread

    async def read(self, most: int) -> bytes:
        """What came and isn't answered here, at most ``most`` bytes; nothing at the client's end.

        Raises ``ConnectionResetError``.
        """
        while True:
            data = await self._next(most)
            if not data or self._reset:
                await self.idle.end()
            if self._reset:
                raise ConnectionResetError("the connection was lost")
            if not data or not self.heads.answered(data):
                return data
            self.idle.touch()

    async def _next(self, most: int) -> bytes:
        if not self._unread and not self._ended:
            self._more = self._loop.create_future()
            try:
                await self._more
            finally:
                self._more = None
        data = bytes(self._unread[:most])
        del self._unread[:most]
        if not self._reading and len(self._unread) <= _MOST_UNREAD and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()
        return data

    # --- what it writes to ----------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.transport.get_extra_info(name, default)

    def has_room(self) -> bool:
        """Whether the client takes what is written."""
        transport = self.transport
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
        """Wait until the client took enough of it; one task at a time. Raises ``ConnectionResetError``."""
        if self.transport.is_closing():
            await asyncio.sleep(0)  # its end may have come in this turn
        if self._full and not self._lost:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None
        if self._lost:
            raise ConnectionResetError("the connection was lost")

    def write_eof(self) -> None:
        self._flush()
        self.transport.write_eof()

    def close(self) -> None:
        self._flush()
        self.transport.close()

    async def wait_closed(self) -> None:
        if not self._lost:
            self._closed = self._closed or self._loop.create_future()
            await asyncio.shield(self._closed)

    def _flush(self) -> None:
        held, self._held = self._held, []
        self._held_bytes = 0
        if held and not self.transport.is_closing():
            with suppress(RuntimeError, OSError):  # the end was written, or met: whoever reads or drains is told
                self.transport.write(b"".join(held))


def _wake(waited: asyncio.Future[None] | None) -> None:
    if waited is not None and not waited.done():
        waited.set_result(None)


class IdleTask:
    """Lets a connection wait for its next request: by a timer, where Hypercorn begins and ends two tasks a request.

    The task that closes the connection begins when the time is over or the server stops; never once the client left.
    """

    __slots__ = ("_close", "_loop", "_over", "_seconds", "_since", "_task", "_timer")

    def __init__(self, task: Any, seconds: float) -> None:
        self._task = task
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._close: tuple[Any, Callable[[], Any]] | None = None  # the group and the action of the task that closes
        self._over = False

    async def restart(self, task_group: Any, action: Callable[[], Any]) -> None:
        await self.stop()
        if not self._over:
            self._close = task_group, action
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
            group, action = close
            group.spawn(self._task.restart, group, action)

    async def stop(self) -> None:
        self._close = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._task.stop()

    async def end(self) -> None:
        self._over = True
        await self.stop()


class Running:
    """The app as one connection has it: how many of its requests are being answered."""

    __slots__ = ("app", "begun", "reads_seen", "requests", "scope", "silent_looks", "wanted")

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.requests = 0
        self.begun = 0
        self.reads_seen = -1  # by ``Silence``, as ``silent_looks``
        self.silent_looks = 0
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


class Silence:
    """Ends connections on which nothing comes and nothing is answered.

    Hypercorn itself waits without end on one whose WebSocket it has refused. One timer looks at all of them.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._watched: dict[Connection, Running] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: Connection, running: Running) -> None:
        self._watched[connection] = running
        self._timer = self._timer or self._loop.call_later(self._seconds, self._look)

    def forget(self, connection: Connection) -> None:
        del self._watched[connection]
        if not self._watched and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        for connection, running in self._watched.items():
            if running.requests or connection.reads != running.reads_seen:
                running.reads_seen, running.silent_looks = connection.reads, 0
            else:
                running.silent_looks += 1
            if running.silent_looks == _SILENT_LOOKS:
                connection.transport.abort()
        self._timer = self._loop.call_later(self._seconds, self._look)
