"""What a host is made from (transport, converter, the owner's launcher), and the gate before every start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ...hookspecs import (
    BasculeError,
    Child,
    ClientTransport,
    HookPluginBroken,
    JsonObject,
    Launcher,
    LaunchPlan,
    LaunchRequest,
    ToolConverter,
    TrustApprovalRequired,
)
from ..credentials import credentials
from ..hosting import Host, HostSpec
from ..isolation import Keeping
from ..manifest import Manifest
from ..trust import PackageRun, Packages, read_run
from .house import House
from .installed import Installed

_DIALECT = "mcp"

Lost = Callable[[Installed, Host, BasculeError, bool], None]
"""Told when a ready server goes away by itself; the last says whether only its tools have changed."""

Relisted = Callable[[Installed, Host, Sequence[JsonObject]], Awaitable[None]]
"""Given what a ready server lists after it announced other tools; what it raises ends the host."""


class Hosts:
    """Makes hosts."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.packages = Packages(house.state / "packages")

    def make(
        self,
        plugin: Installed,
        lost: Lost,
        cleared: LaunchPlan | None = None,
        relisted: Relisted | None = None,
    ) -> Host:
        """A host for the plugin's present generation; starts nothing.

        ``cleared`` is all that it may start then. With ``relisted`` a server may announce other tools and goes on.
        """
        manifest = plugin.manifest
        spec = HostSpec(
            manifest,
            self._transport(manifest),
            self.converter(),
            self._launch_for(manifest, cleared),
            self._house.limits,
            self._house.version,
            self._house.redactor.redact,
        )

        def on_lost(host: Host, error: BasculeError, changed: bool) -> None:
            lost(plugin, host, error, changed)

        if relisted is None:
            return Host(spec, plugin.generation, on_lost)
        return Host(spec, plugin.generation, on_lost, lambda host, listed: relisted(plugin, host, listed))

    def learn(self, manifest: Manifest) -> None:
        """Let the redactor know what a start will hand to the server: it is found wherever it turns up from now on."""
        with suppress(Exception):  # what is wrong with it is said where it is to be started
            request = self._transport(manifest).preview(manifest.backend, manifest.directory)
            if request is not None:
                self._learn(request)

    def _learn(self, request: LaunchRequest) -> None:
        for value in credentials(request, self._house.planner.host):
            self._house.redactor.add(value)

    def converter(self) -> ToolConverter:
        """The converter of what the servers speak; raises ``HookPluginBroken`` where there is none."""
        converter = self._house.lineup.converters.get(_DIALECT)
        if converter is None:
            raise HookPluginBroken(
                f"no converter for the dialect {_DIALECT!r} is there, so no plugin can be enabled",
                hint="turn the hook plugin mcp_converter on again; see bascule hooks",
            )
        return converter

    async def keeping(self, manifest: Manifest) -> Keeping | None:
        """How the plugin's server is kept apart, the gate before every start (N6.9); ``None`` where no process starts.

        Raises ``TrustApprovalRequired``, ``PluginIsolationUnavailable`` or ``SettingsInvalid``.
        """
        if not self._transport(manifest).starts_process:
            return None
        return await self._house.keepers.keep(manifest)

    def launcher(self, manifest: Manifest) -> Launcher | None:
        """The launcher that :meth:`keeping` chooses; blocks where none was asked yet."""
        return self._house.keepers.chosen(manifest).launcher if self._transport(manifest).starts_process else None

    def plan(self, manifest: Manifest, request: LaunchRequest) -> LaunchPlan:
        """What ``request`` would start: the same for a start, a preview and an approval. Reads files, so it blocks.

        A package that it runs is taken from where it was fetched; raises ``PackageFetchFailed`` where it was not.
        """
        self._learn(request)
        keeping = self._house.keepers.chosen(manifest)
        planner, run, isolation = self._house.planner, self.package_run(request), keeping.request
        if run is not None:
            program = self.packages.program(manifest.id, run)
            planner = replace(planner, fetched=self.packages.root)
            request = replace(request, argv=(program.executable, *program.arguments))
            isolation = replace(isolation, readable=(*isolation.readable, program.root))
        return planner.plan(request, self._house.limits, isolation, keeping.isolation)

    def package_run(self, request: LaunchRequest) -> PackageRun | None:
        """The package that a command runs; in environment ``development`` its runner is left to fetch it itself.

        Raises ``PackageUnpinned``.
        """
        return None if self._house.settings.environment == "development" else read_run(request.argv)

    def _transport(self, manifest: Manifest) -> ClientTransport:
        return self._house.lineup.client_transports[manifest.transport]

    def _launch_for(
        self, manifest: Manifest, cleared: LaunchPlan | None
    ) -> Callable[[LaunchRequest], Awaitable[Child]]:
        """Start what was cleared and nothing else; outside development nothing else is cleared (N6.9)."""

        async def launch(request: LaunchRequest) -> Child:
            keeping = await self._house.keepers.keep(manifest)
            plan = await asyncio.to_thread(self.plan, manifest, request)
            if plan != cleared and self._house.settings.environment != "development":
                raise TrustApprovalRequired(
                    f"the transport of {manifest.id} would start something else than what was approved",
                    hint="the hook plugin that offers the transport must preview what it starts",
                )
            return await self._house.children.launch(keeping.launcher, plan, manifest.id)

        return launch
