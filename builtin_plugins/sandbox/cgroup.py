"""A control group (cgroup v2) for each server, where the system has delegated one to the bridge: it bounds the tree.

systemd marks what it delegates with an extended attribute (``user.delegate``, systemd.resource-control(5)); nothing
else is touched. Start the bridge with ``systemd-run --user --scope -p Delegate=yes …``, or put ``Delegate=yes`` into
its unit.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids")
_REMOVE_TRIES = 200
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One server's control group."""

    path: Path

    async def remove(self) -> None:
        """Kill what is left in it, and take it away; bounded."""
        with suppress(OSError):
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")
        for _ in range(_REMOVE_TRIES):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                await asyncio.sleep(0.01)
            else:
                return


def leaf(memory_mb: int, processes: int) -> Leaf | None:
    """Make a control group with these bounds; ``None`` where none is delegated. ``processes`` counts the tasks."""
    parent = delegated()
    if parent is None:
        return None
    path = parent / f"server-{os.getpid()}-{next(_numbers)}"
    try:
        path.mkdir()
        (path / "memory.max").write_text(str(memory_mb * 1024 * 1024), encoding="ascii")
        (path / "memory.oom.group").write_text("1", encoding="ascii")
        (path / "pids.max").write_text(str(processes), encoding="ascii")
        with suppress(OSError):  # there is no such file where the system has no swap accounting
            (path / "memory.swap.max").write_text("0", encoding="ascii")
    except OSError:
        with suppress(OSError):
            path.rmdir()
        return None
    return Leaf(path)


@cache
def delegated(root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """The control group below which servers' groups may be made, prepared for it; ``None`` where there is none.

    A group that hands controllers to others may hold no process (cgroup v2's rule of no internal processes), so the
    bridge moves into a group of its own beside them.
    """
    with suppress(OSError, StopIteration, ValueError):
        entry = next(line for line in own.read_text(encoding="ascii").splitlines() if line.startswith("0::"))
        group = root / entry.removeprefix("0::").lstrip("/")
        if not _is_delegated(group) or not set(_CONTROLLERS) <= set((group / "cgroup.controllers").read_text().split()):
            return None
        bridge = group / "bridge"
        bridge.mkdir(exist_ok=True)
        for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
            (bridge / "cgroup.procs").write_text(pid, encoding="ascii")
        enable = " ".join(f"+{name}" for name in _CONTROLLERS)
        (group / "cgroup.subtree_control").write_text(enable, encoding="ascii")
        return group
    return None


def _is_delegated(group: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return os.access(group, os.W_OK)
    return False
