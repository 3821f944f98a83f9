"""The HTTP server ``uvicorn``, offered where the extra ``fast`` is installed: several times Hypercorn's speed."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext

from ...hookspecs import ASGIApp, HttpServer, Limits, hookimpl

_GRACE_SECONDS = 3


class UvicornServer:
    """Runs an app on uvicorn in this loop. ``idle_seconds`` bounds a silent connection and a slow head."""

    name = "uvicorn"

    def __init__(self, idle_seconds: float = 30.0) -> None:
        self._idle_seconds = idle_seconds

    @asynccontextmanager
    async def serve(self, app: ASGIApp, sock: socket.socket, limits: Limits) -> AsyncIterator[None]:
        import uvicorn

        from .protocol import protocol

        class Server(uvicorn.Server):
            def capture_signals(self):  # type: ignore[no-untyped-def]
                """Signals are the owner's: the command line ends us."""
                return nullcontext()

        config = uvicorn.Config(
            app,
            http=protocol(app, self._idle_seconds),
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # anyone on this machine could say where he comes from
            ws="none",
            timeout_keep_alive=self._idle_seconds,  # type: ignore[arg-type]
            timeout_graceful_shutdown=_GRACE_SECONDS,
            h11_max_incomplete_event_size=16 * 1024,
        )
        server = Server(config)
        running = asyncio.create_task(server.serve([sock]), name="uvicorn")
        try:
            while not server.started and not running.done():  # noqa: ASYNC110 - it has no event for this
                await asyncio.sleep(0.005)
            yield
        finally:
            server.should_exit = True
            await asyncio.wait({running}, timeout=_GRACE_SECONDS * 2)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@hookimpl
def bascule_http_servers() -> Iterable[HttpServer]:
    """Offer ``uvicorn`` where it is installed."""
    return [UvicornServer()] if importlib.util.find_spec("uvicorn") is not None else []
