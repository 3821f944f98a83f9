"""A plugin's moves from state to state: start, stop, and the loss of its server.

Whoever calls holds the plugin's lock; only a plugin that goes down on its own account (its server is lost) takes none:
its tools leave the registry in that very turn of the loop. What each move makes of a plugin stands in ``core/states``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from ...hookspecs import (
    BasculeError,
    HostChanged,
    JsonObject,
    LaunchPlan,
    PluginHostUnavailable,
    PluginPermissionRequired,
    PluginState,
    ToolsChanged,
)
from ..admission import Admission, requested
from ..hosting import Host
from ..registry import Entry
from ..states import Happening, after, possible
from .approving import Approving
from .hosts import Hosts
from .house import House
from .installed import Installed

log = logging.getLogger(__name__)


class Moves:
    """Moves plugins and keeps what becomes of them."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._hosts = Hosts(house)
        self.approving = Approving(house, self._hosts)

    # --- start ----------------------------------------------------------------------------------------

    async def start(self, plugin: Installed) -> None:
        """Take the steps of N4.1; any that fails leaves nothing half-enabled."""
        manifest = plugin.manifest
        cleared = await self._admit_to_start(plugin)
        plugin.enabled = True
        plugin.generation += 1
        self._move(plugin, Happening.START)
        try:
            self._house.registry.check_free(manifest.id, list(manifest.tools))
            host = plugin.host = self._hosts.make(
                plugin, self._lost, cleared, None if plugin.pins is None else self._relisted
            )
            listed = await host.start()
            try:
                await self._register(plugin, host, listed)
            except BaseException:
                await host.stop()
                raise
        except BasculeError as error:
            self._move(plugin, Happening.START_FAILED, error)
            raise
        except BaseException:
            self._move(
                plugin, Happening.START_FAILED, PluginHostUnavailable(f"the start of {manifest.id} was broken off")
            )
            raise
        finally:
            self.save(plugin)

    async def _admit_to_start(self, plugin: Installed) -> LaunchPlan | None:
        """The approval comes before everything else (N6.9), then the grants (N4.1.1); returns what may be started."""
        try:
            cleared = await self.approving.clear(plugin)
            plugin.keeping = await self._hosts.keeping(plugin.manifest)
        except BasculeError as error:
            plugin.reason = error
            raise
        missing = requested(plugin.manifest) - plugin.granted
        if missing:
            plugin.reason = _grants_missing(plugin.id, missing)
            raise plugin.reason
        return cleared

    async def _register(self, plugin: Installed, host: Host, listed: Sequence[JsonObject]) -> None:
        admission = Admission(plugin.manifest, self._hosts.converter(), self._house.lineup.permissions)
        may, quarantined = await asyncio.to_thread(self.approving.sort, plugin, listed, host.instructions)
        whole = plugin.pins is None
        entries = await asyncio.to_thread(admission.admit, may, host, plugin.granted, whole=whole)
        if plugin.row.plugin is PluginState.READY and _same(entries, self._house.registry.of(plugin.id)):
            plugin.quarantined = quarantined
            return
        host.admitted()
        self._house.registry.replace(plugin.id, entries)
        plugin.quarantined = quarantined
        if plugin.row.plugin is not PluginState.READY:
            self._move(plugin, Happening.STARTED)
        self._tell_tools(plugin.id)

    async def register_anew(self, plugin: Installed) -> None:
        """Measure what a running server lists by what is approved now."""
        if plugin.row.plugin is PluginState.READY and plugin.host is not None and plugin.listed is not None:
            await self._register(plugin, plugin.host, list(plugin.listed.tools.values()))

    async def _relisted(self, plugin: Installed, host: Host, listed: Sequence[JsonObject]) -> None:
        """The server of an approved plugin announced other tools: no call in flight notices (N4.2.3)."""
        async with plugin.lock:
            if plugin.host is host and plugin.row.plugin is PluginState.READY:
                await self._register(plugin, host, listed)

    # --- stop -----------------------------------------------------------------------------------------

    async def stop(self, plugin: Installed) -> None:
        """Where it runs: tools first, then the process (N4.2.1)."""
        if not possible(plugin.row.plugin, Happening.STOP):
            return
        self.withdraw(plugin.id)
        self._move(plugin, Happening.STOP)
        if plugin.host is not None:
            await plugin.host.stop()
        plugin.host = None
        self._move(plugin, Happening.STOPPED)

    def break_off_start(self, plugin: Installed) -> None:
        """Make a start that is under way fail; takes no lock, since the start holds it."""
        if plugin.row.plugin is PluginState.ENABLING and plugin.host is not None:
            plugin.host.give_up()

    def withdraw(self, plugin_id: str) -> None:
        """Take the plugin's tools out of the registry."""
        if self._house.registry.withdraw(plugin_id):
            self._tell_tools(plugin_id)

    def _lost(self, plugin: Installed, host: Host, error: BasculeError, changed: bool) -> None:
        """The server of a ready plugin is gone, or its tools are others now (N4.2.2, N4.2.3)."""
        if plugin.host is not host or plugin.row.plugin is not PluginState.READY:
            return
        self.withdraw(plugin.id)
        self._move(plugin, Happening.LIST_CHANGED if changed else Happening.SERVER_LOST, error)
        self.save(plugin)

    # --- what becomes of it ---------------------------------------------------------------------------

    async def look_at_isolation(self, plugin: Installed) -> None:
        """Say who would start the server and how it would be kept; whatever forbids that is said at the start."""
        with suppress(BasculeError):
            plugin.keeping = await self._hosts.keeping(plugin.manifest)

    def look_at_grants(self, plugin: Installed, *, changed: bool = False) -> None:
        """Let a plugin that does not run wait for the grants that it lacks, or no longer wait.

        ``changed`` = since its manifest has.
        """
        if not possible(plugin.row.plugin, Happening.GRANTS_COMPLETE):
            return
        missing = requested(plugin.manifest) - plugin.granted
        if missing:
            self._move(plugin, Happening.GRANTS_MISSING, _grants_missing(plugin.id, missing, changed=changed))
        else:
            self._move(plugin, Happening.GRANTS_COMPLETE)

    def learn(self, plugin: Installed) -> None:
        """Know the secrets in what its server will be given, before anything of it is kept or told."""
        self._hosts.learn(plugin.manifest)

    def save(self, plugin: Installed, grants: Iterable[str] | None = None) -> None:
        """Keep the plugin's record, where it is to be kept; with ``grants``, these too, in one step."""
        if plugin.kept:
            record = plugin.record()
            text = self._house.redactor.redact(record.manifest)
            self._house.store.save_plugin(replace(record, manifest=text), grants)

    def _move(self, plugin: Installed, happening: Happening, reason: BasculeError | None = None) -> None:
        plugin.row = after(plugin.row.plugin, happening)
        plugin.reason = reason
        if reason is not None:
            self._house.redactor.redact_error(reason)  # it is kept and told to everyone from here on
        shown = None if reason is None else str(reason)
        log.info("%s: %s, now %s", plugin.id, happening.value, plugin.row.plugin.value)
        self._house.events.publish(HostChanged(plugin.id, plugin.row.plugin.value, plugin.row.host.value, shown))

    def _tell_tools(self, plugin_id: str) -> None:
        names = tuple(entry.tool.name for entry in self._house.registry.of(plugin_id))
        self._house.events.publish(ToolsChanged(plugin_id, names))


def _same(new: Sequence[Entry], old: Sequence[Entry]) -> bool:
    by_name = {entry.tool.name: entry.tool for entry in old}
    return by_name == {entry.tool.name: entry.tool for entry in new}


def _grants_missing(plugin_id: str, missing: Iterable[str], *, changed: bool = False) -> PluginPermissionRequired:
    names = ", ".join(sorted(missing))
    why = "has another manifest than it was installed with, and" if changed else "has"
    return PluginPermissionRequired(f"{plugin_id} {why} not been granted {names}", hint=f"grant {names} to {plugin_id}")
