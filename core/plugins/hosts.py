"""What a host is made from (transport, converter, the owner's launcher), and the gate before every start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...hookspecs import (
    BasculeError,
    Child,
    ClientTransport,
    HookPluginBroken,
    Isolation,
    Launcher,
    LaunchRequest,
    SettingsInvalid,
    ToolConverter,
    TrustApprovalRequired,
)
from ..hosting import Host, HostSpec
from ..manifest import Manifest
from .house import House
from .installed import Installed

_DIALECT = "mcp"

Lost = Callable[[Installed, Host, BasculeError, bool], None]
"""Told when a ready server goes away by itself; the last says whether only its tools have changed."""


class Hosts:
    """Makes hosts."""

    def __init__(self, house: House) -> None:
        self._house = house

    def make(self, plugin: Installed, lost: Lost) -> Host:
        """A host for the plugin's present generation; starts nothing."""
        manifest = plugin.manifest
        spec = HostSpec(
            manifest,
            self._transport(manifest),
            self.converter(),
            self._launch_for(manifest),
            self._house.limits,
            self._house.version,
            self._house.redactor.redact,
        )

        def on_lost(host: Host, error: BasculeError, changed: bool) -> None:
            lost(plugin, host, error, changed)

        return Host(spec, plugin.generation, on_lost)

    def converter(self) -> ToolConverter:
        """The converter of what the servers speak; raises ``HookPluginBroken`` where there is none."""
        converter = self._house.lineup.converters.get(_DIALECT)
        if converter is None:
            raise HookPluginBroken(
                f"no converter for the dialect {_DIALECT!r} is there, so no plugin can be enabled",
                hint="turn the hook plugin mcp_converter on again; see bascule hooks",
            )
        return converter

    def launcher(self, plugin_id: str) -> Launcher:
        """The launcher that the owner chose for this plugin; raises ``SettingsInvalid`` where there is none."""
        settings, launchers = self._house.settings, self._house.lineup.launchers
        name = settings.launchers.get(plugin_id, settings.launcher)
        if name not in launchers:
            raise SettingsInvalid(
                f"there is no launcher {name!r}",
                where="launcher",
                hint=f"there are {', '.join(sorted(launchers)) or 'none'}; see bascule hooks",
            )
        return launchers[name]

    def check_trust(self, manifest: Manifest) -> None:
        """The gate before every start (N6.9); raises ``TrustApprovalRequired``."""
        launcher = self.launcher(manifest.id)
        if self._transport(manifest).starts_process:
            self._check_isolation(manifest.id, launcher)

    def _transport(self, manifest: Manifest) -> ClientTransport:
        return self._house.lineup.client_transports[manifest.transport]

    def _check_isolation(self, plugin_id: str, launcher: Launcher) -> None:
        """Outside development nothing runs with the bridge's own rights (N6.9)."""
        if self._house.settings.environment != "development" and launcher.isolation is Isolation.NONE:
            raise TrustApprovalRequired(
                f"{plugin_id} would run with all your rights: the launcher {launcher.name!r} isolates nothing",
                hint="outside environment development that is refused; for a trial, --dev lets it run",
            )

    def _launch_for(self, manifest: Manifest) -> Callable[[LaunchRequest], Awaitable[Child]]:
        async def launch(request: LaunchRequest) -> Child:
            launcher = self.launcher(manifest.id)
            self._check_isolation(manifest.id, launcher)
            plan = self._house.planner.plan(request, self._house.limits)
            return await launcher.launch(plan)

        return launch
