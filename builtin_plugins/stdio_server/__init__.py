"""The server transport ``stdio``: whoever started Bascule as a command speaks MCP with it over its streams (A7).

Source: MCP 2025-11-25, basic/transports, "stdio", and basic/lifecycle, "Shutdown". The way down, written first: the
client closes our stdin → what was asked before is answered, within ``LINGER_SECONDS`` → the session ends → whoever
opened this transport is told (``StandardStreams.ended``) and leaves it. Left before that, it ends the session at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from ...hookspecs import (
    BridgeView,
    Caller,
    Config,
    Exposure,
    Limits,
    Section,
    ServerTransport,
    SessionOptions,
    SettingsInvalid,
    StandardStreams,
    hookimpl,
)
from .channel import StandardChannel

log = logging.getLogger(__name__)

LINGER_SECONDS = 5.0


class StdioSettings(Section):
    """The section ``stdio_server``; names as the SSE server's have them."""

    tool_groups: Annotated[
        frozenset[str], Field(default_factory=frozenset, validation_alias=AliasChoices("toolGroups", "tool_groups"))
    ]
    allow_restricted: Annotated[
        bool, Field(strict=True, validation_alias=AliasChoices("allowRestricted", "allow_restricted"))
    ] = False
    names: Literal["canonical", "flat"] = "canonical"


class StdioServer:
    """One client, for as long as the process lives. Opened by ``bascule stdio`` alone."""

    name = "stdio"
    on_demand = True

    def __init__(self, settings: StdioSettings, limits: Limits) -> None:
        self.exposure = Exposure(settings.tool_groups, settings.allow_restricted)
        self._names = settings.names
        self._limits = limits

    @asynccontextmanager
    async def serve(self, bridge: BridgeView) -> AsyncIterator[None]:
        """Speak with the client from here on."""
        if bridge.streams is None:
            raise SettingsInvalid("stdio needs the streams of a command of its own", hint="run bascule stdio")
        session = asyncio.create_task(self._attend(bridge, bridge.streams))
        try:
            yield
        finally:
            session.cancel()
            await asyncio.gather(session, return_exceptions=True)

    async def _attend(self, bridge: BridgeView, streams: StandardStreams) -> None:
        channel = StandardChannel(streams.stdin, streams.stdout, self._limits.message_bytes)
        options = SessionOptions(
            names=streams.names or self._names,
            message_bytes=self._limits.message_bytes,
            linger_seconds=LINGER_SECONDS,
        )
        try:
            # the second document's names for whoever is not known better (A5)
            await bridge.gateway.attend(channel, Caller("mcp", "mcp-client", "mcp-server", self.name), options)
        except Exception:
            log.exception("the session broke")
        finally:
            streams.ended(channel.fault)


@hookimpl
def bascule_server_transports(config: Config) -> Iterable[ServerTransport]:
    """Offer ``stdio``."""
    return [StdioServer(config.section(StdioSettings), config.limits)]
