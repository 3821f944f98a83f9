"""Our own version, as installed."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    """Read it from the head of the metadata: all of that holds the README, and parsing it takes its time."""
    from importlib.metadata import distribution

    head = (distribution("bascule").read_text("METADATA") or "").partition("\n\n")[0]
    found = [line.removeprefix("Version: ") for line in head.splitlines() if line.startswith("Version: ")]
    return found[0] if found else "unknown"
