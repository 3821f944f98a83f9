"""What hypothesis makes up: tools, results, callers and calls, plain and odd ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ..exposure import Exposure
from ..permissions import CORE_PERMISSIONS, CallFacts
from ..tools import Caller, Identity, JsonObject, ToolCall, ToolDefinition, ToolResult, Visibility

# an alphabet that is written down: hypothesis would make a table of all of Unicode first, which takes seconds
TEXT = st.text("aZ09 .,_-/\\\"'{}[]<>&%$#\n\r\t\0\x1b\x7fäß漢字עب🙂\u200d\u2028\ufeff\U0010ffff", max_size=30)
WORD = st.text("abcxyz019_-", max_size=10).map("k{}".format)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS: st.SearchStrategy[JsonObject] = st.dictionaries(TEXT, JSON, max_size=5)

_SCHEMAS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "integer", "minimum": 0},
    {"type": ["string", "null"], "description": "may be left out"},
    {"type": "array", "items": {"type": "number"}},
    {"enum": ["a", "b", 3]},
    {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": True}]},
    {"$ref": "#/$defs/word"},
]
_PROPERTY = st.sampled_from(_SCHEMAS)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """A JSON Schema as servers list them."""
    properties: dict[str, Any] = draw(st.dictionaries(WORD, _PROPERTY, max_size=4))
    schema: dict[str, Any] = {"type": "object", "properties": properties, "$defs": {"word": {"type": "string"}}}
    strict: bool = draw(st.booleans())
    if properties and strict:
        schema["required"] = [min(properties)]
    return schema


@st.composite
def tools(draw: st.DrawFn) -> ToolDefinition:
    """A tool as the registry holds it."""
    plugin, remote = draw(WORD), draw(WORD)
    return ToolDefinition(
        name=f"{plugin}.{remote}",
        description=draw(TEXT),
        parameters=draw(schemas()),
        permission=draw(st.sampled_from([permission.name for permission in CORE_PERMISSIONS])),
        plugin_id=plugin,
        remote_name=remote,
        alias=f"{plugin}__{remote}"[:64],
        title=draw(st.none() | TEXT),
        output_schema=draw(st.none() | schemas()),
        groups=draw(st.frozensets(st.sampled_from(["reading", "writing", "admin"]))),
        visibility=draw(st.sampled_from(list(Visibility))),
        confirm=draw(st.booleans()),
    )


@st.composite
def results(draw: st.DrawFn) -> ToolResult:
    """A result as the gateway gives it."""
    texts = draw(st.lists(TEXT, max_size=3))
    content = [{"type": "text", "text": text} for text in texts]
    output = draw(OBJECTS) if draw(st.booleans()) else content
    return ToolResult(output, content, draw(st.booleans()))


callers = st.builds(
    Caller,
    platform=st.sampled_from(["mcp", "agent", "rest"]),
    user=TEXT,
    session=TEXT,
    transport=st.sampled_from(["sse", "stdio", "in-process"]),
    identity=st.none() | st.builds(Identity, name=TEXT),
)
exposures = st.builds(
    Exposure, tool_groups=st.frozensets(st.sampled_from(["reading", "writing"])), allow_restricted=st.booleans()
)
facts = st.builds(
    CallFacts,
    granted=st.frozensets(st.sampled_from([permission.name for permission in CORE_PERMISSIONS])),
    environment=st.sampled_from(["production", "development"]),
    exposure=exposures,
    can_ask=st.booleans(),
    run=st.none() | TEXT,
)
calls = st.builds(ToolCall, tool=TEXT, arguments=OBJECTS, caller=callers)


def explore(test: Callable[..., None], *strategies: st.SearchStrategy[Any], examples: int = 40) -> None:
    """Run ``test`` with values that are made up; a ``Fault`` shows the smallest that was found.

    No deadline: a slow machine is no fault. No database, no chance: the same values each time.
    """
    quiet = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        print_blob=False,
    )
    quiet(given(*strategies)(test))()
