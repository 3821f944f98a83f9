"""What the plugins live on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...hookspecs import Limits
from ..children import Children
from ..events import Events
from ..isolation import Keepers
from ..launching import Planner
from ..lineup import Lineup
from ..redaction import Redactor
from ..registry import Registry
from ..settings import Settings
from ..store import Store


@dataclass(frozen=True, slots=True)
class House:
    """What the plugins live on."""

    settings: Settings
    lineup: Lineup
    store: Store
    registry: Registry
    events: Events
    planner: Planner
    children: Children
    keepers: Keepers
    redactor: Redactor
    version: str
    state: Path

    @property
    def limits(self) -> Limits:
        return self.settings.limits
