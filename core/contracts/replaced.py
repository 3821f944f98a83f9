"""Keywords of the reference engine that are no good against strangers, written anew.

======================  ===================================================================================
keyword                 what is wrong with ``jsonschema``'s own
======================  ===================================================================================
pattern,                use ``re``, which backtracks, knows other classes than ECMA 262, and lets ``$`` match
patternProperties,      before a last newline
additionalProperties,
unevaluatedProperties
properties, items,      lose the place where a subschema is ``false``, and can't be paid for one by one
prefixItems
unevaluatedItems        quadratic; fails on a boolean ``items`` in 2019-09
uniqueItems             quadratic
additionalItems         fails beside a boolean ``items``
multipleOf              counts in floats, where 19.99 is no multiple of 0.01
======================  ===================================================================================

A tuple is an array, as it is for whoever encodes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from . import patterns
from .budget import CheckTooExpensive, current
from .pointer import resolve, unquote

if TYPE_CHECKING:
    from jsonschema import ValidationError

Keyword: TypeAlias = "Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]"
"""``(validator, value of the keyword, instance, schema)``."""

# What is done in the time of one step.
_CANONICAL: Final = 512  # characters of canonical JSON
_PROGRAM_BYTES: Final = 128_000  # of patterns, walked once a character


def error(*path: str | int) -> ValidationError:
    """An error without text: it is told from the keyword and the schema."""
    from jsonschema import ValidationError

    return ValidationError("", path=path)


# --- patterns -----------------------------------------------------------------------------------------


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield error()


def _matches(pattern: str, text: str) -> bool:
    found = patterns.find(pattern)
    if found is None:
        raise CheckTooExpensive
    current.get().spend(1 + len(text) * found.size // _PROGRAM_BYTES)
    return found.matches(text)


# --- members ------------------------------------------------------------------------------------------


def _below(validator: Any, value: Any, subschema: Any, place: str | int) -> Iterator[ValidationError]:
    current.get().spend(1)
    if subschema is False:
        yield error(place)
    else:
        yield from validator.descend(value, subschema, path=place, schema_path=place)


def _properties(validator: Any, properties: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for name, subschema in properties.items():
            if name in instance:
                yield from _below(validator, instance[name], subschema, name)


def _pattern_properties(validator: Any, named: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in named.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from _below(validator, value, subschema, name)


def _additional_properties(validator: Any, other: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        yield from _others(validator, other, instance.items(), _named(instance, schema))


def _unevaluated_properties(validator: Any, other: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        yield from _others(validator, other, instance.items(), _evaluated(validator, instance, schema))


def _others(validator: Any, other: Any, pairs: Any, known: set[Any]) -> Iterator[ValidationError]:
    for place, value in pairs:
        if place not in known:
            yield from _below(validator, value, other, place)


def _named(instance: dict[str, Any], schema: dict[str, Any]) -> set[Any]:
    named = {name for name in instance if name in schema.get("properties", ())}
    for pattern in schema.get("patternProperties", ()):
        named.update(name for name in instance if _matches(pattern, name))
    return named


# --- items --------------------------------------------------------------------------------------------


def _prefix_items(validator: Any, listed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, list | tuple):
        for index, (item, subschema) in enumerate(zip(instance, listed, strict=False)):
            yield from _below(validator, item, subschema, index)


def _items(validator: Any, items: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, list | tuple):
        return
    if isinstance(items, list):
        yield from _prefix_items(validator, items, instance, schema)
    else:
        listed = schema.get("prefixItems", ()) if "prefixItems" in validator.VALIDATORS else ()
        yield from _others(validator, items, enumerate(instance), set(range(len(listed))))


def _additional_items(validator: Any, other: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    listed = schema.get("items")
    if isinstance(listed, list) and isinstance(instance, list | tuple):
        yield from _others(validator, other, enumerate(instance), set(range(len(listed))))


def _unevaluated_items(validator: Any, other: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, list | tuple):
        yield from _others(validator, other, enumerate(instance), _evaluated(validator, instance, schema))


def _listed(validator: Any, instance: Any, schema: dict[str, Any]) -> set[Any]:
    items = schema.get("prefixItems", schema.get("items"))
    seen = set(range(len(items))) if isinstance(items, list) else set()
    # jsonschema-rs counts them in 2019-09 as well, where they should not: both engines must say the same.
    if "contains" in schema:
        contained = validator.evolve(schema=schema["contains"])
        seen.update(index for index, item in enumerate(instance) if contained.is_valid(item))
    return seen


def _unique_items(validator: Any, unique: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if unique and isinstance(instance, list | tuple):
        keys = [_canonical(item) for item in instance]
        current.get().spend(sum(map(len, keys)) // _CANONICAL)
        if len(set(keys)) < len(keys):
            yield error()


def _canonical(value: Any) -> str:
    """Write equal values alike: 1 and 1.0, but not true; objects in any order.

    Text and no tuple, since numbers of one and the same hash are easily found, and such texts are not.
    """
    if isinstance(value, dict):
        members = (f"{json.dumps(name)}:{_canonical(each)}" for name, each in value.items())
        return "{" + ",".join(sorted(members)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


# --- what was evaluated (2020-12, core, section 11) -----------------------------------------------------


def _evaluated(validator: Any, instance: Any, schema: Any) -> set[Any]:
    """Names or indices that a schema, if it holds, has judged; but not by its own ``unevaluated*``."""
    if isinstance(schema, bool):
        return set()
    if _judges_all(instance, schema):
        return _places(instance)
    seen = _named(instance, schema) if isinstance(instance, dict) else _listed(validator, instance, schema)
    for applied in _holding(validator, instance, schema):
        seen |= _evaluated(validator, instance, applied)
        if isinstance(applied, dict) and _looks_back(instance) in applied:
            return _places(instance)
    return seen


def _judges_all(instance: Any, schema: dict[str, Any]) -> bool:
    if isinstance(instance, dict):
        return "additionalProperties" in schema
    return not isinstance(schema.get("items", []), list) or (
        "additionalItems" in schema and isinstance(schema.get("items"), list)
    )


def _looks_back(instance: Any) -> str:
    return "unevaluatedProperties" if isinstance(instance, dict) else "unevaluatedItems"


def _places(instance: Any) -> set[Any]:
    return set(instance) if isinstance(instance, dict) else set(range(len(instance)))


def _holding(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[Any]:
    """The subschemas in place that hold for the instance."""

    def holds(subschema: Any) -> bool:
        return bool(validator.evolve(schema=subschema).is_valid(instance))

    if "$ref" in schema:
        yield resolve(current.get().root, unquote(schema["$ref"][1:]))
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from filter(holds, schema.get(keyword, ()))
    if "if" in schema:
        condition = holds(schema["if"])
        if condition:
            yield schema["if"]
        yield schema.get("then" if condition else "else", True)
    if isinstance(instance, dict):
        for name, subschema in schema.get("dependentSchemas", {}).items():
            if name in instance:
                yield subschema


# --- numbers ------------------------------------------------------------------------------------------


def _multiple_of(validator: Any, divisor: float, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "number") and (_exact(instance) / _exact(divisor)).denominator != 1:
        yield error()


def _exact(number: float) -> Fraction:
    """The number as it was written: 0.01 is a hundredth."""
    return Fraction(number) if isinstance(number, int) or number.is_integer() else Fraction(Decimal(repr(number)))


REPLACED: Final[dict[str, Keyword]] = {
    "additionalItems": _additional_items,
    "additionalProperties": _additional_properties,
    "items": _items,
    "multipleOf": _multiple_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "prefixItems": _prefix_items,
    "properties": _properties,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
