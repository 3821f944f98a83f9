"""The owner's two questions (SEP-1024): may this command run, and may these tools be called?

Between them the server is started once, without grants and without a call, and ended again. What stands in the registry
is measured by what was approved, on every start and whenever the server announces other tools.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...hookspecs import (
    ApprovalOutdated,
    ApprovalState,
    ApprovalView,
    BasculeError,
    Isolation,
    JsonObject,
    LaunchPlan,
    PackageUnsafe,
    PluginContributionInvalid,
    TrustApprovalRequired,
)
from ..admission import Admission
from ..hosting import Host
from ..manifest import Manifest
from ..naming import tool_id
from ..trust import (
    INSTRUCTIONS,
    Approval,
    InFile,
    InState,
    Kept,
    Look,
    Looker,
    Pins,
    Signature,
    Signed,
    Verdict,
    differences,
    judge,
    verify,
)
from .approval import Nowhere, Shown, listed_of, state_of
from .hosts import Hosts
from .house import House
from .installed import Installed

log = logging.getLogger(__name__)

MOST_DEFINITIONS = 16 * 1024 * 1024
"""In bytes of JSON; two thousand tools of 8 KiB each."""

MOST_SEEN = 1024 * 1024
"""What a server lists instead is kept up to this, since it may change its mind every second."""

Quarantine = Mapping[str, tuple[str, ...]]
"""What is neither listed nor callable, and how it differs."""


class Approving:
    """Shows, asks and remembers."""

    def __init__(self, house: House, hosts: Hosts) -> None:
        self._house = house
        self._hosts = hosts
        self._looker = Looker(
            house.lineup.client_transports, hosts.launcher, hosts.plan, hosts.package_run, hosts.packages, house.state
        )
        reviewed = house.settings.approvals
        self._kept: Kept = InState(house.store) if reviewed is None else InFile(reviewed)

    @property
    def required(self) -> bool:
        """Whether a plugin needs an approval: outside environment ``development``."""
        return self._house.settings.environment != "development"

    async def forget(self, plugin_id: str) -> None:
        """Drop what was fetched for a plugin that is uninstalled; its approval went with its record."""
        await asyncio.to_thread(self._hosts.packages.forget, plugin_id)

    def grants(self, manifest: Manifest) -> frozenset[str]:
        """What was granted to the plugin with its approval."""
        return self._kept.grants(manifest) if self.required else frozenset()

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
        if self._house.settings.require_signature:
            await asyncio.to_thread(self._require_signature, plugin, look)
        plugin.pins = approval.pins
        return look.plan

    def sort(
        self, plugin: Installed, listed: Sequence[JsonObject], instructions: str | None
    ) -> tuple[Sequence[JsonObject], Quarantine]:
        """Return those of the listed tools that may be registered, and what is to be quarantined; may take a thread."""
        if plugin.pins is None:
            return listed, {}
        verdict = judge(plugin.pins, listed, instructions)
        seen, before = _bounded(plugin, Pins.of(listed, instructions)), plugin.listed
        plugin.listed = seen
        quarantined = _quarantined(plugin.id, verdict)
        if quarantined:
            names = ", ".join(sorted(quarantined)[:20])
            log.warning("%s: not as it was approved, and quarantined: %s (see bascule diff)", plugin.id, names)
        small = seen.size < MOST_SEEN
        if small and plugin.kept and quarantined and (before is None or before.digest != seen.digest):
            self._kept.see(plugin.manifest, seen)
        return verdict.approved, quarantined

    # --- the two questions ----------------------------------------------------------------------------

    async def view(self, plugin: Installed) -> ApprovalView:
        """All that the approval rests on, as it is now."""
        look = await self._look(plugin.manifest)
        return await asyncio.to_thread(self._view, plugin, self._known(plugin), look)

    async def approve(
        self, plugin: Installed, digest: str, tools: Sequence[str] | None, unsandboxed: bool
    ) -> ApprovalView:
        """Take a yes; whoever calls holds the plugin's lock."""
        look = await self._look(plugin.manifest)
        approval = self._known(plugin)
        now = await asyncio.to_thread(self._view, plugin, approval, look)
        if digest != now.digest:
            raise ApprovalOutdated(
                f"what was shown of {plugin.id} is not what would run now", hint="look at it again, and answer that"
            )
        if approval is None or now.state in (ApprovalState.NONE, ApprovalState.CHANGED):
            approval = await self._approve_command(plugin, look, unsandboxed)
        elif now.state is ApprovalState.COMMAND:
            approval = approval.with_tools(approval.seen or Pins(), time.time())
        else:
            approval = await self._release(plugin, approval, tools)
        self._kept.put(plugin.manifest, approval)
        if plugin.pins is not None:
            plugin.pins = approval.pins
        look = await self._look(plugin.manifest) if look.run is not None else look
        return await asyncio.to_thread(self._view, plugin, approval, look)

    async def _approve_command(self, plugin: Installed, look: Look, unsandboxed: bool) -> Approval:
        if self._house.settings.require_signature and self.required:
            await asyncio.to_thread(self._require_signature, plugin, look)
        free = look.launcher is not None and look.launcher.isolation is Isolation.NONE
        if free and self.required and not unsandboxed:
            raise ApprovalOutdated(
                f"{plugin.id} would run with all your rights: the launcher {look.launcher_name!r} isolates nothing",
                hint="choose a launcher that isolates, or say so expressly: bascule approve --unsandboxed",
            )
        if look.run is not None:
            await self._hosts.packages.fetch(plugin.id, look.run)
            look = await self._look(plugin.manifest)
        seen = await self._probe(plugin, look)
        return Approval(look.facts, None, seen, time.time())

    def _signature(self, plugin: Installed, look: Look) -> Signature:
        return verify(plugin.manifest.directory, look.tree.entries, self._house.settings.allowed_signers)

    def _require_signature(self, plugin: Installed, look: Look) -> None:
        signature = self._signature(plugin, look)
        if signature.state is not Signed.VALID:
            raise PackageUnsafe(
                f"{plugin.id} is not signed by a publisher that you trust; signature: {signature}",
                where=str(plugin.manifest.directory),
                hint="the setting require_signature demands it; see allowed_signers",
            )

    async def relist(self, plugin: Installed) -> None:
        """Start the server of an approved plugin once more to see what it lists now; no tool is registered."""
        await self.clear(plugin)
        if plugin.pins is not None:
            plugin.listed = await self._probe(plugin, await self._look(plugin.manifest), whole=False)
            tools = list(plugin.listed.tools.values())
            _, plugin.quarantined = await asyncio.to_thread(self.sort, plugin, tools, plugin.listed.instructions)

    async def _probe(self, plugin: Installed, look: Look, *, whole: bool = True) -> Pins:
        """Start the server once to see what it lists: nothing is granted, nothing called, nothing registered."""
        host = self._hosts.make(plugin, _ignore, look.plan)
        try:
            listed = await host.start()
            if whole:
                await asyncio.to_thread(self._admission(plugin.manifest).admit, listed, host, frozenset())
            return _bounded(plugin, Pins.of(listed, host.instructions))
        finally:
            await host.stop()

    async def _release(self, plugin: Installed, approval: Approval, tools: Sequence[str] | None) -> Approval:
        """Take ``tools`` out of quarantine, or all; unknown names are refused."""
        pins, listed = approval.pins or Pins(), listed_of(plugin, approval)
        waiting = _quarantined(plugin.id, judge(pins, list(listed.tools.values()), listed.instructions))
        wanted = set(waiting if tools is None else tools)
        unknown = sorted(wanted - waiting.keys())
        if unknown:
            raise ApprovalOutdated(
                f"{plugin.id} has no {', '.join(unknown)} in quarantine",
                hint=f"there are {', '.join(sorted(waiting)) or 'none'}",
            )
        names = {tool_id(plugin.id, name): name for name in listed.tools}
        added = {names[tool]: listed.tools[names[tool]] for tool in wanted if tool in names}
        await asyncio.to_thread(
            self._admission(plugin.manifest).admit, list(added.values()), Nowhere(), frozenset(), whole=False
        )
        said = listed.instructions if INSTRUCTIONS in wanted else pins.instructions
        released = Pins({**pins.tools, **added}, said)
        seen = listed if waiting.keys() - wanted else None
        return replace(approval, pins=released, seen=seen, approved_at=time.time())

    # --- how it shows ---------------------------------------------------------------------------------

    def _known(self, plugin: Installed) -> Approval | None:
        approval = self._kept.get(plugin.manifest)
        plugin.approval = state_of(approval)
        return approval

    async def _look(self, manifest: Manifest) -> Look:
        return await asyncio.to_thread(self._looker.look, manifest)

    def _admission(self, manifest: Manifest) -> Admission:
        return Admission(manifest, self._hosts.converter(), self._house.lineup.permissions)

    def _view(self, plugin: Installed, approval: Approval | None, look: Look) -> ApprovalView:
        shown = Shown(plugin, approval, look, self._admission(plugin.manifest))
        view = shown.view(required=self.required, signature=str(self._signature(plugin, look)))
        plugin.approval = view.state
        return view


def _bounded(plugin: Installed, pins: Pins) -> Pins:
    """What is kept and compared has its bound."""
    if (size := pins.size) > MOST_DEFINITIONS:
        raise PluginContributionInvalid(
            f"{plugin.id} lists definitions of {size >> 20} MiB, more than {MOST_DEFINITIONS >> 20} MiB",
            hint="fewer tools, or shorter definitions",
        )
    return pins


def _quarantined(plugin_id: str, verdict: Verdict) -> dict[str, tuple[str, ...]]:
    named = {tool_id(plugin_id, name): lines for name, lines in verdict.quarantined.items()}
    return {**named, INSTRUCTIONS: verdict.instructions} if verdict.instructions else named


def _refused(plugin: Installed, why: str, difference: tuple[str, ...] = ()) -> TrustApprovalRequired:
    told = f": {'; '.join(difference[:3])}" if difference else ""
    more = f" and {len(difference) - 3} more" if len(difference) > 3 else ""
    target = plugin.id if plugin.kept else plugin.manifest.directory
    return TrustApprovalRequired(
        f"{plugin.id} {why}{told}{more}",
        hint=f"outside environment development only what was approved runs: bascule approve {target}; "
        "for a trial, --dev lets it run with all your rights",
        difference=difference,
    )


def _ignore(plugin: Installed, host: Host, error: BasculeError, changed: bool) -> None:
    """A server that is only looked at may go whenever it likes."""
