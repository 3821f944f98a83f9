"""The bridge as one server transport may see it: its own exposure is part of every door."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from ..hookspecs import (
    ASGIApp,
    Bind,
    BridgeStatus,
    Caller,
    Channel,
    Event,
    HttpPolicy,
    ServerTransport,
    SessionOptions,
    StandardStreams,
    ToolDefinition,
)
from .downstream import Downstream
from .runs import AgentRuns
from .serving import choose_server, serve_http
from .versions import version

if TYPE_CHECKING:
    from .bridge import Bridge


class View:
    """Made for one server transport when it is opened. It is that transport's gateway as well."""

    def __init__(self, bridge: Bridge, transport: ServerTransport, streams: StandardStreams | None = None) -> None:
        self._bridge = bridge
        self._road = bridge.gateway.through(transport.exposure)
        self.gateway = self
        self.call = self._road.call
        self.plugins = bridge.plugins
        self.traces = bridge.traces
        self.runs = AgentRuns(self._road, bridge.traces, bridge.open_runs, platform="remote", transport=transport.name)
        self.identities = bridge.tokens
        self.environment: str = bridge.settings.environment
        self.streams = streams
        self.converters = bridge.lineup.converters

    async def tools(self, caller: Caller) -> Sequence[ToolDefinition]:
        return self._road.tools(caller)

    async def attend(self, channel: Channel, caller: Caller, options: SessionOptions) -> None:
        """Speak MCP with ``caller`` over ``channel`` until it ends; the session's calls are a run of their own."""
        bridge = self._bridge
        purpose = f"{caller.platform} session over {caller.transport}"
        async with self.runs.begin(caller.user, purpose=purpose) as run:
            session = Downstream(
                channel,
                caller,
                options,
                road=self._road,
                converter=bridge.converter("mcp"),
                watchers=bridge.registry.watchers,
                written=bridge.registry.written,
                run=run.id,
            )
            await session.run()

    def events(self, *kinds: type[Event]) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self._bridge.events(*kinds)

    def readiness(self) -> Mapping[str, str]:
        return self._bridge.readiness()

    def status(self) -> BridgeStatus:
        bridge, settings = self._bridge, self._bridge.settings
        launcher, isolation = bridge.keepers.shown()
        return BridgeStatus(
            version=version(),
            environment=settings.environment,
            http_server=choose_server(settings.http_server, bridge.lineup.http_servers).name,
            launcher=launcher,
            isolation=isolation,
            transports=tuple(bridge.opened),
            plugins=tuple(bridge.plugins.list()),
            failures={name: error.as_dict() for name, error in bridge.failures.items()},
            readiness=bridge.readiness(),
        )

    def announce(self, url: str) -> None:
        """Say where the REST API answers."""
        self._bridge.announce(url)

    def serve_http(self, app: ASGIApp, bind: Bind, policy: HttpPolicy) -> AbstractAsyncContextManager[None]:
        """Run ``app`` behind the guard on the HTTP server that the owner chose."""
        bridge = self._bridge
        server = choose_server(bridge.settings.http_server, bridge.lineup.http_servers)
        return serve_http(
            app,
            bind,
            policy,
            server=server,
            identities=self.identities,
            limits=bridge.settings.limits,
            mask=bridge.redact,
        )
