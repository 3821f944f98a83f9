"""JSON Schemas for consumers that take less of JSON Schema than MCP allows; for whoever writes a converter.

:func:`weaken` tells a consumer as much of a schema as it takes and never more than the schema says: whatever the schema
accepts, the weakened one accepts. What it can't tell stands in the notes. Nothing is lost by that: each call is checked
against the schema itself.

=====================================  ==============================================================================
what is met                            what becomes of it
=====================================  ==============================================================================
``$ref``                               what it names stands in its place; a recursion is cut off at its second turn
older dialects                         2020-12: tuples, ``dependencies``, ``$ref`` beside which nothing else counts
several forms at the top               one form: the properties of all, the requirements that they share
``type`` lists                         ``anyOf``, where the consumer takes no lists
arrays and objects without their parts ``items: {}`` and ``properties: {}``, which mean the same
keywords that the consumer lacks       left out, where that makes the schema weaker; else with what they belong to
too deep, too much                     from there on only the type and the description
=====================================  ==============================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ._schema_algebra import ANNOTATIONS, Tell, any_of, completed, conjoin, flatten
from ._schema_references import is_resource, mapping, resolved

_words = str.split

BASIC_KEYWORDS = frozenset(
    _words(
        "type properties required additionalProperties items enum const anyOf minimum maximum exclusiveMinimum"
        " exclusiveMaximum multipleOf minLength maxLength pattern format minItems maxItems uniqueItems minProperties"
        " maxProperties"
    )
)
"""What every consumer of tools takes."""

MORE_KEYWORDS = frozenset(
    _words(
        "oneOf allOf not if then else prefixItems patternProperties propertyNames dependentRequired dependentSchemas"
    )
)
"""What some take besides. Anything that is in neither, such as ``unevaluatedProperties``, is always left out."""

_MOST_NODES = 5_000
_MOST_LEVELS = 40
_MOST_NOTES = 20
_NODE_CHARACTERS = 64  # what is copied as it is counts as well: references could multiply it
_COPIED = frozenset({*ANNOTATIONS, "enum", "const", "pattern", "required"})
_SIBLINGS_COUNT_NOT = re.compile(r"draft-0[34567]\b")
_TUPLES_ARE_ITEMS = re.compile(r"draft-0[34567]\b|draft/2019-09\b")

_OF_TYPE = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "minItems", "maxItems", "uniqueItems"),
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_OF_TYPE["integer"] = _OF_TYPE["number"]
_TYPES = frozenset({*_OF_TYPE, "boolean", "null"})
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = frozenset({*_OF_TYPE["number"], *_COUNTS})
_GONE = ("unevaluatedProperties", "unevaluatedItems", "contains", "$dynamicRef", "$recursiveRef")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a consumer takes.

    ``property_name`` is a pattern for whole names of properties; ``depth`` counts properties in properties and items in
    items; ``bytes`` are those of the whole schema as JSON.
    """

    keywords: frozenset[str] = BASIC_KEYWORDS
    type_lists: bool = False
    property_name: str | None = None
    depth: int = 10
    bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class Weakened:
    """A schema that is an object's, and what it could not tell: a line each, with the place."""

    schema: Json
    notes: tuple[str, ...] = ()


def weaken(schema: Any, accepted: Accepted) -> Weakened:
    """Fit a tool's ``parameters`` to a consumer. Terminates on any JSON; never raises for what a schema says."""
    for depth in sorted({accepted.depth, *(d for d in (6, 4, 2, 1) if d < accepted.depth)}, reverse=True):
        work = _Work(schema if isinstance(schema, Mapping) else {}, accepted, depth)
        fitted = work.run()
        if len(json.dumps(fitted, ensure_ascii=False, default=str).encode("utf-8", "replace")) <= accepted.bytes:
            return Weakened(fitted, _shown(work.notes))
    return Weakened({"type": "object", "properties": {}}, ("the schema is too large: nothing of it is told",))


def _shown(notes: Mapping[str, None]) -> tuple[str, ...]:
    lines = tuple(notes)
    more = len(lines) - _MOST_NOTES
    return (*lines[:_MOST_NOTES], f"and {more} more") if more > 0 else lines


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the work is: the resource that references are relative to, and how deep it stands."""

    base: Mapping[str, Any]
    where: str = ""
    depth: int = 0
    level: int = 0
    chain: tuple[int, ...] = ()

    def down(self, *steps: object, depth: int = 0) -> _Place:
        where = "".join(f"/{step}" for step in steps)
        return replace(self, where=self.where + where, depth=self.depth + depth, level=self.level + 1)


class _Work:
    """One pass over one schema."""

    def __init__(self, root: Mapping[str, Any], accepted: Accepted, depth: int) -> None:
        self.notes: dict[str, None] = {}
        self._root = root
        self._accepted = accepted
        self._takes = accepted.keywords
        self._depth = depth
        self._changes = 0
        self._nodes = 0
        dialect = str(root.get("$schema", ""))
        self._lone_refs = bool(_SIBLINGS_COUNT_NOT.search(dialect))
        self._item_tuples = bool(_TUPLES_ARE_ITEMS.search(dialect))
        name = accepted.property_name
        self._fits_name: Callable[[str], object] = re.compile(name).fullmatch if name else lambda _: True

    def run(self) -> Json:
        fitted = self._node(self._root, _Place(self._root))
        if not isinstance(fitted, dict):
            self._note("", "that no arguments fit is left out")
            fitted = {}
        one = flatten(fitted, self._tell(""))
        return {**one, "type": "object", "properties": one.get("properties", {})}

    def _note(self, where: str, words: str) -> None:
        self._changes += 1
        self.notes.setdefault(f"{where or '/'}: {words}")

    def _tell(self, where: str) -> Tell:
        return lambda words: self._note(where, words)

    # --- one schema -----------------------------------------------------------------------------------

    def _node(self, schema: Any, place: _Place) -> Json | bool:
        """``schema`` as the consumer takes it; ``False`` where nothing fits it."""
        if isinstance(schema, bool):
            return {} if schema else False
        if not isinstance(schema, Mapping):
            return {}
        self._nodes += 1
        if place.depth > self._depth or place.level > _MOST_LEVELS or self._nodes > _MOST_NODES:
            return self._cut(schema, place, "too deep, or too much: only its type is told")
        if is_resource(schema):
            place = replace(place, base=schema)
        if isinstance(schema.get("$ref"), str):
            return self._referring(schema, place)
        return self._plain(schema, place)

    def _cut(self, schema: Mapping[str, Any], place: _Place, words: str) -> Json:
        shallow = {key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)}
        if isinstance(schema.get("type"), str) and schema["type"] in _TYPES and "$ref" not in schema:
            shallow["type"] = schema["type"]
        self._note(place.where, words)
        return completed(shallow)

    def _referring(self, schema: Mapping[str, Any], place: _Place) -> Json | bool:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if self._lone_refs:
            rest = {key: value for key, value in rest.items() if key in ANNOTATIONS}
        named = self._named(schema["$ref"], place)
        if named is False:
            return False
        beside = self._plain(rest, place)
        return False if beside is False else self._all([beside, named], place)

    def _named(self, reference: str, place: _Place) -> Json | bool:
        target, base = resolved(reference, place.base)
        if target is None:
            self._note(place.where, "a reference that leads nowhere is left out")
            return {}
        key = id(target)
        if not isinstance(target, bool) and (key in place.chain or len(place.chain) >= _MOST_LEVELS):
            return self._cut(target, place, "a recursion is cut off here")
        return self._node(target, replace(place, base=base, chain=(*place.chain, key), level=place.level + 1))

    def _plain(self, schema: Mapping[str, Any], place: _Place) -> Json | bool:
        self._nodes += sum(len(str(schema[key])) for key in _COPIED & schema.keys()) // _NODE_CHARACTERS
        out: Json = {key: schema[key] for key in ANNOTATIONS if key in schema}
        for key in ("title", "description"):
            if not isinstance(out.get(key, ""), str):
                del out[key]
        self._scalars(schema, out, place)
        self._object(schema, out, place)
        self._array(schema, out, place)
        for key in _GONE:
            if key in schema:
                self._note(place.where, f"{key} is left out")
        parts = [self._split(completed(out), place)]
        for part in self._combined(schema, place):
            if part is False:
                return False
            parts.append(part)
        return self._all(parts, place)

    def _all(self, parts: list[Any], place: _Place) -> Json:
        return conjoin(parts, self._tell(place.where), keep="allOf" in self._takes)

    def _scalars(self, schema: Mapping[str, Any], out: Json, place: _Place) -> None:
        for key in (key for key in schema if key in _NUMBERS):
            value = schema[key]
            counts = key in _COUNTS
            if (
                isinstance(value, int if counts else int | float)
                and type(value) is not bool
                and (not counts or value >= 0)
            ):
                out[key] = value
            else:
                self._note(place.where, f"{key} is no number that it can be, and is left out")
        kinds: dict[str, type] = {"pattern": str, "format": str, "uniqueItems": bool}
        out.update({key: schema[key] for key, kind in kinds.items() if isinstance(schema.get(key), kind)})
        if "const" in schema:
            out["const"] = schema["const"]
        if isinstance(schema.get("enum"), list):
            if schema["enum"]:
                out["enum"] = schema["enum"]
            else:
                self._note(place.where, "a choice of nothing is left out")
        types = schema.get("type")
        if isinstance(types, list):
            types = [each for each in types if isinstance(each, str) and each in _TYPES]
            types = types[0] if len(types) == 1 else types
        if (isinstance(types, list) and types) or (isinstance(types, str) and types in _TYPES):
            out["type"] = types

    # --- objects and arrays ---------------------------------------------------------------------------

    def _object(self, schema: Mapping[str, Any], out: Json, place: _Place) -> None:
        names = schema.get("required")
        if isinstance(names, list) and names:
            out["required"] = list(dict.fromkeys(name for name in names if isinstance(name, str)))
        opened = self._properties(schema, out, place)
        patterns = schema.get("patternProperties")
        if isinstance(patterns, Mapping) and patterns:
            if "patternProperties" in self._takes:
                fitted = self._each(patterns, place, "patternProperties")
                out["patternProperties"] = self._possible(fitted, place)
            else:
                opened = True
                self._note(place.where, "patternProperties is left out")
        if "additionalProperties" in schema:
            if opened and schema["additionalProperties"] not in (True, {}):
                self._note(place.where, "additionalProperties is left out: other names than those told may come")
            elif not opened:
                out["additionalProperties"] = self._below(schema["additionalProperties"], place, "additionalProperties")
        self._names_and_dependents(schema, out, place)

    def _properties(self, schema: Mapping[str, Any], out: Json, place: _Place) -> bool:
        """Whether a property had to be left out, so that others than those told must be let through."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return False
        fit = {name: part for name, part in properties.items() if self._fits_name(name)}
        for name in properties.keys() - fit.keys():
            self._note(
                place.where, f"the property {name[:80]!r} can't be told by this name, and may be given all the same"
            )
        fitted = self._each(fit, place, "properties")
        out["properties"] = self._possible(fitted, place)
        return len(fit) < len(properties)

    def _possible(self, schemas: Mapping[str, Any], place: _Place) -> Json:
        for name in (name for name, part in schemas.items() if part is False):
            self._note(place.where, f"that {name[:80]!r} may not be given is left out")
        return {name: part for name, part in schemas.items() if part is not False}

    def _each(self, schemas: Mapping[str, Any], place: _Place, key: str) -> Json:
        return {name: self._node(part, place.down(key, name, depth=1)) for name, part in schemas.items()}

    def _below(self, schema: Any, place: _Place, key: str) -> Any:
        """For a keyword that takes ``true`` as well."""
        return True if schema is True else self._node(schema, place.down(key, depth=1))

    def _names_and_dependents(self, schema: Mapping[str, Any], out: Json, place: _Place) -> None:
        if self._lone_refs:
            older = mapping(schema, "dependencies")
            required = {name: names for name, names in older.items() if isinstance(names, list)}
            schemas = {name: part for name, part in older.items() if name not in required}
        else:
            required = dict(mapping(schema, "dependentRequired"))
            schemas = dict(mapping(schema, "dependentSchemas"))
        for key, value in (("dependentRequired", required), ("dependentSchemas", schemas)):
            if value and key not in self._takes:
                self._note(place.where, f"{key} is left out")
            elif value:
                out[key] = value if key == "dependentRequired" else self._each(value, place, key)
        if "propertyNames" in schema and schema["propertyNames"] not in (True, {}):
            fitted = self._node(schema["propertyNames"], place.down("propertyNames"))
            if "propertyNames" in self._takes and isinstance(fitted, dict):
                out["propertyNames"] = fitted
            else:
                self._note(place.where, "propertyNames is left out")

    def _array(self, schema: Mapping[str, Any], out: Json, place: _Place) -> None:
        rest = schema.get("items", True)
        prefix: Any = [] if self._item_tuples else schema.get("prefixItems")
        if self._item_tuples and isinstance(rest, list):
            prefix, rest = rest, schema.get("additionalItems", True)
        if isinstance(prefix, list) and prefix:
            self._tuple(prefix, rest, out, place)
        elif "items" in schema:
            below = self._below(rest, place, "items")
            out["items"] = {} if isinstance(below, bool) else below
            if below is False:
                out["maxItems"] = 0

    def _tuple(self, prefix: list[Any], rest: Any, out: Json, place: _Place) -> None:
        first = [self._node(part, place.down("prefixItems", at, depth=1)) for at, part in enumerate(prefix)]
        after = self._below(rest, place, "items")
        if after is False:
            out["maxItems"] = min(out.get("maxItems", len(first)), len(first))
        if "prefixItems" in self._takes:
            if False in first:
                self._note(place.where, "where a tuple must end is left out")
            out["prefixItems"] = [part if isinstance(part, dict) else {} for part in first]
            out["items"] = after if isinstance(after, dict) else {}
            return
        self._note(place.where, "a tuple is told as a list")
        kinds = [part for part in (*first, after) if part is not False]
        out["items"] = {} if any(kind is True or not kind for kind in kinds) or not kinds else any_of(kinds)

    # --- combinators ----------------------------------------------------------------------------------

    def _combined(self, schema: Mapping[str, Any], place: _Place) -> Iterable[Any]:
        """What must hold besides the plain keywords; ``False`` where nothing can."""
        for key in ("anyOf", "oneOf"):
            branches = schema.get(key)
            if isinstance(branches, list) and branches:
                yield self._alternatives(key, branches, place)
        for at, part in enumerate(_list(schema, "allOf")):
            yield self._node(part, place.down("allOf", at))
        if "not" in schema:
            yield self._exact({"not": schema["not"]}, place)
        if "if" in schema and ("then" in schema or "else" in schema):
            yield self._exact({key: schema[key] for key in ("if", "then", "else") if key in schema}, place)

    def _alternatives(self, key: str, branches: list[Any], place: _Place) -> Json | bool:
        before = self._changes
        fitted = [self._node(part, place.down(key, at)) for at, part in enumerate(branches)]
        told = [part for part in fitted if isinstance(part, dict)]
        if len(told) < 2:
            return told[0] if told else False
        if key == "oneOf" and key in self._takes and self._changes == before:
            return {key: told}  # weaker branches could match at once, and oneOf would refuse what is right
        if key == "oneOf":
            self._note(place.where, "oneOf is told as anyOf")
        return any_of(told)

    def _exact(self, group: Mapping[str, Any], place: _Place) -> Json:
        """Keep keywords under which weaker is not weaker, if nothing below them had to be changed."""
        before, noted = self._changes, dict(self.notes)
        fitted = {key: self._node(part, place.down(key)) for key, part in group.items()}
        if self._changes == before and group.keys() <= self._takes:
            return fitted
        self.notes = noted
        self._note(place.where, f"{'/'.join(group)} is left out")
        return {}

    def _split(self, out: Json, place: _Place) -> Json:
        """A list of types as ``anyOf``, where the consumer takes no lists."""
        types = out.get("type")
        if self._accepted.type_lists or not isinstance(types, list):
            return out
        theirs = {key for kind in types for key in _OF_TYPE.get(kind, ())}
        common = {key: value for key, value in out.items() if key != "type" and key not in theirs}
        of = {kind: {key: out[key] for key in _OF_TYPE.get(kind, ()) if key in out} for kind in types}
        return {**common, "anyOf": [completed({"type": kind, **of[kind]}) for kind in types]}


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []
