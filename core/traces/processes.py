"""Tells a process from a later one of the same number."""

from __future__ import annotations

from pathlib import Path


def process(pid: int) -> str:
    """Name a process as no later one will be named: by its pid and its start (Linux alone; elsewhere it has none)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # Fields 3 and 22 of proc(5), which follow a name that may hold anything.
    state, *fields = text.rpartition(")")[2].split()
    # A zombie has ended; only its parent has not looked yet.
    return "" if state in ("Z", "X") else f"{pid} {fields[18]}"


def is_running(name: str) -> bool:
    """Say whether the process of this name is still there; of one without a name no one can say, so it is."""
    return not name or process(int(name.split()[0])) == name
