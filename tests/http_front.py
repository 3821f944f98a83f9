"""An app behind the guard on a real HTTP server, with times that a test can wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from bascule.builtin_plugins.hypercorn_server import HypercornServer
from bascule.builtin_plugins.uvicorn_server import UvicornServer
from bascule.core.guard import Guard
from bascule.core.serving import listen
from bascule.hookspecs import ASGIApp, Bind, HttpPolicy, Identities, Limits
from bascule.hookspecs.kit import free_port

SERVERS = {"hypercorn": HypercornServer, "uvicorn": UvicornServer}
NO_POLICY = HttpPolicy()
USUAL = Limits()


@asynccontextmanager
async def front(
    app: ASGIApp,
    http_server: str,
    *,
    identities: Identities,
    policy: HttpPolicy = NO_POLICY,
    limits: Limits = USUAL,
    host: str = "127.0.0.1",
    body_seconds: float = 10.0,
    send_seconds: float = 15.0,
    idle_seconds: float = 30.0,
) -> AsyncIterator[int]:
    """Serve ``app``; yields the port."""
    bind = Bind(host, free_port())
    guard = replace(
        Guard.around(app, bind, policy, identities, limits), body_seconds=body_seconds, send_seconds=send_seconds
    )
    with listen(bind) as sock:
        async with SERVERS[http_server](idle_seconds).serve(guard, sock, limits):
            yield bind.port
