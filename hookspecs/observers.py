"""What happens in the bridge, told to whoever wants to know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from .config import Config
from .markers import hookspec


@dataclass(frozen=True, slots=True)
class HostChanged:
    """A plugin or its host has another state. ``reason`` is for people and holds no diagnosis."""

    plugin_id: str
    plugin_state: str
    host_status: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class ToolsChanged:
    """The registry holds another set of this plugin's tools."""

    plugin_id: str
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call is over. ``code`` is ``None`` where it succeeded; times are in seconds."""

    tool: str
    step: str
    run: str | None
    code: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Lost:
    """This reader was too slow: ``count`` events are missing here."""

    count: int


Event = HostChanged | ToolsChanged | CallEnded | Lost


class Observer(Protocol):
    """Told of each event, in order. It must not block; what it raises is reported and stops no one."""

    @property
    def name(self) -> str: ...

    def __call__(self, event: Event) -> None: ...


@hookspec
def bascule_observers(config: Config) -> Iterable[Observer]:
    """Offer observers of events.

    Called once, when the bridge is assembled. Each observer is told of all events, isolated from the others.

    Example::

        @hookimpl
        def bascule_observers(config):
            return [JsonLines(Path("events.jsonl"))]
    """
    raise NotImplementedError
