"""Finds hook plugins by their entry points and loads them one by one (stevedore, here only).

Found and loaded are two things: a hook plugin that does not import is data with a reason, never the end of the host.

Entry points are read from the metadata of what is installed, at each start. stevedore's own list is kept in a cache
file of the user's, which misses an entry point that was edited within two minutes (it compares times as 32-bit
floats), and which lands in a folder named ``~`` where a user has no home.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, EntryPoint
from typing import TYPE_CHECKING, Any

from stevedore.extension import ExtensionManager

from ..hookspecs import ENTRY_POINT_GROUP, BasculeError, HookConflict, HookPluginBroken

log = logging.getLogger(__name__)

_OWN_PREFIX = "bascule.builtin_plugins."
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """An entry point: ``value`` says what it names (``module`` or ``module:object``).

    ``distribution`` are the name and the version of what registers it.
    """

    name: str
    value: str
    distribution: tuple[str, str] = field(default=(_UNKNOWN, _UNKNOWN), compare=False)

    @property
    def built_in(self) -> bool:
        return self.value.startswith(_OWN_PREFIX)


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
    for name, candidates in sorted(_by_name().items(), key=_built_ins_first):
        if name in disabled:
            yield from (Disabled(found) for found in candidates)
        elif len(candidates) > 1:
            yield from _settle(candidates)
        else:
            yield _load(candidates[0])


def _by_name() -> dict[str, list[Found]]:
    by_name: dict[str, list[Found]] = defaultdict(list)
    for found in _entry_points():
        if found not in by_name[found.name]:  # the same folder may stand twice on the path
            by_name[found.name].append(found)
    return by_name


def _entry_points() -> Iterator[Found]:
    """Read what each installed distribution registers; of two with one name, the first on the path counts."""
    seen: set[str] = set()
    for installed in importlib.metadata.distributions():
        try:
            if ENTRY_POINT_GROUP not in (installed.read_text("entry_points.txt") or ""):
                continue  # nearly all
            distribution = _described(installed)
            points = installed.entry_points.select(group=ENTRY_POINT_GROUP)
        except Exception as error:  # noqa: BLE001 - metadata that can't be read is its distribution's affair alone
            log.warning("the entry points of one distribution can't be read: %s", error)
            continue
        name = distribution[0]
        if name not in seen:
            seen.update({name} - {_UNKNOWN})
            yield from (Found(point.name, point.value, distribution) for point in points)


def _described(installed: Distribution) -> tuple[str, str]:
    """Its name and version, by the head of its metadata."""
    text = installed.read_text("METADATA") or installed.read_text("PKG-INFO") or ""
    head = dict(line.split(": ", 1) for line in text.partition("\n\n")[0].splitlines() if ": " in line)
    return head.get("Name", _UNKNOWN), head.get("Version", _UNKNOWN)


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


if TYPE_CHECKING:
    _Manager = ExtensionManager[Any]
else:
    _Manager = ExtensionManager  # before stevedore 5.5 it takes no parameter


class _One(_Manager):
    """stevedore's loader, for one entry point that was found already."""

    def __init__(self, found: Found) -> None:
        self._point = EntryPoint(found.name, found.value, ENTRY_POINT_GROUP)
        self.failure: BaseException | None = None
        super().__init__(ENTRY_POINT_GROUP, on_load_failure_callback=self._failed)

    def list_entry_points(self) -> list[EntryPoint]:
        return [self._point]

    def _failed(self, _manager: _Manager, _point: EntryPoint, error: BaseException) -> None:
        self.failure = error


def _load(found: Found) -> Discovery:
    try:
        manager = _One(found)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit and the like: none may end the host
        return Failed(found, _import_failed(error))
    if manager.failure is not None:
        return Failed(found, _import_failed(manager.failure))
    return Loaded(found, manager.extensions[0].plugin)


def _import_failed(error: BaseException) -> HookPluginBroken:
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return HookPluginBroken(
        f"it did not import: {reason}"[:500],
        hint="mend or uninstall it, or turn it off with --no-hook-plugin NAME",
    )
