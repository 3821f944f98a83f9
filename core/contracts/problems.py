"""What is wrong with an instance, in words that hold nothing of it but the names of its members."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from .pointer import quoted, show

if TYPE_CHECKING:
    from jsonschema import ValidationError

MAX_PROBLEMS: Final = 10
_MAX_SHOWN: Final = 200
"""Characters of what the schema says: that may be 64 KiB."""
_MAX_OPTIONS: Final = 10
_MAX_COMPARED: Final = 64
"""Names of properties, and characters in one, among which a misspelt one is looked for."""
_MAX_NESTING: Final = 8
"""Alternatives within alternatives that are looked into."""


class Problem(NamedTuple):
    """One fault: a JSON pointer into the instance, and what is wrong there."""

    pointer: str
    problem: str


NO_JSON: Final = Problem("", "holds something that is no JSON value, or too many levels")
SOMETHING: Final = Problem("", "does not fit the schema; where, is too expensive to find out")


def describe(error: ValidationError, depth: int = 0) -> Iterator[Problem]:
    """Say what an error of the reference engine is about; a missing property is told at its own place."""
    path = list(error.absolute_path)
    keyword, value = error.validator, cast(Any, error.validator_value)
    if keyword == "required":
        yield from (_at([*path, name], "required property is missing") for name in _missing(value, error.instance))
    elif keyword in ("dependentRequired", "dependencies"):
        yield from _dependents(path, value, error.instance)
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        yield _at(path, _unknown(str(path[-1]), error.schema))
    elif keyword in ("anyOf", "oneOf") and error.context and depth < _MAX_NESTING:
        yield from _alternatives(path, error, depth)
    else:
        say = _SAY.get(str(keyword))
        yield _at(path, say(value) if say else "is not allowed here")


def _at(path: Iterable[str | int], problem: str) -> Problem:
    return Problem(show(path), problem)


# --- properties ---------------------------------------------------------------------------------------


def _missing(required: Iterable[str], instance: Any) -> Iterator[str]:
    return (name for name in required if name not in instance)


def _dependents(path: list[str | int], dependent: dict[str, Any], instance: Any) -> Iterator[Problem]:
    for name, required in dependent.items():
        if name in instance and isinstance(required, list):
            for missing in _missing(required, instance):
                yield _at([*path, missing], f"property is missing, which {quoted(name)} requires")


def _unknown(name: str, schema: Any) -> str:
    import difflib

    known = [each for each in islice(schema.get("properties", ()), _MAX_COMPARED) if len(each) <= _MAX_COMPARED]
    close = difflib.get_close_matches(name[:_MAX_COMPARED], known, n=1)
    return f"unknown property {quoted(name)}" + (f"; did you mean {quoted(close[0])}?" if close else "")


# --- alternatives -------------------------------------------------------------------------------------


def _alternatives(path: list[str | int], error: ValidationError, depth: int) -> Iterator[Problem]:
    """Where the type leaves one alternative open, say what is wrong with that one; all types, where none."""
    branches: dict[Any, list[ValidationError]] = defaultdict(list)
    for inner in error.context or ():
        if inner.relative_schema_path:  # an alternative that is `false` has none, and nothing to say
            branches[inner.relative_schema_path[0]].append(inner)
    wrong_type = [next(filter(_is_about_type, errors), None) for errors in branches.values()]
    open_branches = [errors for errors, wrong in zip(branches.values(), wrong_type, strict=True) if wrong is None]
    if len(open_branches) == 1:
        for inner in open_branches[0]:
            yield from describe(inner, depth + 1)
    elif branches and not open_branches:
        types = [name for wrong in wrong_type if wrong for name in _names(cast(Any, wrong.validator_value))]
        yield _at(path, _type(list(dict.fromkeys(types))))
    else:
        yield _at(path, "fits none of the alternatives")


def _is_about_type(error: ValidationError) -> bool:
    return error.validator == "type" and not error.relative_path


# --- single keywords ----------------------------------------------------------------------------------


def _names(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def _type(types: str | list[str]) -> str:
    return f"expected type {' or '.join(_names(types))}"


def _enum(options: list[Any]) -> str:
    shown = ", ".join(_json(option) for option in options[:_MAX_OPTIONS])
    more = ", …" if len(options) > _MAX_OPTIONS else ""
    return f"is not one of the {len(options)} allowed values: {_cut(shown)}{more}"


def _json(value: Any) -> str:
    return _cut(json.dumps(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _limit(text: str) -> Callable[[Any], str]:
    return lambda value: text.format(_json(value))


_SAY: Final[dict[str, Callable[[Any], str]]] = {
    "type": _type,
    "enum": _enum,
    "const": _limit("must be {}"),
    "minimum": _limit("is less than the minimum {}"),
    "maximum": _limit("is greater than the maximum {}"),
    "exclusiveMinimum": _limit("must be greater than {}"),
    "exclusiveMaximum": _limit("must be less than {}"),
    "multipleOf": _limit("is not a multiple of {}"),
    "minLength": _limit("has fewer characters than {}"),
    "maxLength": _limit("has more characters than {}"),
    "pattern": _limit("does not match the pattern {}"),
    "minItems": _limit("has fewer items than {}"),
    "maxItems": _limit("has more items than {}"),
    "uniqueItems": lambda _: "has equal items, but each must be another",
    "items": lambda _: "is one item more than are allowed",
    "additionalItems": lambda _: "is one item more than are allowed",
    "unevaluatedItems": lambda _: "is one item more than are allowed",
    "contains": lambda _: "has no item of the kind that it must contain",
    "minContains": _limit("has fewer items than {} of the kind that it must contain"),
    "maxContains": _limit("has more items than {} of the kind that it may contain"),
    "minProperties": _limit("has fewer properties than {}"),
    "maxProperties": _limit("has more properties than {}"),
    "propertyNames": lambda _: "has a property of a name that is not allowed",
    "anyOf": lambda _: "fits none of the alternatives",
    "oneOf": lambda _: "fits more than one of the alternatives",
    "not": lambda _: "fits what it must not fit",
}
