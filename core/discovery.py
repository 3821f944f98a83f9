"""Finds hook plugins by their entry points and loads them one by one (stevedore, here only).

Found and loaded are two things: a hook plugin that does not import is data with a reason, never the end of the host.
"""

from __future__ import annotations

import importlib.metadata
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from stevedore.named import NamedExtensionManager

from ..hookspecs import ENTRY_POINT_GROUP, BasculeError, HookConflict, HookPluginBroken

_OWN_PREFIX = "bascule.builtin_plugins."


@dataclass(frozen=True, slots=True)
class Found:
    """An entry point: ``value`` says what it names (``module`` or ``module:object``)."""

    name: str
    value: str

    @property
    def built_in(self) -> bool:
        return self.value.startswith(_OWN_PREFIX)

    @property
    def distribution(self) -> tuple[str, str]:
        """The name and version of the distribution that registers it; costs a look at everything installed."""
        return _distributions().get((self.name, self.value), ("unknown", "unknown"))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A hook plugin that imported; ``plugin`` carries its hook implementations."""

    found: Found
    plugin: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """A hook plugin that can't be used, and why."""

    found: Found
    error: BasculeError


@dataclass(frozen=True, slots=True)
class Disabled:
    """A hook plugin that the owner turned off; it was not imported."""

    found: Found


Discovery = Loaded | Failed | Disabled


def discover(disabled: Collection[str] = ()) -> Iterator[Discovery]:
    """Load every hook plugin but those in ``disabled``; the built-ins first, then by name."""
    for name, candidates in sorted(_entry_points().items(), key=_built_ins_first):
        if name in disabled:
            yield from (Disabled(found) for found in candidates)
        elif len(candidates) > 1:
            yield from _settle(candidates)
        else:
            yield _load(candidates[0])


def _entry_points() -> dict[str, list[Found]]:
    lister: NamedExtensionManager[Any] = NamedExtensionManager(
        ENTRY_POINT_GROUP, names=[], on_missing_entrypoints_callback=None
    )
    by_name: dict[str, list[Found]] = defaultdict(list)
    for point in lister.list_entry_points():
        found = Found(point.name, point.value)
        if found not in by_name[point.name]:
            by_name[point.name].append(found)
    return by_name


def _built_ins_first(item: tuple[str, list[Found]]) -> tuple[bool, str]:
    name, candidates = item
    return not any(found.built_in for found in candidates), name


def _settle(candidates: list[Found]) -> Iterator[Discovery]:
    """Several distributions register one name: a built-in stands, nobody else does."""
    owners = ", ".join(sorted(f"{found.distribution[0]} ({found.value})" for found in candidates))
    for found in candidates:
        if found.built_in:
            yield _load(found)
        else:
            yield Failed(
                found,
                HookConflict(
                    f"the entry point {found.name!r} is registered more than once: {owners}",
                    hint="uninstall one of them, or ask its author for another name",
                ),
            )


def _load(found: Found) -> Discovery:
    failures: list[BaseException] = []
    try:
        manager: NamedExtensionManager[Any] = NamedExtensionManager(
            ENTRY_POINT_GROUP,
            names=[found.name],
            on_load_failure_callback=lambda _manager, _point, error: failures.append(error),
            on_missing_entrypoints_callback=None,
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - stevedore lets some through; none may end the host
        return Failed(found, _import_failed(error))
    if failures:
        return Failed(found, _import_failed(failures[0]))
    loaded = [extension.plugin for extension in manager if extension.entry_point.value == found.value]
    return Loaded(found, loaded[0])


def _import_failed(error: BaseException) -> HookPluginBroken:
    return HookPluginBroken(
        f"it did not import: {type(error).__name__}: {error}"[:500],
        hint="mend or uninstall it, or turn it off with --no-hook-plugin NAME",
    )


@cache
def _distributions() -> dict[tuple[str, str], tuple[str, str]]:
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {
        (point.name, point.value): (point.dist.name, point.dist.version) for point in points if point.dist is not None
    }
