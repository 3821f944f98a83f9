"""Our own version, as installed."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    from importlib.metadata import version as installed

    return installed("bascule")
