"""How an approval shows: everything that it rests on, and what is not as it was approved."""

from __future__ import annotations

from datetime import UTC, datetime

from ...hookspecs import (
    ApprovalState,
    ApprovalView,
    BasculeError,
    JsonObject,
    ToolApproval,
)
from .. import hygiene
from ..admission import Admission
from ..naming import tool_id
from ..registry import Outgoing
from ..trust import Approval, Look, Pins, command_view, differences, judge, tool_digest, whole_digest
from .installed import Installed


class Shown:
    """One plugin's approval beside what was seen of the plugin now. Compiles schemas: it may take a thread."""

    def __init__(self, plugin: Installed, approval: Approval | None, look: Look, admission: Admission) -> None:
        self._plugin = plugin
        self._approval = approval
        self._look = look
        self._admission = admission

    def view(self, *, required: bool, signature: str) -> ApprovalView:
        """All of it, as anyone who may approve sees it."""
        plugin, approval, look = self._plugin, self._approval, self._look
        state, difference = state_of(approval), tuple[str, ...]()
        if approval is not None and approval.digest != look.digest:
            state = ApprovalState.CHANGED
            difference = differences(approval.facts, look.facts)
        listed = None if approval is None or state is ApprovalState.CHANGED else listed_of(plugin, approval)
        tools = () if approval is None or listed is None else self._tools(approval.pins, listed)
        said = _said(approval, listed)
        digest = look.digest if listed is None else whole_digest(look.digest, listed)
        isolation = {key: value for key, value in look.facts["isolation"].items() if key not in ("launcher", "tier")}
        return ApprovalView(
            plugin_id=plugin.id,
            state=state,
            digest=digest,
            required=required,
            pending=state is not ApprovalState.COMPLETE
            or bool(said)
            or any(tool.state in ("new", "changed") for tool in tools),
            command=command_view(look),
            manifest=look.facts["manifest"],
            tree=look.tree.digest,
            files=len(look.tree.entries),
            permissions=tuple(look.facts["permissions"]),
            launcher=look.launcher_name,
            tier="" if look.launcher is None else look.launcher.isolation.value,
            isolation=isolation,
            source=look.facts["source"],
            signature=signature,
            tools=tools,
            instructions=None if listed is None else listed.instructions,
            difference=difference + said,
            warnings=(*look.warnings, *hygiene.about_instructions(None if listed is None else listed.instructions)),
            approved_at=None if approval is None else _moment(approval.approved_at),
        )

    def _tools(self, pins: Pins | None, listed: Pins) -> tuple[ToolApproval, ...]:
        verdict = judge(pins or Pins(), list(listed.tools.values()), listed.instructions)
        shown = []
        for name, definition in sorted(listed.tools.items()):
            state = "approved" if name not in verdict.quarantined else "changed"
            if pins is None or name not in pins.tools:
                state = "new"
            difference = () if pins is None else verdict.quarantined.get(name, ())
            shown.append(self._tool(definition, state, difference))
        for name, definition in () if pins is None else sorted(pins.tools.items()):
            if name in verdict.missing:
                shown.append(self._tool(definition, "missing", ("approved, and no longer listed",)))
        return tuple(shown)

    def _tool(self, definition: JsonObject, state: str, difference: tuple[str, ...]) -> ToolApproval:
        """One tool as it would be registered; one that can't be is shown as far as it can."""
        try:
            (entry,) = self._admission.admit([definition], Nowhere(), frozenset(), whole=False)
        except BasculeError as error:
            name = tool_id(self._plugin.id, str(definition.get("name"))[:128])
            return ToolApproval(name, state, tool_digest(definition), difference=(*difference, f"refused: {error}"))
        tool = entry.tool
        return ToolApproval(
            name=tool.name,
            state=state,
            sha256=tool_digest(definition),
            description=tool.description,
            permission=tool.permission,
            visibility=tool.visibility.value,
            confirm=tool.confirm,
            groups=tuple(sorted(tool.groups)),
            difference=difference,
            flags=tuple(hygiene.flags_of(tool)),
        )


class Nowhere:
    """Where calls of tools that are only looked at would go."""

    generation = 0

    def prepare(self, *_: object) -> Outgoing:
        raise NotImplementedError


def listed_of(plugin: Installed, approval: Approval) -> Pins:
    """What the server lists, as far as it is known: now, at the one start, or when it was approved."""
    if approval.pins is None:
        return approval.seen or Pins()
    return plugin.listed or approval.seen or approval.pins


def state_of(approval: Approval | None) -> ApprovalState:
    """How far the owner came, whatever changed since."""
    if approval is None:
        return ApprovalState.NONE
    return ApprovalState.COMMAND if approval.pins is None else ApprovalState.COMPLETE


def _said(approval: Approval | None, listed: Pins | None) -> tuple[str, ...]:
    """How the server's instructions differ from those approved."""
    if approval is None or approval.pins is None or listed is None:
        return ()
    return judge(approval.pins, [], listed.instructions).instructions


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
