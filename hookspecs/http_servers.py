"""Who runs an ASGI app: the seam below every HTTP server transport."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .config import Config, Limits
from .markers import hookspec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Bind:
    """Where to listen: a host and a port, or a Unix socket's path."""

    host: str = "127.0.0.1"
    port: int = 0
    unix: Path | None = None


class HttpServer(Protocol):
    """Runs one ASGI app on one address."""

    @property
    def name(self) -> str: ...

    def serve(self, app: ASGIApp, sock: socket.socket, limits: Limits) -> AbstractAsyncContextManager[None]:
        """Serve what comes in on ``sock``, which listens already and is closed by the core.

        Entered = accepting, left = drained within a few seconds, whatever clients do.
        """


@hookspec
def bascule_http_servers(config: Config) -> Iterable[HttpServer]:
    """Offer programs that run an ASGI app.

    Called once, when the bridge is assembled. All are offered side by side; names are unique, and the owner's
    settings choose one (``http_server``).

    Example::

        @hookimpl
        def bascule_http_servers(config):
            return [UvicornServer()]
    """
    raise NotImplementedError
