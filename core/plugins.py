"""The life of plugins: install, grant, enable, disable, restart, uninstall (N3.5, N4).

Serialised for each plugin by its lock, parallel between plugins. What each step makes of a plugin stands in
:mod:`.states`. A plugin that goes down on its own account (its server is lost) takes no lock: its tools leave the
registry in that very turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ..hookspecs import (
    BasculeError,
    Child,
    ClientTransport,
    HookPluginBroken,
    HostChanged,
    HostView,
    Isolation,
    JsonObject,
    Launcher,
    LaunchRequest,
    Limits,
    PluginAlreadyInstalled,
    PluginHostUnavailable,
    PluginNotFound,
    PluginPermissionRequired,
    PluginPermissionUndeclared,
    PluginState,
    PluginView,
    SettingsInvalid,
    ToolConverter,
    ToolsChanged,
    TrustApprovalRequired,
)
from .admission import Admission, requested
from .events import Events
from .hosting import Host, HostSpec
from .launching import Planner
from .lineup import Lineup
from .manifest import Manifest, load_manifest
from .redaction import Redactor
from .registry import Registry
from .settings import Settings
from .states import START_ROW, Happening, Row, after, possible
from .store import PluginRecord, Store

log = logging.getLogger(__name__)

_DIALECT = "mcp"


@dataclass(slots=True, eq=False)
class _Plugin:
    """One installed plugin. ``kept`` = its record outlives this bridge."""

    manifest: Manifest
    kept: bool
    row: Row = START_ROW
    reason: BasculeError | None = None
    granted: frozenset[str] = frozenset()
    host: Host | None = None
    generation: int = 0
    enabled: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class House:
    """What the plugins live on."""

    settings: Settings
    lineup: Lineup
    store: Store
    registry: Registry
    events: Events
    planner: Planner
    redactor: Redactor
    version: str

    @property
    def limits(self) -> Limits:
        return self.settings.limits


class Plugins:
    """Every installed plugin and what becomes of it."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._plugins: dict[str, _Plugin] = {}

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

    def _find(self, plugin_id: str) -> _Plugin:
        plugin = self._plugins.get(plugin_id)
        if plugin is None:
            raise PluginNotFound(f"no plugin {plugin_id!r} is installed", hint="list the plugins to see those that are")
        return plugin

    def _view(self, plugin: _Plugin) -> PluginView:
        manifest = plugin.manifest
        return PluginView(
            plugin_id=manifest.id,
            name=manifest.name,
            version=manifest.version,
            directory=manifest.directory,
            state=plugin.row.plugin,
            reason=None if plugin.reason is None else str(plugin.reason),
            permissions=tuple(sorted(requested(manifest))),
            granted=tuple(sorted(plugin.granted)),
            tools=tuple(sorted(entry.tool.name for entry in self._house.registry.of(manifest.id))),
            restart_allowed=plugin.row.restart,
            host=self._host_view(plugin),
        )

    def _host_view(self, plugin: _Plugin) -> HostView:
        host = plugin.host
        upstream = None if host is None else host.upstream
        info = None if upstream is None else upstream.info
        return HostView(
            plugin_id=plugin.manifest.id,
            backend_type=plugin.manifest.backend_type,
            transport=plugin.manifest.transport,
            status=plugin.row.host,
            tools_count=len(self._house.registry.of(plugin.manifest.id)),
            started_at=_moment(None if host is None else host.started_at),
            last_seen_at=_moment(None if upstream is None else upstream.last_seen),
            protocol_version=None if info is None else info.protocol_version,
            server_name=None if info is None else info.name,
            server_version=None if info is None else info.version,
            error=None if plugin.reason is None else plugin.reason.as_dict(),
        )

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
        plugin = self._plugins[manifest.id] = _Plugin(manifest, keep)
        plugin.granted = self._house.store.grants(manifest.directory, manifest.digest) & requested(manifest)
        self._look_at_grants(plugin)
        self._save(plugin)
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
            taken = plugin.granted - granted
            if taken and possible(plugin.row.plugin, Happening.STOP):
                await self._stop(plugin)
            plugin.granted = granted
            if plugin.kept:
                manifest = plugin.manifest
                self._house.store.set_grants(plugin_id, manifest.directory, manifest.digest, granted)
            if possible(plugin.row.plugin, Happening.GRANTS_COMPLETE):
                self._look_at_grants(plugin)
            self._save(plugin)
        return self._view(plugin)

    def _look_at_grants(self, plugin: _Plugin) -> None:
        missing = requested(plugin.manifest) - plugin.granted
        if missing:
            self._move(plugin, Happening.GRANTS_MISSING, _grants_missing(plugin.manifest.id, missing))
        else:
            self._move(plugin, Happening.GRANTS_COMPLETE)

    # --- enable and disable ---------------------------------------------------------------------------

    async def enable(self, plugin_id: str) -> PluginView:
        """Start the host and register its tools; concurrent calls start one process (N4.1, N4.2.4)."""
        plugin = self._find(plugin_id)
        async with plugin.lock:
            if plugin.row.plugin is not PluginState.READY:
                if possible(plugin.row.plugin, Happening.STOP):
                    await self._stop(plugin)
                await self._start(plugin)
        return self._view(plugin)

    async def disable(self, plugin_id: str) -> PluginView:
        """Withdraw the tools, end the host; a start that is under way is broken off."""
        plugin = self._find(plugin_id)
        self._break_off_start(plugin)
        async with plugin.lock:
            plugin.enabled = False
            if possible(plugin.row.plugin, Happening.STOP):
                await self._stop(plugin)
            self._save(plugin)
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
            await self._stop(plugin)
            await self._start(plugin)
        return self._view(plugin)

    async def uninstall(self, plugin_id: str) -> None:
        await self.disable(plugin_id)
        plugin = self._plugins.pop(plugin_id, None)
        if plugin is not None and plugin.kept:
            self._house.store.delete_plugin(plugin_id)

    async def shut_down(self) -> None:
        """Withdraw everything first, then end all hosts at once (N4.2.1); what was enabled stays so in the store."""
        for plugin_id in self._plugins:
            self._withdraw(plugin_id)
        for plugin in self._plugins.values():
            self._break_off_start(plugin)
        async with asyncio.TaskGroup() as group:
            for plugin in self._plugins.values():
                group.create_task(self._stop_for_good(plugin))

    async def _stop_for_good(self, plugin: _Plugin) -> None:
        async with plugin.lock:
            if possible(plugin.row.plugin, Happening.STOP):
                await self._stop(plugin)

    def _break_off_start(self, plugin: _Plugin) -> None:
        if plugin.row.plugin is PluginState.ENABLING and plugin.host is not None:
            plugin.host.give_up()

    async def _start(self, plugin: _Plugin) -> None:
        """Take the steps of N4.1; any that fails leaves nothing half-enabled."""
        manifest = plugin.manifest
        self._admit_to_start(plugin)
        plugin.enabled = True
        plugin.generation += 1
        self._move(plugin, Happening.START)
        try:
            self._house.registry.check_free(manifest.id, list(manifest.tools))
            host = plugin.host = self._host(plugin)
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
            self._save(plugin)

    def _admit_to_start(self, plugin: _Plugin) -> None:
        """The environment gate comes before everything else (N6.9), then the grants (N4.1.1)."""
        manifest = plugin.manifest
        try:
            self._check_trust(manifest, self._transport(manifest), self._launcher(manifest.id))
        except BasculeError as error:
            plugin.reason = error
            raise
        missing = requested(manifest) - plugin.granted
        if missing:
            raise _grants_missing(manifest.id, missing)

    async def _register(self, plugin: _Plugin, host: Host, listed: Sequence[JsonObject]) -> None:
        admission = Admission(plugin.manifest, self._converter(), self._house.lineup.permissions)
        entries = await asyncio.to_thread(admission.admit, listed, host, plugin.granted)
        host.admitted()
        self._house.registry.replace(plugin.manifest.id, entries)
        self._move(plugin, Happening.STARTED)
        self._tell_tools(plugin.manifest.id)

    async def _stop(self, plugin: _Plugin) -> None:
        """Tools first, then the process (N4.2.1)."""
        self._withdraw(plugin.manifest.id)
        self._move(plugin, Happening.STOP)
        if plugin.host is not None:
            await plugin.host.stop()
        plugin.host = None
        self._move(plugin, Happening.STOPPED)

    def _lost(self, plugin: _Plugin, host: Host, error: BasculeError, changed: bool) -> None:
        """The server of a ready plugin is gone, or its tools are others now (N4.2.2, N4.2.3)."""
        if plugin.host is not host or plugin.row.plugin is not PluginState.READY:
            return
        self._withdraw(plugin.manifest.id)
        self._move(plugin, Happening.LIST_CHANGED if changed else Happening.SERVER_LOST, error)
        self._save(plugin)

    # --- what a host is made from ---------------------------------------------------------------------

    def _host(self, plugin: _Plugin) -> Host:
        manifest = plugin.manifest
        spec = HostSpec(
            manifest,
            self._transport(manifest),
            self._converter(),
            self._launch_for(manifest),
            self._house.limits,
            self._house.version,
            self._house.redactor.redact,
        )

        def on_lost(host: Host, error: BasculeError, changed: bool) -> None:
            self._lost(plugin, host, error, changed)

        return Host(spec, plugin.generation, on_lost)

    def _transport(self, manifest: Manifest) -> ClientTransport:
        return self._house.lineup.client_transports[manifest.transport]

    def _converter(self) -> ToolConverter:
        converter = self._house.lineup.converters.get(_DIALECT)
        if converter is None:
            raise HookPluginBroken(
                f"no converter for the dialect {_DIALECT!r} is there, so no plugin can be enabled",
                hint="turn the hook plugin mcp_converter on again; see bascule hooks",
            )
        return converter

    def _launcher(self, plugin_id: str) -> Launcher:
        settings, launchers = self._house.settings, self._house.lineup.launchers
        name = settings.launchers.get(plugin_id, settings.launcher)
        if name not in launchers:
            raise SettingsInvalid(
                f"there is no launcher {name!r}",
                where="launcher",
                hint=f"there are {', '.join(sorted(launchers)) or 'none'}; see bascule hooks",
            )
        return launchers[name]

    def _check_trust(self, manifest: Manifest, transport: ClientTransport, launcher: Launcher) -> None:
        if transport.starts_process:
            self._check_isolation(manifest.id, launcher)

    def _check_isolation(self, plugin_id: str, launcher: Launcher) -> None:
        """Outside development nothing runs with the bridge's own rights (N6.9)."""
        if self._house.settings.environment != "development" and launcher.isolation is Isolation.NONE:
            raise TrustApprovalRequired(
                f"{plugin_id} would run with all your rights: the launcher {launcher.name!r} isolates nothing",
                hint="outside environment development that is refused; for a trial, --dev lets it run",
            )

    def _launch_for(self, manifest: Manifest) -> Callable[[LaunchRequest], Awaitable[Child]]:
        async def launch(request: LaunchRequest) -> Child:
            launcher = self._launcher(manifest.id)
            self._check_isolation(manifest.id, launcher)
            plan = self._house.planner.plan(request, self._house.limits)
            return await launcher.launch(plan)

        return launch

    # --- moving ---------------------------------------------------------------------------------------

    def _withdraw(self, plugin_id: str) -> None:
        if self._house.registry.withdraw(plugin_id):
            self._tell_tools(plugin_id)

    def _tell_tools(self, plugin_id: str) -> None:
        names = tuple(entry.tool.name for entry in self._house.registry.of(plugin_id))
        self._house.events.publish(ToolsChanged(plugin_id, names))

    def _move(self, plugin: _Plugin, happening: Happening, reason: BasculeError | None = None) -> None:
        plugin.row = after(plugin.row.plugin, happening)
        plugin.reason = reason
        shown = None if reason is None else str(reason)
        log.info("%s: %s, now %s", plugin.manifest.id, happening.value, plugin.row.plugin.value)
        self._house.events.publish(
            HostChanged(plugin.manifest.id, plugin.row.plugin.value, plugin.row.host.value, shown)
        )

    def _save(self, plugin: _Plugin) -> None:
        if not plugin.kept:
            return
        manifest = plugin.manifest
        self._house.store.save_plugin(
            PluginRecord(
                manifest.id,
                manifest.directory,
                manifest.digest,
                manifest.text,
                plugin.enabled,
                plugin.row.plugin.value,
                None if plugin.reason is None else str(plugin.reason),
                0.0,
            )
        )


def _grants_missing(plugin_id: str, missing: Iterable[str]) -> PluginPermissionRequired:
    names = ", ".join(sorted(missing))
    return PluginPermissionRequired(f"{plugin_id} has not been granted {names}", hint=f"grant {names} to {plugin_id}")


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
