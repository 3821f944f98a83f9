"""The orders that a plugin takes: serialised for each plugin by its lock, parallel between plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...hookspecs import (
    ApprovalView,
    BasculeError,
    PluginAlreadyInstalled,
    PluginHostUnavailable,
    PluginNotFound,
    PluginPermissionUndeclared,
    PluginState,
    PluginView,
)
from ..admission import requested
from ..manifest import Manifest, load_manifest
from .house import House
from .installed import Installed, plugin_view
from .moves import Moves


class Plugins:
    """Every installed plugin and what becomes of it."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._moves = Moves(house)
        self._plugins: dict[str, Installed] = {}

    # --- reading --------------------------------------------------------------------------------------

    def list(self) -> Sequence[PluginView]:
        return [self._view(plugin) for _, plugin in sorted(self._plugins.items())]

    def get(self, plugin_id: str) -> PluginView:
        return self._view(self._find(plugin_id))

    def logs(self, plugin_id: str) -> str:
        host = self._find(plugin_id).host
        return "" if host is None else host.diagnostics.text()

    def why(self, plugin_id: str) -> BasculeError | None:
        """What went wrong last, with its diagnosis: for the owner."""
        return self._find(plugin_id).reason

    def _find(self, plugin_id: str) -> Installed:
        plugin = self._plugins.get(plugin_id)
        if plugin is None:
            raise PluginNotFound(f"no plugin {plugin_id!r} is installed", hint="list the plugins to see those that are")
        return plugin

    def _view(self, plugin: Installed) -> PluginView:
        return plugin_view(plugin, self._house.registry)

    # --- install and grant ----------------------------------------------------------------------------

    async def install(self, directory: Path, *, keep: bool = True) -> PluginView:
        """Read the manifest in ``directory``; no process starts. ``keep`` = remember it beyond this bridge."""
        manifest = await asyncio.to_thread(self._read_manifest, directory)
        present = self._plugins.get(manifest.id)
        if present is not None:
            raise PluginAlreadyInstalled(
                f"a plugin {manifest.id!r} is installed already, from {present.manifest.directory}",
                hint="uninstall it first, or give this one another id",
            )
        plugin = self._plugins[manifest.id] = Installed(manifest, keep)
        plugin.granted = self._house.store.grants(manifest.directory, manifest.digest) & requested(manifest)
        self._moves.look_at_grants(plugin)
        self._moves.save(plugin)
        return self._view(plugin)

    def _read_manifest(self, directory: Path) -> Manifest:
        lineup = self._house.lineup
        return load_manifest(
            directory,
            transports=lineup.client_transports,
            permissions=lineup.permissions,
            limits=self._house.limits,
        )

    async def grant(self, plugin_id: str, permissions: Iterable[str]) -> PluginView:
        plugin = self._find(plugin_id)
        granted = frozenset(permissions)
        undeclared = sorted(granted - requested(plugin.manifest))
        if undeclared:
            raise PluginPermissionUndeclared(
                f"{plugin_id} does not declare {', '.join(undeclared)}",
                hint=f"it declares {', '.join(sorted(requested(plugin.manifest)))}",
            )
        async with plugin.lock:
            if plugin.granted - granted:
                await self._moves.stop(plugin)
            plugin.granted = granted
            if plugin.kept:
                manifest = plugin.manifest
                self._house.store.set_grants(plugin_id, manifest.directory, manifest.digest, granted)
            self._moves.look_at_grants(plugin)
            self._moves.save(plugin)
        return self._view(plugin)

    # --- approve --------------------------------------------------------------------------------------

    async def approval(self, plugin_id: str) -> ApprovalView:
        plugin = self._find(plugin_id)
        return await self._moves.approving.view(plugin)

    async def approve(
        self, plugin_id: str, digest: str, *, tools: Iterable[str] | None = None, unsandboxed: bool = False
    ) -> ApprovalView:
        """Take the owner's yes; what it lets out of quarantine is registered at once."""
        plugin = self._find(plugin_id)
        async with plugin.lock:
            named = None if tools is None else tuple(tools)
            view = await self._moves.approving.approve(plugin, digest, named, unsandboxed)
            await self._moves.register_anew(plugin)
        return view

    # --- enable and disable ---------------------------------------------------------------------------

    async def enable(self, plugin_id: str) -> PluginView:
        """Start the host and register its tools; concurrent calls start one process (N4.1, N4.2.4)."""
        plugin = self._find(plugin_id)
        async with plugin.lock:
            if plugin.row.plugin is not PluginState.READY:
                await self._moves.stop(plugin)
                await self._moves.start(plugin)
        return self._view(plugin)

    async def disable(self, plugin_id: str) -> PluginView:
        """Withdraw the tools, end the host; a start that is under way is broken off."""
        plugin = self._find(plugin_id)
        self._moves.break_off_start(plugin)
        async with plugin.lock:
            plugin.enabled = False
            await self._moves.stop(plugin)
            self._moves.save(plugin)
        return self._view(plugin)

    async def restart(self, plugin_id: str) -> PluginView:
        """Stop and start a running or failed host; anything else starts by ``enable`` alone (N7.4)."""
        plugin = self._find(plugin_id)
        async with plugin.lock:
            if not plugin.row.restart:
                raise PluginHostUnavailable.refused(
                    f"{plugin_id} is {plugin.row.plugin.value.replace('_', ' ')}: there is no host to restart",
                    hint="enable the plugin instead",
                )
            await self._moves.stop(plugin)
            await self._moves.start(plugin)
        return self._view(plugin)

    async def uninstall(self, plugin_id: str) -> None:
        await self.disable(plugin_id)
        plugin = self._plugins.pop(plugin_id, None)
        if plugin is not None and plugin.kept:
            self._house.store.delete_plugin(plugin_id)

    async def shut_down(self) -> None:
        """Withdraw everything first, then end all hosts at once (N4.2.1); what was enabled stays so in the store."""
        for plugin_id in self._plugins:
            self._moves.withdraw(plugin_id)
        for plugin in self._plugins.values():
            self._moves.break_off_start(plugin)
        async with asyncio.TaskGroup() as group:
            for plugin in self._plugins.values():
                group.create_task(self._stop_for_good(plugin))

    async def _stop_for_good(self, plugin: Installed) -> None:
        async with plugin.lock:
            await self._moves.stop(plugin)
