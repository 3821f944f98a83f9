"""What a check may cost at most, known before any instance is.

A schema's cost is counted for the dearest single place of an instance: how many steps of the compiled engine
all subschemas together may spend there, and how many on each character of a text there. Two things make it
grow beyond the schema's own size: several subschemas that lead to the same place below, again and again (two
to the power of the levels, by recursion or by definitions that use each other), and ``unevaluated*``, for
which everything in place is judged once more, which nests.

The weights were measured with jsonschema-rs 0.61: a step is about 20 ns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from . import patterns
from .graph import Each, Graph, Node

MAX_STEPS: Final = 10_000_000
"""About a fifth of a second."""

_MAX_LEVELS: Final = 64
"""No message has more."""
_MAX_NESTING: Final = 1_000
"""Subschemas inside one another, at 400 bytes of native stack: an overflow would end the process."""
_NUMBER: Final = 45
"""Steps to compare with a number that is no small integer."""
_MARK: Final = 4
"""Steps, for each of a first judgement, to find out once more what was evaluated."""
_UNIQUE: Final = 10
_PROGRAM_BYTES: Final = 128
"""Of a pattern's program that one step for a character may walk."""
_NUMERIC: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_NAMING: Final = ("required", "dependentRequired", "dependencies", "dependentSchemas")


class _Below(NamedTuple):
    """Steps at the places below: at those that have a name or an index, and at any other member or item."""

    named: dict[str | int, float]
    member: float
    item: float

    def at(self, place: str | int) -> float:
        return self.named.get(place, self.item if isinstance(place, int) else self.member)

    def dearest(self) -> float:
        return max(self.member, self.item, *self.named.values())


class Extent(NamedTuple):
    """How large an instance is: its values, the characters of its texts and names, its levels (1 for a scalar)."""

    values: int
    characters: int
    levels: int


class Cost(NamedTuple):
    """Steps at most for each value of an instance, its name included, and for each character.

    Both are given for instances of one level, of two, and so on; the last is for all that have more.
    """

    value: tuple[float, ...]
    character: tuple[float, ...]
    chain: int
    """Subschemas that one level can put on the native stack; 0 where the schema has an end itself."""

    def of(self, extent: Extent) -> float:
        """Steps at most for an instance of this extent."""
        if self.chain * extent.levels > _MAX_NESTING:
            return math.inf
        value, character = (growth[min(extent.levels, len(growth)) - 1] for growth in (self.value, self.character))
        return value * extent.values + character * extent.characters

    def of_a_byte(self) -> float:
        """Steps at most for each byte of an instance's JSON, if nothing but that is known of it."""
        # No value is written in less than two bytes, its comma included, and no character in less than one.
        return math.inf if self.chain else self.value[-1] / 2 + self.character[-1]


def estimate(graph: Graph) -> Cost:
    """Bound the cost of checking an instance."""
    characters = _growth(graph, _character_steps, _name_steps) if _has_patterns(graph) else (0.0,)
    return Cost(_growth(graph, _steps, _member_steps), characters, graph.chain() if graph.recursive else 0)


def _has_patterns(graph: Graph) -> bool:
    return any("pattern" in node.schema or "patternProperties" in node.schema for node in graph.bottom_up)


# --- the dearest place --------------------------------------------------------------------------------

_Weigh: TypeAlias = Callable[[dict[str, Any]], float]


def _growth(graph: Graph, weigh: _Weigh, weigh_below: _Weigh) -> tuple[float, ...]:
    here = _here(graph, weigh)
    extra = {node: float(weigh_below(node.schema)) for node in graph.bottom_up}
    worst = dict(here)
    if not graph.recursive:
        # Each node stands after those that it applies below: one pass sees all levels.
        _deepen(graph, extra, worst, worst)
        return (worst[graph.root],)
    growth = [worst[graph.root]]
    while growth[-1] <= MAX_STEPS:
        if len(growth) > _MAX_LEVELS:
            return (*growth, math.inf)
        if not _deepen(graph, extra, dict(worst), worst):
            break
        growth.append(worst[graph.root])
    return tuple(growth)


def _here(graph: Graph, weigh: _Weigh) -> dict[Node, float]:
    """Steps at the place itself."""
    judge: dict[Node, float] = {}
    mark: dict[Node, float] = {}
    for node in graph.bottom_up:
        own = float(weigh(node.schema))  # an integer would grow without end
        judge[node] = own + sum(judge[applied] for applied in node.in_place)
        mark[node] = _MARK * own + sum(judge[applied] + mark[applied] for applied in node.in_place)
        if node.looks_back:
            judge[node] += mark[node]
    return judge


def _deepen(graph: Graph, extra: dict[Node, float], known: dict[Node, float], worst: dict[Node, float]) -> bool:
    """Raise each node's worst place by what is known of the places below; False when nothing rose."""
    rose = False
    judge: dict[Node, _Below] = {}
    mark: dict[Node, _Below] = {}
    for node in graph.bottom_up:
        judge[node] = mark[node] = _own_below(node, extra[node], known)
        for applied in node.in_place:
            judge[node] = _together(judge[node], judge[applied])
            mark[node] = _together(_together(mark[node], judge[applied]), mark[applied])
        if node.looks_back:
            judge[node] = _together(judge[node], mark[node])
        dearest = judge[node].dearest()
        if dearest > worst[node]:
            worst[node] = dearest
            rose = True
    return rose


def _own_below(node: Node, extra: float, known: dict[Node, float]) -> _Below:
    member = item = extra
    other = 0.0
    named: dict[str | int, float] = {}
    for place, applied in node.below:
        steps = known[applied]
        if place is Each.MEMBER:
            member += steps
        elif place is Each.OTHER_MEMBER:
            other += steps
        elif place is Each.ITEM:
            item += steps
        else:
            named[place] = steps
    if member or item:
        named = {place: steps + (item if isinstance(place, int) else member) for place, steps in named.items()}
    return _Below(named, member + other, item)


def _together(one: _Below, two: _Below) -> _Below:
    named = {place: one.at(place) + two.at(place) for place in one.named.keys() | two.named.keys()}
    return _Below(named, one.member + two.member, one.item + two.item)


# --- single keywords ----------------------------------------------------------------------------------


def _steps(schema: dict[str, Any]) -> float:
    steps = len(schema) + sum(_NUMBER for keyword in _NUMERIC if keyword in schema)
    steps += sum(len(schema[keyword]) for keyword in _NAMING if isinstance(schema.get(keyword), list | dict))
    if "const" in schema:
        steps += _comparison(schema["const"])
    if isinstance(schema.get("enum"), list) and not _hashed(schema["enum"]):
        steps += sum(_comparison(option) for option in schema["enum"])
    return steps


def _member_steps(schema: dict[str, Any]) -> float:
    return len(schema.get("patternProperties", ())) + (_UNIQUE if "uniqueItems" in schema else 0)


def _character_steps(schema: dict[str, Any]) -> float:
    return _pattern_steps(schema["pattern"]) if "pattern" in schema else 0


def _name_steps(schema: dict[str, Any]) -> float:
    return sum(_pattern_steps(pattern) for pattern in schema.get("patternProperties", ()))


def _pattern_steps(pattern: str) -> float:
    found = patterns.find(pattern)
    return found.size / _PROGRAM_BYTES if found else 0


def _comparison(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(_comparison(each) for each in value.values())
    if isinstance(value, list):
        return 1 + sum(_comparison(each) for each in value)
    return 1 if isinstance(value, str) or _small(value) else _NUMBER


def _hashed(options: list[object]) -> bool:
    """The engine looks up options of one simple type instead of comparing with each."""
    return all(isinstance(option, str) for option in options) or all(_small(option) for option in options)


def _small(value: object) -> bool:
    return value is None or (isinstance(value, int) and abs(value) < 1 << 63)
