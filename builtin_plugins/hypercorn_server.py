"""The HTTP server ``hypercorn``: built in, imported when something is served."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from ..hookspecs import ASGIApp, HttpServer, Limits, hookimpl

_GRACE_SECONDS = 3.0


class HypercornServer:
    """Runs an app on Hypercorn in this loop. ``idle_seconds`` bounds a silent connection and a slow head."""

    name = "hypercorn"

    def __init__(self, idle_seconds: float = 30.0) -> None:
        self._idle_seconds = idle_seconds

    @asynccontextmanager
    async def serve(self, app: ASGIApp, sock: socket.socket, limits: Limits) -> AsyncIterator[None]:
        from hypercorn.asyncio import serve
        from hypercorn.config import Config

        config = Config()
        config.bind = [f"fd://{sock.dup().detach()}"]  # it closes what it is given, and the core closes its own
        config.graceful_timeout = _GRACE_SECONDS
        config.h2_max_concurrent_streams = 1  # cleartext HTTP/2 can't be turned off here: the guard answers 505
        config.h11_max_incomplete_size = 16 * 1024
        config.keep_alive_timeout = self._idle_seconds
        config.keep_alive_max_requests = 100_000
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        stop = asyncio.Event()
        running = asyncio.create_task(
            serve(app, config, shutdown_trigger=stop.wait),  # type: ignore[arg-type]
            name="hypercorn",
        )
        try:
            yield
        finally:
            stop.set()
            done, _ = await asyncio.wait({running}, timeout=_GRACE_SECONDS * 2)
            if not done:
                running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@hookimpl
def bascule_http_servers() -> Iterable[HttpServer]:
    """Offer ``hypercorn``."""
    return [HypercornServer()]
