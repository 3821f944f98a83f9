"""The permission check ``grants``: a tool runs if its plugin was granted the permission that the tool needs."""

from __future__ import annotations

from collections.abc import Iterable

from ..hookspecs import (
    Allow,
    Ask,
    CallFacts,
    Deny,
    PermissionCheck,
    ToolCall,
    ToolDefinition,
    Verdict,
    Visibility,
    hookimpl,
)

_RULE = "grants"


class Grants:
    """Compares the tool's permission with the owner's grants; asks where the tool wants a person's yes (A5)."""

    name = "grants"

    def __init__(self) -> None:
        self._allowed: dict[str, Allow] = {}

    async def __call__(self, call: ToolCall, tool: ToolDefinition, facts: CallFacts) -> Verdict:
        permission = tool.permission
        if permission not in facts.granted:
            return Deny(f"{tool.plugin_id} was not granted {permission}, which {tool.name} needs", _RULE)
        if tool.confirm:
            return Ask(f"Let {tool.name} run? Its owner wants each call confirmed.", _RULE)
        if tool.visibility is Visibility.SENSITIVE:
            return Ask(f"Let {tool.name} run? It is marked as sensitive.", _RULE)
        return self._allow(permission)

    def _allow(self, permission: str) -> Allow:
        """One value for each permission of the vocabulary: this is asked at every call."""
        if permission not in self._allowed:
            self._allowed[permission] = Allow(f"{permission} is granted", _RULE)
        return self._allowed[permission]


@hookimpl
def bascule_permission_checks() -> Iterable[PermissionCheck]:
    """Offer ``grants``."""
    return [Grants()]
