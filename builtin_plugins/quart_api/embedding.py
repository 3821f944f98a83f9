"""A tool's JSON Schema inside an OpenAPI document: its references lead to where it stands now, in one dialect.

The core has admitted the schema: references stay inside it and are ``#``, ``#/…`` or ``#anchor``, ``$id`` and
``$schema`` stand at the root alone. What draft-07 and 2019-09 write differently is written as 2020-12 has it
(JSON Schema 2020-12, release notes; OpenAPI 3.1.1, 4.8.24).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, unquote

import msgspec

_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})
_SINGLES = frozenset(
    {
        *("not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames"),
        *("items", "additionalItems", "unevaluatedItems", "contains", "contentSchema"),
    }
)
_NEW_SINCE_DRAFT_7 = frozenset(
    {
        *("minContains", "maxContains", "dependentRequired", "dependentSchemas"),
        *("unevaluatedProperties", "unevaluatedItems", "prefixItems"),
    }
)


@dataclass(frozen=True, slots=True)
class Embedded:
    """A schema ready to stand in a document; ``refers`` where it holds references."""

    schema: dict[str, Any]
    refers: bool


def embed(schema: Any, where: str) -> Embedded:
    """Copy ``schema`` such that it means the same at ``where``, a fragment like ``#/components/schemas/x``."""
    root = msgspec.json.decode(msgspec.json.encode(schema))
    declared = str(root.get("$schema", ""))
    walk = _Walk(root)
    walk.run()
    old, oldest = "draft-07" in declared or "2019-09" in declared, "draft-07" in declared
    for node, pointer in walk.nodes:
        _drop(node)
        if oldest:
            _forget_what_came_later(node, pointer, walk.targets)
        if old:
            _renew_tuples(node, pointer, walk.moved)
        if oldest and "dependencies" in node:
            _renew_dependencies(node, pointer, walk.moved)
    for node, pointer, target in walk.references:
        if oldest:
            _forget_all_beside(node, pointer, walk.targets)
        node["$ref"] = where + quote(walk.now(target), safe="/~!$&'()*+,;=:@?-._")
    return Embedded(root, bool(walk.references))


@dataclass(slots=True)
class _Walk:
    """Finds every subschema, also where only a reference leads."""

    root: dict[str, Any]
    nodes: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    references: list[tuple[dict[str, Any], str, str]] = field(default_factory=list)
    targets: set[str] = field(default_factory=set)
    moved: dict[str, tuple[str, str]] = field(default_factory=dict)
    _anchors: dict[str, str] = field(default_factory=dict)
    _known: set[int] = field(default_factory=set)

    def run(self) -> None:
        unread: list[tuple[Any, str]] = [(self.root, "")]
        names: list[tuple[dict[str, Any], str, str]] = []
        while unread:
            node, pointer = unread.pop()
            if not isinstance(node, dict) or id(node) in self._known:
                continue
            self._known.add(id(node))
            self.nodes.append((node, pointer))
            unread += _below(node, pointer)
            if isinstance(anchor := node.get("$anchor"), str):
                self._anchors[anchor] = pointer
            reference = node.get("$ref")
            if isinstance(reference, str):
                target = unquote(reference[1:])
                if target and not target.startswith("/"):
                    names.append((node, pointer, target))
                    continue
                self.references.append((node, pointer, target))
                unread.append((_resolve(self.root, target), target))
        self.references += [(node, pointer, self._anchors.get(name, "")) for node, pointer, name in names]
        self.targets = {target for *_, target in self.references}

    def now(self, pointer: str) -> str:
        """Where that stands now which stood at ``pointer``."""
        for before in sorted(self.moved, key=len, reverse=True):
            if pointer == before or pointer.startswith(f"{before}/"):
                around, name = self.moved[before]  # what is around it may have moved as well
                return self.now(around) + name + pointer[len(before) :]
        return pointer


def _below(node: dict[str, Any], pointer: str) -> Iterator[tuple[Any, str]]:
    for keyword, value in node.items():
        where = f"{pointer}/{_step(keyword)}"
        if keyword in _MAPS and isinstance(value, dict):
            yield from ((each, f"{where}/{_step(name)}") for name, each in value.items())
        elif isinstance(value, list) and (keyword in _LISTS or keyword == "items"):
            yield from ((each, f"{where}/{index}") for index, each in enumerate(value))
        elif keyword in _SINGLES:
            yield value, where


def _drop(node: dict[str, Any]) -> None:
    for keyword in ("$schema", "$id", "$anchor", "$comment"):
        node.pop(keyword, None)


def _forget_what_came_later(node: dict[str, Any], pointer: str, targets: set[str]) -> None:
    for keyword in _NEW_SINCE_DRAFT_7 & node.keys():
        if not any(target.startswith(f"{pointer}/{keyword}") for target in targets):
            del node[keyword]


def _forget_all_beside(node: dict[str, Any], pointer: str, targets: set[str]) -> None:
    """In draft-07 nothing counts that stands beside a reference; but other references may lead into it."""
    for keyword in node.keys() - {"$ref", "$defs", "definitions"}:
        if not any(target.startswith(f"{pointer}/{_step(keyword)}") for target in targets):
            del node[keyword]


def _renew_tuples(node: dict[str, Any], pointer: str, moved: dict[str, tuple[str, str]]) -> None:
    """``items: […]`` and ``additionalItems`` are ``prefixItems: […]`` and ``items``."""
    rest = node.pop("additionalItems", None)
    if isinstance(node.get("items"), list):
        node["prefixItems"] = node.pop("items")
        moved[f"{pointer}/items"] = (pointer, "/prefixItems")
        if not node["prefixItems"]:
            del node["prefixItems"]  # which may not be empty
        if rest is not None:
            node["items"] = rest
            moved[f"{pointer}/additionalItems"] = (pointer, "/items")


def _renew_dependencies(node: dict[str, Any], pointer: str, moved: dict[str, tuple[str, str]]) -> None:
    """``dependencies`` are ``dependentRequired`` and ``dependentSchemas``."""
    for name, needed in cast("dict[str, Any]", node.pop("dependencies")).items():
        kind = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        node.setdefault(kind, {})[name] = needed
        step = f"/{_step(name)}"
        moved[f"{pointer}/dependencies{step}"] = (pointer, f"/{kind}{step}")


def _resolve(root: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        root = root[int(step)] if isinstance(root, list) else root[step]
    return root


def _step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
