"""One installed plugin: what is known of it, and how anyone may see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...hookspecs import ApprovalState, BasculeError, HostView, PluginView
from ..admission import requested
from ..hosting import Host
from ..isolation import Keeping
from ..manifest import Manifest, remembered_manifest
from ..registry import Registry
from ..states import START_ROW, Happening, Row, after
from ..store import PluginRecord
from ..trust import Pins


@dataclass(slots=True, eq=False)
class Installed:
    """An installed plugin. ``kept`` = its record outlives this bridge; times are in seconds since 1970.

    ``pins`` are what its tools are measured by (``None``: by the manifest alone), ``listed`` is what its server listed
    last, ``quarantined`` what of that was not approved, and how it differs; ``keeping`` is how its server is kept
    apart.
    """

    manifest: Manifest
    kept: bool
    row: Row = START_ROW
    reason: BasculeError | None = None
    granted: frozenset[str] = frozenset()
    host: Host | None = None
    keeping: Keeping | None = None
    generation: int = 0
    enabled: bool = False
    approval: ApprovalState = ApprovalState.NONE
    pins: Pins | None = None
    listed: Pins | None = None
    quarantined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    installed_at: float = field(default_factory=time.time)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def id(self) -> str:
        return self.manifest.id

    @classmethod
    def unreadable(cls, record: PluginRecord, reason: BasculeError, *, kept: bool) -> Installed:
        """One whose manifest can't be read now; what it said when it was installed is all that is known."""
        return cls(
            remembered_manifest(record.plugin_id, record.directory, record.manifest, record.digest),
            kept,
            after(START_ROW.plugin, Happening.UNREADABLE),
            reason,
            enabled=record.enabled,
            installed_at=record.installed_at,
        )

    def record(self) -> PluginRecord:
        """What outlives the bridge."""
        manifest = self.manifest
        return PluginRecord(
            manifest.id,
            manifest.directory,
            manifest.digest,
            manifest.text,
            self.enabled,
            self.row.plugin.value,
            None if self.reason is None else str(self.reason),
            self.installed_at,
        )


def plugin_view(plugin: Installed, registry: Registry) -> PluginView:
    """The plugin as anyone may see it."""
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
        tools=tuple(sorted(entry.tool.name for entry in registry.of(manifest.id))),
        restart_allowed=plugin.row.restart,
        host=host_view(plugin, registry),
        enabled=plugin.enabled,
        approval=plugin.approval.value,
        quarantined=tuple(sorted(plugin.quarantined)),
        launcher="" if plugin.keeping is None else plugin.keeping.launcher.name,
        isolation="" if plugin.keeping is None else plugin.keeping.isolation.value,
    )


def host_view(plugin: Installed, registry: Registry) -> HostView:
    """Its running side (N7.1)."""
    host = plugin.host
    upstream = None if host is None else host.upstream
    info = None if upstream is None else upstream.info
    return HostView(
        plugin_id=plugin.id,
        backend_type=plugin.manifest.backend_type,
        transport=plugin.manifest.transport,
        status=plugin.row.host,
        tools_count=len(registry.of(plugin.id)),
        started_at=_moment(None if host is None else host.started_at),
        last_seen_at=_moment(None if upstream is None else upstream.last_seen),
        protocol_version=None if info is None else info.protocol_version,
        server_name=None if info is None else info.name,
        server_version=None if info is None else info.version,
        error=None if plugin.reason is None else plugin.reason.as_dict(),
    )


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
