"""What decides which code runs, and with which rights: the facts that an approval of a command is bound to.

=============== ==================================================================================
``transport``    the manifest's, and whether it starts a process at all
``executable``   its place, the file behind its links, that file's SHA-256
``argv``         the whole array
``environment``  names that the manifest sets or lets through; values stand in the manifest
``manifest``     its SHA-256, as it was read
``files``        the plugin's directory, file by file; ``packages`` the fetched environment, likewise
``outside``      arguments that name programs elsewhere, with their SHA-256
``permissions``  all that are asked for
``isolation``    launcher, the tier that it really gives here, and what is asked of it
``source``       a directory, or a package by name, version and the hashes of what was fetched
=============== ==================================================================================

Paths inside the plugin's directory and inside the state directory are written relative to these, so that an approval
can be kept beside the settings and hold on another machine with the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .canonical import digest_of, shown
from .pins import Pins

Facts = Mapping[str, Any]

_SHOWN = 100

_LABELS = {
    "transport": "transport",
    "executable": "executable",
    "environment": "environment",
    "manifest": "manifest (sha256)",
    "permissions": "permissions",
    "isolation": "isolation",
    "source": "source",
}


def command_digest(facts: Facts) -> str:
    """What the first question is about."""
    return digest_of("command", facts)


def whole_digest(command: str, pins: Pins) -> str:
    """What the second question is about: the command's digest, and what its server lists."""
    return digest_of("whole", {"command": command, "definitions": pins.digest})


def differences(old: Facts, new: Facts) -> tuple[str, ...]:
    """Say in words what is not as it was; bounded."""
    lines = list(_differences(old, new))
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"… and {len(lines) - _SHOWN} more"]
    return tuple(lines)


def _differences(old: Facts, new: Facts) -> Iterator[str]:
    for key, label in _LABELS.items():
        yield from _value(label, old.get(key), new.get(key))
    yield from _argv(old.get("argv") or (), new.get("argv") or ())
    for key, label in (("files", "file"), ("packages", "package file"), ("outside", "file outside")):
        yield from _files(label, old.get(key) or {}, new.get(key) or {})


def _value(label: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _value(f"{label} {key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list):
        yield from (f"{label}: + {shown(word)}" for word in new if word not in old)
        yield from (f"{label}: - {shown(word)}" for word in old if word not in new)
    else:
        yield f"{label}: {shown(old)} -> {shown(new)}"


def _argv(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for index in range(max(len(old), len(new))):
        before, after = (argv[index] if index < len(argv) else None for argv in (old, new))
        if before is None:
            yield f"argv[{index}]: + {shown(after)}"
        elif after is None:
            yield f"argv[{index}]: - {shown(before)}"
        elif before != after:
            yield f"argv[{index}]: {shown(before)} -> {shown(after)}"


def _files(label: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for path in sorted({*old, *new}):
        if path not in old:
            yield f"{label} added: {shown(path)}"
        elif path not in new:
            yield f"{label} removed: {shown(path)}"
        elif old[path] != new[path]:
            yield f"{label} changed: {shown(path)}{_mode(old[path], new[path])}"


def _mode(old: str, new: str) -> str:
    if old.removesuffix(" x") == new.removesuffix(" x"):
        return " (now executable)" if new.endswith(" x") else " (no longer executable)"
    if old.startswith("->") or new.startswith("->"):
        return f" ({shown(old)} -> {shown(new)})"
    return ""
