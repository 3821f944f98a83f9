"""The dialect ``anthropic``: tools as Claude is given them, ``tool_use`` blocks in, ``tool_result`` blocks out.

Sources: Anthropic API reference, "Messages" (``tools``, content blocks ``tool_use`` and ``tool_result``); what the API
refuses in practice: ``input_schema`` that is no JSON Schema 2020-12, or has ``anyOf``, ``oneOf`` or ``allOf`` at its
top; names of properties outside ``[a-zA-Z0-9_.-]{1,64}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..hookspecs import (
    BASIC_KEYWORDS,
    MORE_KEYWORDS,
    Accepted,
    ConversionUnsupported,
    ForeignTool,
    JsonObject,
    ToolArgumentsInvalid,
    ToolConverter,
    ToolDefinition,
    ToolResult,
    Weakened,
    hookimpl,
    weaken,
)

DIALECT = "anthropic"
ACCEPTED = Accepted(
    keywords=BASIC_KEYWORDS | MORE_KEYWORDS, type_lists=True, property_name=r"[a-zA-Z0-9_.-]{1,64}", depth=24
)

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


class AnthropicConverter:
    """Tools and results out, calls in. Names are aliases: ``[A-Za-z0-9_-]``, 64 at most."""

    dialect = DIALECT

    def write_tool(self, tool: ToolDefinition) -> JsonObject:
        """Write a client tool."""
        return {
            "name": tool.alias,
            "description": tool.description or tool.title or "",
            "input_schema": self._fitted(tool).schema,
        }

    def notes(self, tool: ToolDefinition) -> tuple[str, ...]:
        """What of ``tool`` this dialect can't say."""
        return self._fitted(tool).notes

    def _fitted(self, tool: ToolDefinition) -> Weakened:
        return weaken(tool.parameters, ACCEPTED)

    def read_call(self, foreign: JsonObject) -> tuple[str, JsonObject]:
        """Read a ``tool_use`` block."""
        name, given = foreign.get("name"), foreign.get("input")
        if not isinstance(name, str) or not name:
            raise ToolArgumentsInvalid("the call names no tool")
        if given is not None and not isinstance(given, Mapping):
            raise ToolArgumentsInvalid("the call's input is no object")
        return name, given or {}

    def write_result(self, result: ToolResult) -> JsonObject:
        """Write a ``tool_result`` block; whoever sends it adds the call's ``tool_use_id``."""
        blocks = [_block(block) for block in result.content]
        if not any(block.get("type") == "text" for block in result.content) and isinstance(result.output, Mapping):
            blocks.append({"type": "text", "text": json.dumps(result.output, ensure_ascii=False)})
        return {"type": "tool_result", "content": blocks, "is_error": result.failed}

    def read_tool(self, foreign: JsonObject) -> ForeignTool:
        raise ConversionUnsupported("anthropic describes no tool that could be called from here")

    def read_result(self, foreign: JsonObject) -> ToolResult:
        raise ConversionUnsupported("anthropic has no results of its own")


def _block(block: JsonObject) -> dict[str, Any]:
    """A block of MCP's as one of theirs; what they don't have is named."""
    if block.get("type") == "image" and block.get("mimeType") in _IMAGES and isinstance(block.get("data"), str):
        source = {"type": "base64", "media_type": block["mimeType"], "data": block["data"]}
        return {"type": "image", "source": source}
    resource = block.get("resource")
    for text in (block.get("text"), resource.get("text") if isinstance(resource, Mapping) else None):
        if isinstance(text, str):
            return {"type": "text", "text": text}
    said = [str(block[key]) for key in ("mimeType", "uri") if isinstance(block.get(key), str)]
    return {"type": "text", "text": f"[{' '.join([str(block.get('type')), *said])}, which can't be shown here]"}


@hookimpl
def bascule_tool_converters() -> Iterable[ToolConverter]:
    """Offer ``anthropic``."""
    return [AnthropicConverter()]
