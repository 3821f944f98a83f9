"""May this call run? The vocabulary that manifests declare, and the checks that are asked of every call."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Protocol

from .config import Config
from .exposure import Exposure
from .markers import hookspec
from .tools import ToolCall, ToolDefinition


@dataclass(frozen=True, slots=True)
class Permission:
    """A word that a manifest may declare, and what the owner reads when asked to grant it."""

    name: str
    description: str


CORE_PERMISSIONS = (
    Permission("tools.call", "call the plugin's tools that ask for nothing more"),
    Permission("notes.read", "read notes"),
    Permission("notes.write", "change notes"),
    Permission("files.read", "read files"),
    Permission("files.write", "change files"),
    Permission("network.access", "reach the network"),
    Permission("process.run", "run other programs"),
    Permission("secrets.read", "read secrets"),
)
"""The vocabulary that is always known (N5.4)."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Yes; ``rule`` names what said so."""

    reason: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """No; the reason is shown to the caller and kept in the trace."""

    reason: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """Only if a person says yes to ``question``."""

    question: str
    rule: str = ""


Verdict = Allow | Deny | Ask


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What a check may know beside the call and the tool.

    ``granted`` are the permissions that the owner gave the tool's plugin; ``can_ask`` says whether anyone can
    answer a question; ``run`` is the agent run that the call belongs to.
    """

    granted: frozenset[str]
    environment: str
    exposure: Exposure
    can_ask: bool = False
    run: str | None = None


class PermissionCheck(Protocol):
    """Asked of every call."""

    @property
    def name(self) -> str: ...

    def __call__(self, call: ToolCall, tool: ToolDefinition, facts: CallFacts) -> Awaitable[Verdict | None]:
        """Say yes, no or ask; ``None`` = nothing to say. One that raises or takes over 2 s denies."""


@hookspec
def bascule_permission_checks(config: Config) -> Iterable[PermissionCheck]:
    """Offer checks that every call must pass.

    Called once, when the bridge is assembled; the checks are asked of every call, all at once, 2 s each. ``Deny``
    outweighs ``Ask`` outweighs ``Allow``; if all are silent the call is denied; a check that raises or is late
    denies.

    Example::

        @hookimpl
        def bascule_permission_checks(config):
            return [NoWritesOnFridays()]
    """
    raise NotImplementedError


@hookspec
def bascule_permissions(config: Config) -> Iterable[Permission]:
    """Offer words that manifests may declare as permissions.

    Called once, when the bridge is assembled. All are added to the core's vocabulary; names are unique.

    Example::

        @hookimpl
        def bascule_permissions(config):
            return [Permission("calendar.read", "read the calendar")]
    """
    raise NotImplementedError
