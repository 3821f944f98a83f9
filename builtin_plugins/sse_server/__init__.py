"""The server transport ``sse``: MCP clients reach the tools over HTTP+SSE (the second design document, A1–A7).

Source: MCP 2024-11-05, basic/transports, "HTTP with SSE", which later revisions keep for older clients. ``GET /sse``
opens a session; ``POST /messages?session_id=…`` carries what the client says; every answer comes on the stream.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from ...hookspecs import (
    Bind,
    BridgeView,
    Config,
    Directions,
    Exposure,
    HttpPolicy,
    Limits,
    Section,
    ServerTransport,
    hookimpl,
)

_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to tell them apart, not to bind to them
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def _either(camel: str, snake: str) -> AliasChoices:
    return AliasChoices(camel, snake)


class SseSettings(Section):
    """The section ``sse_server``: the second document's names, snake case accepted as well (A2)."""

    port: Annotated[int, Field(ge=1, le=65_535, strict=True)] = 7861
    bind: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    tool_groups: Annotated[
        frozenset[str], Field(default_factory=frozenset, validation_alias=_either("toolGroups", "tool_groups"))
    ]
    allow_restricted: Annotated[
        bool, Field(strict=True, validation_alias=_either("allowRestricted", "allow_restricted"))
    ] = False
    max_sessions: Annotated[
        int, Field(ge=1, le=10_000, strict=True, validation_alias=_either("maxSessions", "max_sessions"))
    ] = 1
    names: Literal["canonical", "flat"] = "canonical"
    allowed_hosts: Annotated[
        frozenset[str], Field(default_factory=frozenset, validation_alias=_either("allowedHosts", "allowed_hosts"))
    ]
    allowed_origins: Annotated[
        frozenset[str], Field(default_factory=frozenset, validation_alias=_either("allowedOrigins", "allowed_origins"))
    ]
    tokens: Annotated[bool, Field(strict=True)] = False
    root_path: Annotated[str, Field(pattern=r"^(/[^\s?#]*)?$", validation_alias=_either("rootPath", "root_path"))] = ""


class SseServer:
    """One address, several sessions."""

    name = "sse"

    def __init__(self, settings: SseSettings, limits: Limits) -> None:
        self.settings = settings
        self.exposure = Exposure(settings.tool_groups, settings.allow_restricted)
        self.directions = directions(settings)
        self._limits = limits

    @asynccontextmanager
    async def serve(self, bridge: BridgeView) -> AsyncIterator[None]:
        """Listen; on the way out every stream ends in order before the server's own limit."""
        from .app import SseApp

        settings = self.settings
        app = SseApp(
            bridge.gateway,
            self._limits,
            max_sessions=settings.max_sessions,
            names=settings.names,
            prefix=settings.root_path,
        )
        policy = HttpPolicy(
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            tokens_required=settings.tokens,
        )
        async with bridge.serve_http(app, Bind(settings.bind, settings.port), policy):
            try:
                yield
            finally:
                await app.close()


def directions(settings: SseSettings) -> Directions:
    """The URL, and what well-known clients take; where a token is needed, its place is left open."""
    host = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
    authority = f"{host}:{settings.port}"
    if settings.bind in _WILDCARDS and settings.allowed_hosts:
        authority = min(settings.allowed_hosts)
    url = f"http://{authority}{settings.root_path.rstrip('/')}/sse"
    entry: dict[str, object] = {"type": "sse", "url": url}
    command = f"claude mcp add --transport sse bascule {url}"
    if settings.tokens or settings.bind not in _LOOPBACK:
        entry["headers"] = {"Authorization": "Bearer TOKEN"}
        command += ' --header "Authorization: Bearer TOKEN"'
    return Directions(url, {"MCP clients": json.dumps({"mcpServers": {"bascule": entry}}), "Claude Code": command})


@hookimpl
def bascule_server_transports(config: Config) -> Iterable[ServerTransport]:
    """Offer ``sse``."""
    return [SseServer(config.section(SseSettings), config.limits)]
