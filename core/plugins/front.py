"""The orders that a plugin takes: serialised for each plugin by its lock, parallel between plugins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ...hookspecs import (
    ApprovalView,
    BasculeError,
    ManifestInvalid,
    PluginAlreadyInstalled,
    PluginHostUnavailable,
    PluginNotFound,
    PluginPermissionRequired,
    PluginPermissionUndeclared,
    PluginState,
    PluginView,
    StateUnavailable,
)
from ..admission import requested
from ..manifest import Manifest, load_manifest
from ..store import PluginRecord
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

    @asynccontextmanager
    async def _hold(self, plugin_id: str) -> AsyncIterator[Installed]:
        """Wait for the plugin's turn; it may have been uninstalled before that comes."""
        plugin = self._find(plugin_id)
        async with plugin.lock:
            if self._plugins.get(plugin_id) is not plugin:
                self._find(plugin_id)  # says that there is none; another may have been installed instead
                raise PluginNotFound(f"{plugin_id} was uninstalled meanwhile", hint="try again")
            yield plugin

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
        plugin = Installed(manifest, keep)
        self._moves.learn(plugin)
        plugin.granted = self._grants_of(manifest)
        self._moves.look_at_grants(plugin)
        self._moves.save(plugin)
        await self._moves.look_at_isolation(plugin)
        self._plugins[manifest.id] = plugin
        return self._view(plugin)

    async def bring_back(self, record: PluginRecord, *, keep: bool = True) -> bool:
        """Install what an earlier bridge had installed; returns whether it was enabled, and may be started.

        A changed manifest waits for grants anew (N3.5); one that can't be read any more is kept, with the reason.
        """
        try:
            manifest = await asyncio.to_thread(self._read_manifest, record.directory)
            _check_same(record.plugin_id, manifest)
        except BasculeError as error:
            self._plugins[record.plugin_id] = Installed.unreadable(record, error, kept=keep)
            return False
        changed = manifest.digest != record.digest
        enabled = record.enabled and not changed
        plugin = Installed(manifest, keep, enabled=enabled, installed_at=record.installed_at)
        self._moves.learn(plugin)
        plugin.granted = self._grants_of(manifest)
        self._moves.look_at_grants(plugin, changed=changed)
        if changed:
            self._moves.save(plugin)
        await self._moves.look_at_isolation(plugin)
        self._plugins[plugin.id] = plugin
        return enabled and plugin.row.plugin is PluginState.DISABLED

    async def _look_again(self, plugin: Installed) -> bool:
        """Read the manifest anew; returns whether it is another, which nothing was granted to yet.

        Raises what is wrong with it.
        """
        try:
            manifest = await asyncio.to_thread(self._read_manifest, plugin.manifest.directory)
            _check_same(plugin.id, manifest)
        except BasculeError as error:
            if plugin.row.plugin is not PluginState.READY:
                plugin.reason = error
            raise
        if manifest.digest == plugin.manifest.digest and plugin.manifest.transport:
            if plugin.kept and plugin.row.plugin is not PluginState.READY:  # another process may have granted more
                plugin.granted = self._grants_of(manifest)
                self._moves.look_at_grants(plugin)
            return False
        await self._moves.stop(plugin)
        changed = manifest.digest != plugin.manifest.digest
        plugin.enabled = plugin.enabled and not changed
        plugin.manifest = manifest
        self._moves.learn(plugin)
        plugin.granted = self._grants_of(manifest)
        self._moves.look_at_grants(plugin, changed=changed)
        self._moves.save(plugin)
        return changed

    def _grants_of(self, manifest: Manifest) -> frozenset[str]:
        granted = self._house.store.grants(manifest.directory, manifest.digest)
        return (granted | self._moves.approving.grants(manifest)) & requested(manifest)

    def _read_manifest(self, directory: Path) -> Manifest:
        lineup = self._house.lineup
        try:
            return load_manifest(
                directory,
                transports=lineup.client_transports,
                permissions=lineup.permissions,
                limits=self._house.limits,
            )
        except BasculeError as error:
            self._house.redactor.redact_error(error)  # it quotes the file
            raise

    async def grant(self, plugin_id: str, permissions: Iterable[str]) -> PluginView:
        granted = frozenset(permissions)
        async with self._hold(plugin_id) as plugin:
            # Taking away must always be possible, whatever has become of the directory.
            added = granted - plugin.granted
            if added and await self._look_again(plugin) and plugin.reason is not None:
                raise PluginPermissionRequired(
                    f"the manifest of {plugin_id} has changed meanwhile",
                    hint="look at what it asks for, and grant again",
                )
            undeclared = sorted(granted - requested(plugin.manifest))
            if undeclared:
                raise PluginPermissionUndeclared(
                    f"{plugin_id} does not declare {', '.join(undeclared)}",
                    hint=f"it declares {', '.join(sorted(requested(plugin.manifest)))}",
                )
            if plugin.granted - granted:
                await self._moves.stop(plugin)
                plugin.enabled = False
            before, plugin.granted = plugin.granted, granted
            try:
                self._moves.save(plugin, granted)
            except StateUnavailable:
                plugin.granted = before & granted
                raise
            self._moves.look_at_grants(plugin)
            return self._view(plugin)

    # --- approve --------------------------------------------------------------------------------------

    async def approval(self, plugin_id: str) -> ApprovalView:
        plugin = self._find(plugin_id)
        if plugin.row.plugin is not PluginState.READY and not plugin.lock.locked():
            async with self._hold(plugin_id):
                await self._look_again(plugin)
        return await self._moves.approving.view(plugin)

    async def approve(
        self, plugin_id: str, digest: str, *, tools: Iterable[str] | None = None, unsandboxed: bool = False
    ) -> ApprovalView:
        """Take the owner's yes; what it lets out of quarantine is registered at once."""
        async with self._hold(plugin_id) as plugin:
            await self._look_again(plugin)
            named = None if tools is None else tuple(tools)
            view = await self._moves.approving.approve(plugin, digest, named, unsandboxed)
            await self._moves.register_anew(plugin)
            if more := self._moves.approving.grants(plugin.manifest) - plugin.granted:
                plugin.granted |= more
                self._moves.look_at_grants(plugin)
        return view

    async def relist(self, plugin_id: str) -> None:
        """See what the server of an approved plugin lists now, where it does not run: it is started once for that."""
        plugin = self._find(plugin_id)
        async with plugin.lock:
            if plugin.row.plugin is not PluginState.READY:
                await self._moves.approving.relist(plugin)

    # --- enable and disable ---------------------------------------------------------------------------

    async def enable(self, plugin_id: str) -> PluginView:
        """Start the host and register its tools; concurrent calls start one process (N4.1, N4.2.4)."""
        async with self._hold(plugin_id) as plugin:
            if plugin.row.plugin is not PluginState.READY:
                await self._look_again(plugin)
                await self._moves.stop(plugin)
                await self._moves.start(plugin)
            return self._view(plugin)

    async def disable(self, plugin_id: str) -> PluginView:
        """Withdraw the tools, end the host; a start that is under way is broken off."""
        self._moves.break_off_start(self._find(plugin_id))
        async with self._hold(plugin_id) as plugin:
            plugin.enabled = False
            await self._moves.stop(plugin)
            self._moves.save(plugin)
            return self._view(plugin)

    async def restart(self, plugin_id: str) -> PluginView:
        """Stop and start a running or failed host; anything else starts by ``enable`` alone (N7.4)."""
        async with self._hold(plugin_id) as plugin:
            if not plugin.row.restart:
                raise PluginHostUnavailable.refused(
                    f"{plugin_id} is {plugin.row.plugin.value.replace('_', ' ')}: there is no host to restart",
                    hint="enable the plugin instead",
                )
            await self._look_again(plugin)
            await self._moves.stop(plugin)
            await self._moves.start(plugin)
            return self._view(plugin)

    async def uninstall(self, plugin_id: str) -> None:
        self._moves.break_off_start(self._find(plugin_id))
        async with self._hold(plugin_id) as plugin:
            plugin.enabled = False
            await self._moves.stop(plugin)
            if plugin.kept:
                self._house.store.delete_plugin(plugin_id)
                await self._moves.approving.forget(plugin_id)
            del self._plugins[plugin_id]

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


def _check_same(plugin_id: str, manifest: Manifest) -> None:
    if manifest.id != plugin_id:
        raise ManifestInvalid(
            f"its id is {manifest.id} now and was {plugin_id} when it was installed",
            where=str(manifest.path),
            hint=f"uninstall {plugin_id} and install it anew, or give it its id back",
        )
