"""Puts an app on an address: the socket, the guard before the app, and the HTTP server that the owner chose."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ..hookspecs import ASGIApp, Bind, HttpPolicy, HttpServer, Identities, Limits, SettingsInvalid
from .guard import Guard, Mask

_BACKLOG = 256
_UNREAD_MILLISECONDS = 30_000


@asynccontextmanager
async def serve_http(
    app: ASGIApp,
    bind: Bind,
    policy: HttpPolicy,
    *,
    server: HttpServer,
    identities: Identities,
    limits: Limits,
    mask: Mask = str,
) -> AsyncIterator[None]:
    """Run ``app`` behind the guard; entered = accepting, left = drained."""
    guard = Guard.around(app, bind, policy, identities, limits, mask)
    with listen(bind) as sock:
        async with server.serve(guard, sock, limits):
            yield


def choose_server(wanted: str, servers: Mapping[str, HttpServer]) -> HttpServer:
    """The server that the settings name; ``auto`` takes uvicorn where it is installed."""
    for name in ("uvicorn", "hypercorn", *sorted(servers)) if wanted == "auto" else (wanted,):
        if name in servers:
            return servers[name]
    raise SettingsInvalid(
        f"there is no HTTP server {wanted!r}",
        where="http_server",
        hint=f"there are {', '.join(sorted(servers)) or 'none'}; see bascule hooks",
    )


def listen(bind: Bind) -> socket.socket:
    """Listen on ``bind``; raise ``SettingsInvalid`` where that can't be."""
    try:
        return _unix(bind) if bind.unix is not None else _tcp(bind)
    except OSError as error:
        where = str(bind.unix) if bind.unix is not None else f"{bind.host}:{bind.port}"
        hint = "end what listens there, or choose another port" if error.errno == errno.EADDRINUSE else None
        reason = error.strerror or str(error)
        raise SettingsInvalid(f"can't listen on {where}: {reason}", where="bind", hint=hint) from error


def _tcp(bind: Bind) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # said, or asyncio leaves Nagle on
    try:
        if os.name == "posix":  # elsewhere it would let two processes listen at once
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # or a server that closes waits for ever for who reads nothing
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MILLISECONDS)
        sock.bind((bind.host, bind.port))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _unix(bind: Bind) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(str(bind.unix))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(mask)
    sock.setblocking(False)
    return sock
