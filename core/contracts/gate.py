"""Which schemas may come in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from . import compiled, metered, patterns
from .bounds import MAX_BRANCHES, MAX_ENUM, MAX_PROPERTIES, check_size, refuse
from .graph import Graph, Node, build
from .keywords import IN_PLACE_LISTS, MAPS, Dialect, dialect_of
from .pointer import step

_MIN_MULTIPLE: Final = 1e-15
"""Below the resolution of a double near 1."""
_MAX_PATTERNS: Final = 5 << 20
"""Bytes of all compiled patterns of one schema; each MiB takes some 20 to 100 ms, the more the smaller they are."""
_COUNTED: Final = (
    dict.fromkeys(IN_PLACE_LISTS, (MAX_BRANCHES, "branches"))
    | dict.fromkeys(MAPS, (MAX_PROPERTIES, "properties"))
    | {"enum": (MAX_ENUM, "values")}
)
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MAX_FAULT: Final = 200

_decode = msgspec.json.Decoder().decode


def gate(schema: object, *, root_object: bool = True) -> None:
    """Refuse a schema that is invalid, that leaves its document, or whose cost can't be bounded.

    ``root_object`` wants ``"type": "object"`` at the root: so for all input schemas, and for output schemas
    before MCP 2026-07-28. Raises McpToolInvalid, ``where`` being a JSON pointer into the schema.
    """
    prepared, dialect, graph = prepare(schema)
    if root_object and prepared.get("type") != "object":
        refuse('the root must have "type": "object"')
    for node in graph.bottom_up:
        _check_counts(node)
        _check_values(node)
    _check_patterns(graph)
    check_validity(prepared, dialect)


def prepare(schema: object) -> tuple[dict[str, Any], Dialect, Graph]:
    """Copy a schema into what the engines read, and know its graph; raises McpToolInvalid."""
    if not isinstance(schema, dict):
        refuse("a tool's schema must be an object")
    copy: dict[str, Any] = _decode(check_size(schema))
    dialect = dialect_of(copy)
    graph = build(copy)
    copy["$schema"] = dialect.value
    return copy, dialect, graph


def _check_counts(node: Node) -> None:
    for keyword, value in node.schema.items():
        limit, what = _COUNTED.get(keyword, (0, ""))
        if limit and isinstance(value, dict | list) and len(value) > limit:
            refuse(f"{keyword} has {len(value)} {what}, more than {limit}", node.where + step(keyword))


def _check_values(node: Node) -> None:
    multiple = node.schema.get("multipleOf")
    if isinstance(multiple, int | float) and 0 < multiple < _MIN_MULTIPLE:
        refuse(f"multipleOf is less than {_MIN_MULTIPLE}", node.where + "/multipleOf")
    # It becomes the name of an HTTP header (MCP 2026-07-28, Streamable HTTP): a line break would be another one.
    header = node.schema.get("x-mcp-header")
    if header is not None and not (isinstance(header, str) and _HEADER.fullmatch(header)):
        refuse("x-mcp-header must be a token (RFC 9110, section 5.6.2)", node.where + "/x-mcp-header")


def _check_patterns(graph: Graph) -> None:
    spent = 0
    for where, pattern in _patterns(graph):
        spent += patterns.check(pattern, where)
        if spent > _MAX_PATTERNS:
            refuse("the pattern is one too many: all together they compile to too much", where)


def _patterns(graph: Graph) -> Iterator[tuple[str, object]]:
    for node in graph.bottom_up:
        if "pattern" in node.schema:
            yield node.where + "/pattern", node.schema["pattern"]
        for pattern in node.schema.get("patternProperties", ()):
            yield f"{node.where}/patternProperties{step(pattern)}", pattern


def check_validity(schema: dict[str, Any], dialect: Dialect) -> None:
    """Refuse a prepared schema that breaks its dialect's metaschema."""
    rs = compiled.engine()
    fault = metered.metaschema_fault(schema, dialect) if rs is None else compiled.metaschema_fault(rs, schema)
    if fault is not None:
        path, what = fault
        refuse(f"not a valid schema of {dialect.value}: {what[:_MAX_FAULT]}", "".join(map(step, path)))
