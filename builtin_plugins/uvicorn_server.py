"""The HTTP server ``uvicorn``, offered where the extra ``fast`` is installed: several times Hypercorn's speed."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from ..hookspecs import ASGIApp, HttpServer, Limits, hookimpl

_GRACE_SECONDS = 3
_HEAD_BYTES = 64 * 1024  # h11 has a bound of its own, httptools has none


class UvicornServer:
    """Runs an app on uvicorn in this loop. ``idle_seconds`` bounds a silent connection and a slow head."""

    name = "uvicorn"

    def __init__(self, idle_seconds: float = 30.0) -> None:
        self._idle_seconds = idle_seconds

    @asynccontextmanager
    async def serve(self, app: ASGIApp, sock: socket.socket, limits: Limits) -> AsyncIterator[None]:
        import uvicorn

        class Server(uvicorn.Server):
            def capture_signals(self):  # type: ignore[no-untyped-def]
                """Signals are the owner's: the command line ends us."""
                return nullcontext()

        config = uvicorn.Config(
            app,
            http=_protocol(self._idle_seconds),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
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


def _protocol(idle_seconds: float) -> type[asyncio.Protocol]:
    """What uvicorn leaves unbounded: the time until a request's head is there and, with httptools, its size.

    It also refuses, as RFC 9112, 3.2.2 lets it, a target that is no path: httptools would drop its authority unseen.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    base: Any = AutoHTTPProtocol

    class Bounded(base):  # type: ignore[misc]
        _alarm: asyncio.TimerHandle | None = None
        _in_head = False
        _head_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._wait_no_more()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._wait_no_more()
                return
            if self._alarm is None and not self.transport.is_closing():
                self._wait()
            if self._in_head:
                self._head_bytes += len(data)
                if self._head_bytes > _HEAD_BYTES:
                    self.transport.abort()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head = True
            self._head_bytes = 0

        def on_headers_complete(self) -> None:
            self._in_head = False
            if not self.url.startswith(b"/"):
                raise ValueError("the request's target is no path")
            super().on_headers_complete()

        def _wait(self) -> None:
            self._alarm = self.loop.call_later(idle_seconds, self.transport.abort)

        def _wait_no_more(self) -> None:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None

    return Bounded


@hookimpl
def bascule_http_servers() -> Iterable[HttpServer]:
    """Offer ``uvicorn`` where it is installed."""
    return [UvicornServer()] if importlib.util.find_spec("uvicorn") is not None else []
