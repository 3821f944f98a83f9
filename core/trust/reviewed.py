"""Approvals in a file that people review and commit, ``approvals.yaml``: a host that names one runs nothing else.

``bascule approve`` writes an entry a plugin, and whatever a reviewer has to see stands there: the whole command, every
file with its SHA-256, every tool's whole definition as JSON in ASCII. ``waiting`` are tools that no one said yes to.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from ...hookspecs import JsonObject, SettingsInvalid, StateUnavailable
from ..manifest import Manifest
from ..yaml_source import read
from .kept import Approval
from .pins import Pins

MOST_BYTES = 4 * 1024 * 1024
_MOST_NODES = MOST_BYTES // 32  # a file's line, which most are, has two and its SHA-256, which alone is 64 bytes long

_HEAD = (
    "# What may run here, as `bascule approve` wrote it: review it and commit it.\n"
    "# Anything that differs from it is refused, at every start.\n"
)
_PLAIN = re.compile(r"[A-Za-z_./<][A-Za-z0-9_./<>-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "~"})


class InFile:
    """The approvals in one file, by the plugins' ids."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, manifest: Manifest) -> Approval | None:
        """Raises ``SettingsInvalid`` where the file or the entry can't be read."""
        entry = self._entries().get(manifest.id)
        return None if entry is None else self._read(manifest.id, entry)

    def put(self, manifest: Manifest, approval: Approval) -> None:
        """Write the file anew with this entry. Raises ``StateUnavailable`` where it can't be written, or read again."""
        entries = self._entries()
        entries[manifest.id] = _written(approval)
        text = _HEAD + yaml.dump(entries, Dumper=_Dumper, sort_keys=False, width=1 << 20, default_flow_style=False)
        data = text.encode("ascii")
        if len(data) > MOST_BYTES:
            raise StateUnavailable(
                f"the approvals would take {len(data):,} bytes, of which {MOST_BYTES:,} are read",
                where=str(self._path),
                hint=f"take files out of the directory of {manifest.id}: each of them has a line here",
            )
        try:
            _replace(self._path, data)
        except OSError as error:
            raise StateUnavailable(
                f"the approvals can't be written: {error.strerror or error}",
                where=str(self._path),
                hint="approve where the file may be written, and commit it",
            ) from error

    def grants(self, manifest: Manifest) -> frozenset[str]:
        """What a reviewed approval grants: the permissions that were shown with the tools."""
        approval = self.get(manifest)
        if approval is None or approval.pins is None:
            return frozenset()
        return frozenset(str(name) for name in approval.facts.get("permissions") or ())

    def see(self, manifest: Manifest, seen: Pins) -> None:
        """Nothing but an owner's yes changes this file."""

    def _entries(self) -> dict[str, Any]:
        if not os.path.lexists(self._path):
            return {}
        document = read(self._path, most=MOST_BYTES, most_nodes=_MOST_NODES)
        if document.problems:
            message, where, hint = document.summary(document.problems)
            raise SettingsInvalid(message, where=where, hint=hint)
        return dict(document.data)

    def _read(self, plugin_id: str, entry: Any) -> Approval:
        try:
            facts = entry["command"]
            pins, seen = _pins(entry.get("approved")), _pins(entry.get("waiting"))
            at = datetime.fromisoformat(entry["approved_at"]).timestamp()
            if not isinstance(facts, dict):
                raise TypeError("command")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SettingsInvalid(
                f"the entry {plugin_id} is no approval as `bascule approve` writes it",
                where=str(self._path),
                hint="approve the plugin again",
            ) from error
        return Approval(facts, pins, seen, at)


def _pins(entry: Mapping[str, Any] | None) -> Pins | None:
    if entry is None:
        return None
    found = {name: json.loads(text) for name, text in entry["tools"].items()}
    if not all(isinstance(tool, dict) for tool in found.values()):
        raise ValueError("tools")
    instructions = entry.get("instructions")
    return Pins(found, None if instructions is None else str(instructions))


def _written(approval: Approval) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "approved_at": datetime.fromtimestamp(approval.approved_at, UTC).isoformat(timespec="seconds"),
        "command": dict(approval.facts),
    }
    for name, pins in (("approved", approval.pins), ("waiting", approval.seen)):
        if pins is not None:
            tools = {tool: _Definition(_json(definition)) for tool, definition in sorted(pins.tools.items())}
            entry[name] = {"instructions": pins.instructions, "tools": tools}
    return entry


def _json(definition: JsonObject) -> str:
    return json.dumps(definition, indent=1, sort_keys=True)


class _Definition(str):
    """JSON that is shown as it is, line by line."""


class _Dumper(yaml.SafeDumper):
    """Writes what :mod:`..yaml_source` reads: no anchors, no text that could be taken for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


def _definition(dumper: yaml.SafeDumper, text: _Definition) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Definition, _definition)


def _replace(path: Path, data: bytes) -> None:
    """Write all or nothing, also where the machine goes down meanwhile."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
