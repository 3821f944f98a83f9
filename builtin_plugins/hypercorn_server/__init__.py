"""The HTTP server ``hypercorn``: built in, imported when something is served.

Connections are accepted here and run by Hypercorn: its own loop keeps one that the client has left until the keep-alive
time is over, half a minute for each, since nothing stops the task that waits for that. A request whose head came before
on its connection is answered here where the app can do that on the spot (``PromptApp``): Hypercorn's parser and its
events cost more than all that is done with a message.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from ...hookspecs import ASGIApp, HttpServer, Limits, hookimpl

if TYPE_CHECKING:
    from hypercorn.config import Config

_GRACE_SECONDS = 3.0
_BACKLOG = 256


class HypercornServer:
    """Runs an app on Hypercorn in this loop. ``idle_seconds`` bounds a silent connection and a slow head."""

    name = "hypercorn"

    def __init__(self, idle_seconds: float = 30.0) -> None:
        self._idle_seconds = idle_seconds

    @asynccontextmanager
    async def serve(self, app: ASGIApp, sock: socket.socket, limits: Limits) -> AsyncIterator[None]:
        from hypercorn.asyncio.tcp_server import TCPServer

        from .connection import Connection, Context, IdleTask, Running, Silence
        from .heads import Heads

        loop = asyncio.get_running_loop()
        context, config = Context(None), self._config()
        tasks: set[asyncio.Task[Any]] = set()
        idles: set[IdleTask] = set()
        silence = Silence(self._idle_seconds)

        def connected(connection: Connection) -> None:
            task = loop.create_task(run(connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        async def run(connection: Connection) -> None:
            running = Running(app)
            wire = cast(Any, connection)
            server = TCPServer(cast(Any, running), loop, config, context, {}, wire, wire)
            idle = connection.idle = IdleTask(server.idle_task, self._idle_seconds)
            connection.heads = Heads(running, connection, server)
            server.idle_task = cast(Any, idle)
            idles.add(idle)
            silence.watch(connection, running)
            try:
                await server
            except asyncio.CancelledError:
                connection.transport.abort()  # cut by _end; no one waits for this task, so it goes no further
            finally:
                silence.forget(connection)
                idles.discard(idle)

        # it closes the socket that it is given, and the core closes its own
        listener = await loop.create_server(lambda: Connection(loop, connected), sock=sock.dup(), backlog=_BACKLOG)
        try:
            yield
        finally:
            listener.close()
            await context.terminated.set()
            for idle in tuple(idles):
                idle.ring()
            await _end(tasks)

    def _config(self) -> Config:
        from hypercorn.config import Config

        config = Config()
        config.h2_max_concurrent_streams = 1  # cleartext HTTP/2 can't be turned off here: the guard answers 505
        config.h11_max_incomplete_size = 16 * 1024
        config.keep_alive_timeout = 0  # waited for here, see IdleTask
        config.keep_alive_max_requests = 100_000
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        return config


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Give what is under way a moment; then it is cut."""
    if tasks:
        await asyncio.wait(set(tasks), timeout=_GRACE_SECONDS)
    left = set(tasks)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_GRACE_SECONDS)


@hookimpl
def bascule_http_servers() -> Iterable[HttpServer]:
    """Offer ``hypercorn``."""
    return [HypercornServer()]
