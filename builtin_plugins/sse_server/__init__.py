"""The server transport ``sse``: MCP clients reach the tools over HTTP+SSE (the second design document, A1–A7).

Source: MCP 2024-11-05, basic/transports, "HTTP with SSE", which later revisions keep for older clients. ``GET /sse``
opens a session; ``POST /messages?session_id=…`` carries what the client says; every answer comes on the stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from ...hookspecs import (
    Bind,
    BridgeView,
    Config,
    Exposure,
    HttpPolicy,
    Limits,
    Section,
    ServerTransport,
    hookimpl,
)


def _either(camel: str, snake: str) -> AliasChoices:
    return AliasChoices(camel, snake)


class SseSettings(Section):
    """The section ``sse_server``: the second document's names, snake case accepted as well (A2)."""

    port: Annotated[int, Field(ge=1, le=65_535)] = 7861
    bind: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    tool_groups: Annotated[
        frozenset[str], Field(default_factory=frozenset, validation_alias=_either("toolGroups", "tool_groups"))
    ]
    allow_restricted: Annotated[bool, Field(validation_alias=_either("allowRestricted", "allow_restricted"))] = False
    max_sessions: Annotated[int, Field(ge=1, le=10_000, validation_alias=_either("maxSessions", "max_sessions"))] = 1
    names: Literal["canonical", "flat"] = "canonical"
    allowed_hosts: Annotated[frozenset[str], Field(default_factory=frozenset)]
    allowed_origins: Annotated[frozenset[str], Field(default_factory=frozenset)]
    tokens: Annotated[bool, Field(description="whether a token is needed on loopback as well")] = False


class SseServer:
    """One address, several sessions."""

    name = "sse"

    def __init__(self, settings: SseSettings, limits: Limits) -> None:
        self.settings = settings
        self.exposure = Exposure(settings.tool_groups, settings.allow_restricted)
        self._limits = limits

    @asynccontextmanager
    async def serve(self, bridge: BridgeView) -> AsyncIterator[None]:
        """Listen; on the way out every stream ends in order before the server's own limit."""
        from .app import SseApp

        settings = self.settings
        app = SseApp(bridge.gateway, self._limits, max_sessions=settings.max_sessions, names=settings.names)
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


@hookimpl
def bascule_server_transports(config: Config) -> Iterable[ServerTransport]:
    """Offer ``sse``."""
    return [SseServer(config.section(SseSettings), config.limits)]
