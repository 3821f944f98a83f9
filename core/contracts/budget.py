"""What one check by the reference engine may take."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

MAX_STEPS: Final = 5_000
"""Keywords applied in one check, about 20 µs each: a tenth of a second. A usual call takes some twenty."""


class CheckTooExpensive(Exception):
    """The instance was not judged: that would have taken more steps than one check may take."""


class Check:
    """One check: the document that references point into, and the steps that are left."""

    __slots__ = ("_left", "root")

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._left = MAX_STEPS

    def spend(self, steps: int) -> None:
        """Pay; raises CheckTooExpensive when nothing is left."""
        self._left -= steps
        if self._left < 0:
            raise CheckTooExpensive


current: ContextVar[Check] = ContextVar("check")
"""The check that is going on: the engine's keywords take no argument of ours."""
