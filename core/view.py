"""The bridge as one server transport may see it: its own exposure is part of every door."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from ..hookspecs import Event, ServerTransport
from .runs import AgentRuns

if TYPE_CHECKING:
    from .bridge import Bridge
    from .gateway import Road
    from .plugins import Plugins
    from .traces import Traces


class View:
    """Made for one server transport when it is opened."""

    def __init__(self, bridge: Bridge, transport: ServerTransport) -> None:
        self._bridge = bridge
        self.gateway: Road = bridge.gateway.through(transport.exposure)
        self.plugins: Plugins = bridge.plugins
        self.traces: Traces = bridge.traces
        self.runs = AgentRuns(self.gateway, bridge.traces, platform="remote", transport=transport.name)
        self.environment: str = bridge.settings.environment

    def events(self) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Listen to events from now on."""
        return self._bridge.events()

    def readiness(self) -> Mapping[str, str]:
        """What is not ready, and why."""
        return self._bridge.readiness()
