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
class PromptAnswer:
    """A whole answer as plain text."""

    status: int
    body: bytes


Prompt = Callable[[bytes], PromptAnswer | None]


class PromptApp(Protocol):
    """An ``ASGIApp`` that can answer some requests on the spot, without a task of their own.

    A server that knows of it shows the head of a request to ``prompt`` and, once the body is whole and its connection
    owes no other answer, the body to what came back; ``None`` from either = the request goes the ordinary road, through
    the app itself. Neither may block, nor have done anything when it answers ``None``. The server may keep what came
    back and show it the bodies of later requests on the same connection whose heads differ in nothing but
    ``content-length``: whatever else may have changed since, a revoked token say, it looks at anew each time.
    """

    def prompt(self, scope: Scope) -> Prompt | None: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


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
