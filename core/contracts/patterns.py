"""Regular expressions that match in linear time, by the engine inside ``jsonschema-rs``.

The engine reads ECMA 262 patterns as far as they are regular: no lookaround, no backreference. Linear still
means states times characters, and few characters can write many states, so the size of each is measured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from . import compiled
from .bounds import MAX_PATTERN, refuse

_SIZES: Final = (*(step << power for power in range(6, 20) for step in (4, 5, 6, 7)), compiled.MAX_PROGRAM)
"""Bytes to try: from 256 to 4 MiB, each a quarter or less above the one before."""
_REPEATED_GROUP: Final = "){"
_MAX_WRITTEN_OUT: Final = 10 << 20


class Pattern(NamedTuple):
    """``matches`` searches anywhere in a text; the program has at most ``size`` bytes."""

    matches: Callable[[str], bool]
    size: int


@lru_cache(maxsize=1024)
def find(pattern: str) -> Pattern | None:
    """Compile a pattern into as little as it takes; None where the engine refuses it."""
    fits = bisect_left(_SIZES, True, key=lambda size: compiled.matches(pattern, size) is not None)
    if fits == len(_SIZES):
        return None
    # The engine leaves out what a search does not need, however absurd: judge it where it must not.
    if _REPEATED_GROUP in pattern and compiled.matches(f"x(?:{pattern})x", _MAX_WRITTEN_OUT) is None:
        return None
    matches = compiled.matches(pattern, _SIZES[fits])
    return None if matches is None else Pattern(matches, _SIZES[fits])


def check(pattern: object, where: str) -> int:
    """Refuse what is no pattern or can't be matched in linear time; the size of its program otherwise."""
    if not isinstance(pattern, str):
        refuse("pattern must be a string", where)
    if len(pattern) > MAX_PATTERN:
        refuse(f"the pattern has {len(pattern):,} characters, more than {MAX_PATTERN}", where)
    if compiled.engine() is None:
        refuse("no pattern can be matched in linear time here", where, "install jsonschema-rs for this platform")
    found = find(pattern)
    if found is None:
        refuse(
            "the pattern can't be matched in linear time",
            where,
            "leave out lookaround and backreferences, escape a literal - in a class, and repeat less",
        )
    return found.size
