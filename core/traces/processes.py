"""Tells a process from a later one of the same number."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def this_process() -> tuple[int, str | None]:
    """Return our pid, and when the system says that we started (Linux alone; in its own unit)."""
    pid = os.getpid()
    return pid, _stat(pid)[1]


def is_running(pid: int, started: str | None) -> bool:
    """Say whether the process that had this pid when it ``started`` is still there."""
    state, current = _stat(pid)
    if current is not None:
        # A zombie has ended; only its parent has not looked yet.
        return state not in ("Z", "X") and started in (None, current)
    if Path("/proc/self/stat").exists():
        return False
    return _exists(pid)


def _stat(pid: int) -> tuple[str, str | None]:
    """Read state and start (fields 3 and 22 of proc(5)), which follow a name that may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", None
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _exists(pid: int) -> bool:
    if sys.platform == "win32":
        import ctypes

        # os.kill(pid, 0) would send a CTRL+C there.
        handle = ctypes.windll.kernel32.OpenProcess(0x1000, False, pid)  # PROCESS_QUERY_LIMITED_INFORMATION
        if handle:
            ctypes.windll.kernel32.CloseHandle(handle)
        return bool(handle)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
