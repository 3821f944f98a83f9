"""Where JSON Schema keywords hold subschemas, in all dialects together.

A keyword of another dialect is walked too. That costs nothing but strictness, and nothing hides from the
bounds because a reader of another dialect would have found it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from ...hookspecs.errors import McpToolInvalid
from .pointer import quoted


class Dialect(Enum):
    """What ``$schema`` may name. The value is the metaschema's URI."""

    DRAFT_7 = "http://json-schema.org/draft-07/schema#"
    DRAFT_2019_09 = "https://json-schema.org/draft/2019-09/schema"
    DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"


# In place: they judge the same instance as the schema around them.
IN_PLACE_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf"})
IN_PLACE_SINGLES: Final = frozenset({"not", "if", "then", "else"})
IN_PLACE_MAPS: Final = frozenset({"dependentSchemas", "dependencies"})

# Below: they judge members and items.
MEMBER_MAPS: Final = frozenset({"properties", "patternProperties"})
MEMBER_SINGLES: Final = frozenset({"additionalProperties", "unevaluatedProperties", "propertyNames"})
ITEM_LISTS: Final = frozenset({"prefixItems"})
ITEM_SINGLES: Final = frozenset({"additionalItems", "unevaluatedItems", "contains"})

# Nowhere: they are judged only where a reference leads to them.
SHELVES: Final = frozenset({"$defs", "definitions"})

MAPS: Final = IN_PLACE_MAPS | MEMBER_MAPS | SHELVES
LISTS: Final = IN_PLACE_LISTS | ITEM_LISTS
SINGLES: Final = IN_PLACE_SINGLES | MEMBER_SINGLES | ITEM_SINGLES | {"contentSchema"}
"""``items`` stands apart: one schema, or in older dialects a list."""

FORBIDDEN: Final = frozenset({"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"})
"""They resolve by the path that an evaluation took, or change what keywords mean: no static bound holds."""
FORBIDDEN_INSIDE: Final = frozenset({"$id", "$schema"})
"""Inside a schema they change what a reference means, or the dialect."""
ANNOTATIONS: Final = frozenset({"$id", "contentEncoding", "contentMediaType"})
"""What no engine gets to see: a base that no reference needs, and what draft-07 engines assert or not, as they like."""


def dialect_of(schema: dict[str, Any]) -> Dialect:
    """Find the dialect that the root declares; http, https and a trailing ``#`` are all one."""
    if "$schema" not in schema:
        return Dialect.DRAFT_2020_12
    declared = schema["$schema"]
    if isinstance(declared, str):
        for dialect in Dialect:
            if _bare(declared) == _bare(dialect.value):
                return dialect
    raise McpToolInvalid(
        f"the dialect {quoted(str(declared))} is not supported",
        where="/$schema",
        hint="use draft-07, 2019-09 or 2020-12, or leave $schema out for 2020-12",
    )


def _bare(uri: str) -> str:
    return uri.removeprefix("https:").removeprefix("http:").removesuffix("#")
