"""Which launcher starts a plugin's server, and what that one keeps it from.

A launcher is asked once whether it works on this machine, in a thread: it may start processes to find out. ``auto``
stands for the best that works; in environment ``development`` it stands for ``local`` where the manifest requires
nothing. What is required is never silently replaced by less.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..hookspecs import (
    Isolation,
    IsolationRequest,
    Launcher,
    PluginIsolationUnavailable,
    SettingsInvalid,
    TrustApprovalRequired,
)
from .demands import RANK, OwnersDemands, request, widened
from .manifest import Manifest
from .settings import Settings

AUTO = "auto"
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Keeping:
    """How one plugin's server is kept. ``widened`` names what the owner's settings add to the manifest's demands."""

    launcher: Launcher
    request: IsolationRequest
    widened: tuple[str, ...] = ()

    @property
    def isolation(self) -> Isolation:
        return self.launcher.isolation


class Keepers:
    """The launchers of this bridge, and why some of them do not work here."""

    def __init__(self, settings: Settings, launchers: Mapping[str, Launcher], state: Path) -> None:
        self._settings = settings
        self._launchers = launchers
        self._state = state.resolve()
        self._unavailable: dict[str, str | None] = {}
        self._asking = threading.Lock()

    # --- asking the machine -----------------------------------------------------------------------------

    def probe(self, names: Iterable[str] | None = None) -> Mapping[str, str | None]:
        """Ask the launchers whether they work here, each once; blocks. ``None`` = it does."""
        with self._asking:
            for name in self._launchers if names is None else names:
                if name in self._launchers and name not in self._unavailable:
                    self._unavailable[name] = self._ask(self._launchers[name])
        return dict(self._unavailable)

    def _ask(self, launcher: Launcher) -> str | None:
        if getattr(launcher, "untested", False) and not self._settings.allow_untested_launchers:
            return "no one has seen it work yet; allow_untested_launchers: true in the settings lets it"
        available = getattr(launcher, "available", None)
        if available is None:
            return None
        try:
            reason = available()
        except Exception as error:  # noqa: BLE001 - a launcher that can't even say so does not work
            return f"{type(error).__name__}: {error}"[:500]
        return None if reason is None else str(reason)[:500]

    def shown(self) -> tuple[str, str]:
        """The launcher that the settings mean for a plugin without demands, and its tier, as far as it is known."""
        name = self._settings.launcher
        if name == AUTO and self._settings.environment == "development" and LOCAL in self._launchers:
            name = LOCAL
        elif name == AUTO:
            usable = [each for each in self._by_rank() if self._unavailable.get(each, "not asked") is None]
            name = usable[0] if usable else AUTO
        launcher = self._launchers.get(name)
        return name, "" if launcher is None else launcher.isolation.value

    # --- choosing ---------------------------------------------------------------------------------------

    async def keep(self, manifest: Manifest) -> Keeping:
        """Choose as :meth:`chosen` does; the launchers are asked in a thread."""
        names = self._candidates(manifest)
        if any(name not in self._unavailable for name in names):
            await asyncio.to_thread(self.probe, names)
        return self.chosen(manifest)

    def chosen(self, manifest: Manifest) -> Keeping:
        """Choose the launcher for this plugin; blocks where a launcher was not asked yet.

        Raises ``SettingsInvalid`` (no such launcher), ``TrustApprovalRequired`` (none works here that isolates, and
        this is not development, N6.9) or ``PluginIsolationUnavailable``.
        """
        asked = self.request(manifest)
        candidates = self._candidates(manifest)
        unavailable = self.probe(candidates)
        usable = [self._launchers[name] for name in candidates if unavailable.get(name) is None]
        if not usable:
            raise PluginIsolationUnavailable(
                f"no launcher works here for {manifest.id}: {_reasons(unavailable, candidates)}", hint=_HINT
            )
        launcher = usable[0]
        if self._name(manifest) == AUTO:
            self._refuse_unsandboxed(manifest.id, launcher, unavailable)
        if RANK[launcher.isolation] < RANK[asked.require]:
            others = _reasons(unavailable, candidates)
            raise PluginIsolationUnavailable(
                f"{manifest.id} requires isolation {asked.require}, and the launcher {launcher.name!r} gives "
                f"{launcher.isolation}" + (f" ({others})" if others else ""),
                hint=_HINT,
            )
        owners = self._owners(manifest.id)
        wider = widened(manifest.isolation, owners, manifest.directory, self.data(manifest.id))
        return Keeping(launcher, asked, tuple(wider))

    def request(self, manifest: Manifest) -> IsolationRequest:
        """What the manifest and the owner's settings say together; the executable's needs are not in it."""
        owners = self._owners(manifest.id)
        return request(manifest.isolation, owners, manifest.directory, self.data(manifest.id), self._state)

    def data(self, plugin_id: str) -> Path:
        """The plugin's private data directory; it is made at the first sandboxed start."""
        return self._state / "data" / plugin_id

    def _owners(self, plugin_id: str) -> OwnersDemands:
        return self._settings.isolation.get(plugin_id) or OwnersDemands()

    def _candidates(self, manifest: Manifest) -> list[str]:
        """The names that may be chosen from, the best first."""
        name = self._name(manifest)
        if name == AUTO and self._may_run_free(manifest):
            return [LOCAL]
        if name == AUTO:
            return self._by_rank()
        if name not in self._launchers:
            raise SettingsInvalid(
                f"there is no launcher {name!r}",
                where="launcher",
                hint=f"there are {', '.join(sorted(self._launchers)) or 'none'}; see bascule hooks",
            )
        return [name]

    def _name(self, manifest: Manifest) -> str:
        return self._settings.launchers.get(manifest.id, self._settings.launcher)

    def _by_rank(self) -> list[str]:
        return sorted(self._launchers, key=lambda each: (-RANK[self._launchers[each].isolation], each))

    def _may_run_free(self, manifest: Manifest) -> bool:
        """In development nothing stands in a server's way that its manifest or its owner did not ask for."""
        free = self._settings.environment == "development" and LOCAL in self._launchers
        return free and self.request(manifest).require is Isolation.NONE

    def _refuse_unsandboxed(self, plugin_id: str, launcher: Launcher, unavailable: Mapping[str, str | None]) -> None:
        """Outside development ``auto`` never stands for a launcher that isolates nothing (N6.9)."""
        if self._settings.environment == "development" or launcher.isolation is not Isolation.NONE:
            return
        others = _reasons(unavailable, unavailable)
        raise TrustApprovalRequired(
            f"{plugin_id} would run with all your rights: the launcher {launcher.name!r} isolates nothing"
            + (f", and no other works here ({others})" if others else ""),
            hint="install what another needs, or name this one in the settings and approve it expressly; "
            "for a trial, --dev lets it run",
        )


_HINT = "bascule check says what each launcher needs; on Debian and Ubuntu: apt-get install bubblewrap"


def _reasons(unavailable: Mapping[str, str | None], names: Iterable[str]) -> str:
    return "; ".join(f"{name}: {unavailable[name]}" for name in names if unavailable.get(name) is not None)
