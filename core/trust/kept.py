"""Where approvals are kept: in the state directory, or in a file beside the settings that people review."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..manifest import Manifest
from ..store import Store
from .facts import Facts, command_digest
from .pins import Pins


@dataclass(frozen=True, slots=True)
class Approval:
    """What an owner said yes to. ``pins`` is ``None`` until the second question; ``seen`` waits for it.

    ``approved_at`` is in seconds since 1970.
    """

    facts: Facts
    pins: Pins | None = None
    seen: Pins | None = None
    approved_at: float = 0.0

    @property
    def digest(self) -> str:
        return command_digest(self.facts)

    def with_tools(self, pins: Pins, at: float) -> Approval:
        """The approval once its tools are, too."""
        return replace(self, pins=pins, seen=None, approved_at=at)


class Kept(Protocol):
    """One place where approvals are kept."""

    def get(self, manifest: Manifest) -> Approval | None:
        """What was approved of the plugin in the manifest's directory."""

    def put(self, manifest: Manifest, approval: Approval) -> None:
        """Keep ``approval`` in place of what was known."""

    def grants(self, manifest: Manifest) -> frozenset[str]:
        """The permissions that come with an approval in this place."""

    def see(self, manifest: Manifest, seen: Pins) -> None:
        """Remember what an approved plugin's server listed instead, so that the owner can look at it."""


class InState:
    """Approvals in the state directory's database, by the plugin's directory."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, manifest: Manifest) -> Approval | None:
        text = self._store.approval(manifest.id, manifest.directory)
        return None if text is None else _read(json.loads(text))

    def put(self, manifest: Manifest, approval: Approval) -> None:
        self._store.save_approval(manifest.id, manifest.directory, json.dumps(_written(approval)))

    def grants(self, manifest: Manifest) -> frozenset[str]:
        """None: here permissions are granted in a step of their own."""
        return frozenset()

    def see(self, manifest: Manifest, seen: Pins) -> None:
        approval = self.get(manifest)
        if approval is not None:
            self.put(manifest, replace(approval, seen=seen))


def _written(approval: Approval) -> dict[str, Any]:
    return {
        "facts": dict(approval.facts),
        "pins": None if approval.pins is None else approval.pins.as_dict(),
        "seen": None if approval.seen is None else approval.seen.as_dict(),
        "approved_at": approval.approved_at,
    }


def _read(data: Mapping[str, Any]) -> Approval:
    return Approval(
        data["facts"], Pins.from_dict(data["pins"]), Pins.from_dict(data["seen"]), float(data["approved_at"])
    )
