"""The owner's two questions (SEP-1024): may this command run, and may these tools be called?

Between them the server is started once, without grants and without a call, and ended again. What stands in the registry
is measured by what was approved, on every start and whenever the server announces other tools.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ...hookspecs import (
    ApprovalOutdated,
    ApprovalState,
    ApprovalView,
    CommandView,
    Isolation,
    JsonObject,
    LaunchPlan,
    ToolApproval,
    TrustApprovalRequired,
)
from ..admission import Admission
from ..hosting import Host
from ..manifest import Manifest
from ..registry import Entry
from ..trust import (
    INSTRUCTIONS,
    Approval,
    InState,
    Kept,
    Look,
    Looker,
    Pins,
    Verdict,
    differences,
    judge,
    tool_digest,
    whole_digest,
)
from .hosts import Hosts
from .house import House
from .installed import Installed


class Approving:
    """Shows, asks and remembers."""

    def __init__(self, house: House, hosts: Hosts) -> None:
        self._house = house
        self._hosts = hosts
        self._looker = Looker(house.lineup.client_transports, hosts.launcher, hosts.plan, house.state)
        self._kept: Kept = InState(house.store)

    @property
    def required(self) -> bool:
        """Whether a plugin needs an approval: outside environment ``development``."""
        return self._house.settings.environment != "development"

    # --- before a start -------------------------------------------------------------------------------

    async def clear(self, plugin: Installed) -> LaunchPlan | None:
        """Let a start pass: return the plan that was approved, ``None`` where none is needed or nothing is started.

        Raises ``TrustApprovalRequired`` with the difference; no process was created then.
        """
        plugin.pins = None
        if not self.required:
            return None
        approval = self._known(plugin)
        if approval is None:
            raise _refused(plugin, "has not been approved")
        look = await self._look(plugin.manifest)
        if look.digest != approval.digest:
            plugin.approval = ApprovalState.CHANGED
            raise _refused(plugin, "is not what was approved", differences(approval.facts, look.facts))
        if approval.pins is None:
            raise _refused(plugin, "runs a command that was approved; its tools were not yet")
        plugin.pins = approval.pins
        return look.plan

    def sort(self, plugin: Installed, listed: Sequence[JsonObject], instructions: str | None) -> Sequence[JsonObject]:
        """Return those of the listed tools that may be registered; the others are quarantined (see ``Verdict``)."""
        if plugin.pins is None:
            plugin.quarantined = {}
            return listed
        verdict = judge(plugin.pins, listed, instructions)
        plugin.listed = Pins.of(listed, instructions)
        plugin.quarantined = _quarantined(plugin.id, verdict)
        return verdict.approved

    # --- the two questions ----------------------------------------------------------------------------

    async def view(self, plugin: Installed) -> ApprovalView:
        """All that the approval rests on, as it is now."""
        look = await self._look(plugin.manifest)
        return self._view(plugin, self._known(plugin), look)

    async def approve(
        self, plugin: Installed, digest: str, tools: Sequence[str] | None, unsandboxed: bool
    ) -> ApprovalView:
        """Take a yes; whoever calls holds the plugin's lock."""
        look = await self._look(plugin.manifest)
        approval = self._known(plugin)
        now = self._view(plugin, approval, look)
        if digest != now.digest:
            raise ApprovalOutdated(
                f"what was shown of {plugin.id} is not what would run now", hint="look at it again, and answer that"
            )
        if approval is None or now.state in (ApprovalState.NONE, ApprovalState.CHANGED):
            approval = await self._approve_command(plugin, look, unsandboxed)
        elif now.state is ApprovalState.COMMAND:
            approval = approval.with_tools(approval.seen or Pins(), time.time())
        else:
            approval = self._release(plugin, approval, tools)
        self._kept.put(plugin.manifest, approval)
        return self._view(plugin, approval, look)

    async def _approve_command(self, plugin: Installed, look: Look, unsandboxed: bool) -> Approval:
        if look.plan is not None and look.launcher.isolation is Isolation.NONE and self.required and not unsandboxed:
            raise ApprovalOutdated(
                f"{plugin.id} would run with all your rights: the launcher {look.launcher.name!r} isolates nothing",
                hint="choose a launcher that isolates, or say so expressly: bascule approve --unsandboxed",
            )
        seen = await self._probe(plugin, look)
        return Approval(look.facts, None, seen, time.time())

    async def _probe(self, plugin: Installed, look: Look) -> Pins:
        """Start the server once to see what it lists: nothing is granted, nothing called, nothing registered."""
        host = self._hosts.make(plugin, _ignore, look.plan)
        try:
            listed = await host.start()
            admission = self._admission(plugin.manifest)
            await asyncio.to_thread(admission.admit, listed, host, frozenset())
            return Pins.of(listed, host.instructions)
        finally:
            await host.stop()

    def _release(self, plugin: Installed, approval: Approval, tools: Sequence[str] | None) -> Approval:
        """Take ``tools`` out of quarantine, or all; unknown names are refused."""
        wanted = set(plugin.quarantined if tools is None else tools)
        unknown = sorted(wanted - plugin.quarantined.keys())
        if unknown:
            raise ApprovalOutdated(
                f"{plugin.id} has no {', '.join(unknown)} in quarantine",
                hint=f"there are {', '.join(sorted(plugin.quarantined)) or 'none'}",
            )
        pins, listed = approval.pins or Pins(), plugin.listed or Pins()
        names = {f"{plugin.id}.{name}": name for name in listed.tools}
        added = {names[tool]: listed.tools[names[tool]] for tool in wanted if tool in names}
        said = listed.instructions if INSTRUCTIONS in wanted else pins.instructions
        return replace(approval, pins=Pins({**pins.tools, **added}, said), approved_at=time.time())

    # --- how it shows ---------------------------------------------------------------------------------

    def _known(self, plugin: Installed) -> Approval | None:
        approval = self._kept.get(plugin.manifest)
        plugin.approval = _state(approval)
        return approval

    async def _look(self, manifest: Manifest) -> Look:
        return await asyncio.to_thread(self._looker.look, manifest)

    def _admission(self, manifest: Manifest) -> Admission:
        return Admission(manifest, self._hosts.converter(), self._house.lineup.permissions)
