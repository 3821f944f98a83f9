"""May this caller know this tool? One decision, for listing and for calling alike (A4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from .config import Config
from .markers import hookspec
from .tools import Caller, ToolDefinition


@dataclass(frozen=True, slots=True)
class Exposure:
    """What one way in lets through: ``tool_groups`` empty = every group (A2)."""

    tool_groups: frozenset[str] = frozenset()
    allow_restricted: bool = False


EVERYTHING = Exposure(allow_restricted=True)
"""For agents in the process and the owner's command line."""


class ExposurePolicy(Protocol):
    """A pure predicate: no I/O, and the same answer for the same values."""

    @property
    def name(self) -> str: ...

    def __call__(self, tool: ToolDefinition, caller: Caller, exposure: Exposure) -> bool:
        """Whether ``caller`` may see and call ``tool``."""


@hookspec
def bascule_exposure_policies(config: Config) -> Iterable[ExposurePolicy]:
    """Offer policies that say which tools a caller may know of.

    Called once, when the bridge is assembled; the policies are asked at every listing and every call. All must
    agree; one that raises hides the tool; where no policy at all is offered, nothing is shown.

    Example::

        @hookimpl
        def bascule_exposure_policies(config):
            return [OfficeHours(start=8, end=18)]
    """
    raise NotImplementedError
