"""What becomes of a plugin: one table for every event in every state.

A row says the plugin's next state, its host's status, whether its tools stand in the registry, and whether the host
may be restarted (N7.4). An event that has no row in a state can't happen there: asking for it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..hookspecs import HostStatus as H
from ..hookspecs import PluginState as P


class Happening(StrEnum):
    """What can happen to a plugin."""

    UNREADABLE = "unreadable"
    GRANTS_MISSING = "grants missing"
    GRANTS_COMPLETE = "grants complete"
    START = "start"
    STARTED = "started"
    START_FAILED = "start failed"
    SERVER_LOST = "server lost"
    LIST_CHANGED = "list changed"
    STOP = "stop"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Row:
    """What holds afterwards."""

    plugin: P
    host: H
    tools: bool = False
    restart: bool = False


_DISABLED = Row(P.DISABLED, H.STOPPED)
_AWAITING = Row(P.AWAITING_GRANTS, H.STOPPED)
_ENABLING = Row(P.ENABLING, H.STARTING)
_READY = Row(P.READY, H.READY, tools=True, restart=True)
_FAILED = Row(P.ERROR, H.ERROR, restart=True)
_UNREADABLE = Row(P.ERROR, H.ERROR)
_UNHEALTHY = Row(P.ERROR, H.UNHEALTHY, restart=True)
_DISABLING = Row(P.DISABLING, H.STOPPED)

TABLE: Mapping[Happening, Mapping[P, Row]] = {
    Happening.UNREADABLE: {P.INSTALLED: _UNREADABLE},
    Happening.GRANTS_MISSING: {P.INSTALLED: _AWAITING, P.AWAITING_GRANTS: _AWAITING, P.DISABLED: _AWAITING},
    Happening.GRANTS_COMPLETE: {P.INSTALLED: _DISABLED, P.AWAITING_GRANTS: _DISABLED, P.DISABLED: _DISABLED},
    # a running or failed host is started anew by restart, which stops it first
    Happening.START: {P.DISABLED: _ENABLING, P.ERROR: _ENABLING},
    Happening.STARTED: {P.ENABLING: _READY},
    Happening.START_FAILED: {P.ENABLING: _FAILED},
    Happening.SERVER_LOST: {P.READY: _UNHEALTHY},
    Happening.LIST_CHANGED: {P.READY: _UNHEALTHY},
    Happening.STOP: {P.READY: _DISABLING, P.ERROR: _DISABLING, P.ENABLING: _DISABLING},
    Happening.STOPPED: {P.DISABLING: _DISABLED},
}

START_ROW = Row(P.INSTALLED, H.STOPPED)
"""Where every plugin begins: its manifest was read, nothing else (N3.5)."""


def after(state: P, happening: Happening) -> Row:
    """Return the row; ``KeyError`` where this can't happen in this state, which is a fault of ours."""
    return TABLE[happening][state]


def possible(state: P, happening: Happening) -> bool:
    """Whether ``happening`` has a row in ``state``."""
    return state in TABLE[happening]
