"""For the tests of the sandboxes: which launchers work here, a place that a server's user can reach, a bridge there."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from bascule.builtin_plugins.sandbox.bubblewrap import BubblewrapLauncher
from bascule.builtin_plugins.sandbox.landlock import LandlockLauncher
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
LAUNCHERS = {"bubblewrap": BubblewrapLauncher(), "landlock": LandlockLauncher()}


@cache
def unavailable(name: str) -> str | None:
    """Why this launcher can't be tried here."""
    reason = LAUNCHERS[name].available()
    if reason is None and interpreter(name) is None:
        return "there is no Python that an unprivileged user may run"
    return reason


def need(name: str) -> None:
    """Skip, loudly, where the launcher does not work."""
    if reason := unavailable(name):
        pytest.skip(f"NOT TESTED HERE: the launcher {name} does not work: {reason}")


@cache
def interpreter(name: str) -> Path | None:
    """A Python for the servers. Landlock lends no rights: where we are root, another user must be able to reach it."""
    candidates = [Path(sys.executable), Path("/usr/bin/python3"), Path("/usr/local/bin/python3")]
    if name != "landlock" or os.geteuid() != 0:
        return candidates[0]
    return next((each for each in candidates if each.exists() and _open_to_all(each)), None)


def _open_to_all(path: Path) -> bool:
    real = path.resolve()
    above = {*path.parents, *real.parents}
    return all(each.stat().st_mode & 0o001 for each in above) and bool(real.stat().st_mode & 0o001)


@contextmanager
def reachable(prefix: str = "bsb") -> Iterator[Path]:
    """A short directory that everyone may enter."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copied(folder: Path, *names: str) -> list[Path]:
    """Copy fixtures there; they stay readable to everyone."""
    return [Path(shutil.copytree(FIXTURES / name, folder / name)) for name in names]


def settings_for(name: str, folder: Path, **more: Any) -> Settings:
    """Settings of a bridge in ``folder`` whose servers are started by this launcher."""
    python = interpreter(name)
    assert python is not None
    changes = {"environment": "development", "launcher": name, "state": folder / "state", **more}
    return Settings().with_(executables={"python3": python}, **changes)


@asynccontextmanager
async def hosting(settings: Settings, *plugins: Path) -> AsyncIterator[Bridge]:
    """A bridge that hosts these plugins, with all grants, and has settled."""
    async with Bridge(settings, plugins=plugins, grant=True, remember=False) as bridge:
        await bridge.settled()
        yield bridge


def below(folder: Path) -> list[psutil.Process]:
    """Every process of this machine that works in or below ``folder``, or was started with its name."""
    found = []
    for process in psutil.process_iter():
        try:
            named = any(str(folder) in word for word in process.cmdline())
            there = named or Path(process.cwd()).is_relative_to(folder)
            if there and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):  # it has ended meanwhile, or is another user's
            continue
    return found
