"""Tells a process from a later one of the same number, also after the machine was started anew.

Linux alone says so much of a process; elsewhere none has a name, and no one can say that one is gone.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path


def process(pid: int) -> str:
    """Name a process as no later one will be named: by its pid, its start and the machine's own start."""
    fields = stat(pid)
    return f"{pid} {fields[19]} {_boot()}" if fields else ""


def is_running(name: str) -> bool:
    """Say whether the process of this name is still there; of one without a name no one can say, so it is."""
    return not name or process(int(name.split()[0])) == name


def exists(pid: int) -> bool:
    """Say whether a process of this number is there and has not ended."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return bool(stat(pid)) or not os.path.exists("/proc/self/stat")


def stat(pid: int) -> list[str]:
    """Return the fields of proc(5) from the third on (the state); none for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()  # the name before them may hold anything
    # A zombie has ended; only its parent has not looked yet.
    return [] if not fields or fields[0] in ("Z", "X") else fields


@cache
def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""
