"""Checks of instances against one schema that passed the gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from ...hookspecs.errors import McpToolInvalid
from . import compiled
from .budget import CheckTooExpensive
from .cost import MAX_STEPS, Cost, Extent, estimate
from .gate import check_validity, prepare
from .metered import Reference
from .problems import MAX_PROBLEMS, NO_JSON, SOMETHING, Problem, describe

_encode = msgspec.json.Encoder().encode

_NONE: tuple[Problem, ...] = ()


def compile(schema: object) -> Validator:
    """Make the validator of a schema that :func:`.gate` let in; raises McpToolInvalid for what is no schema."""
    prepared, dialect, graph = prepare(schema)
    check_validity(prepared, dialect)
    try:
        fits = None if compiled.overflows(graph) else compiled.fits(prepared, dialect)
    except ValueError as error:
        raise McpToolInvalid("not a valid schema: the engine can't compile it", where="") from error
    return Validator(fits, estimate(graph), Reference(prepared, dialect))


class Validator:
    """One schema, ready to check instances."""

    __slots__ = ("_cost", "_fits", "_reference", "_steps_a_byte")

    def __init__(self, fits: Callable[[Any], bool] | None, cost: Cost, reference: Reference) -> None:
        self._fits = fits
        self._reference = reference
        self._cost = cost
        self._steps_a_byte = cost.of_a_byte()

    def problems(self, instance: object, limit: int = MAX_PROBLEMS, *, size: int | None = None) -> Sequence[Problem]:
        """Say what is wrong with an instance, at most ``limit`` faults; empty where it fits.

        ``size`` is that of its JSON in bytes, where that is known. Raises CheckTooExpensive where it can't be judged
        within bounds.
        """
        return _NONE if self.fits(instance, size) else self._explain(instance, limit)

    def fits(self, instance: object, size: int | None = None) -> bool:
        """Judge an instance without a word; raises CheckTooExpensive."""
        try:
            if size is None:
                size = len(_encode(instance))
            if self._fits is not None and (size * self._steps_a_byte <= MAX_STEPS or self._affordable(instance)):
                return self._fits(instance)
        except (TypeError, ValueError, RecursionError):
            return False
        return self._reference.fits(instance)

    def _affordable(self, instance: object) -> bool:
        return self._cost.of(_extent(instance)) <= MAX_STEPS

    def _explain(self, instance: object, limit: int) -> Sequence[Problem]:
        found: dict[Problem, None] = {}
        try:
            _encode(instance)
            with self._reference.errors(instance) as errors:
                for error in errors:
                    found.update(dict.fromkeys(islice(describe(error), limit)))
                    if len(found) >= limit:
                        break
        except CheckTooExpensive:
            # It does not fit, that much is known; only the rest of the reasons is too expensive.
            pass
        except (TypeError, ValueError, RecursionError):
            return (NO_JSON,)
        return tuple(found)[:limit] or (SOMETHING,)


def _extent(instance: object) -> Extent:
    values = characters = levels = 0
    level: list[Any] = [instance]
    while level:
        levels += 1
        values += len(level)
        below: list[Any] = []
        for each in level:
            if isinstance(each, str):
                characters += len(each)
            elif isinstance(each, dict):
                characters += sum(map(len, each))
                below.extend(each.values())
            elif isinstance(each, list | tuple):
                below.extend(each)
        level = below
    return Extent(values, characters, levels)
