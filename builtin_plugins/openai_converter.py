"""The dialect ``openai``: tools as functions, calls as a model makes them, results as messages of role ``tool``.

Sources: OpenAI API reference, "Chat completions" (``tools``, ``tool_calls``; the Responses API's flat shapes are read
as well); what the API refuses in practice: an array without ``items``, an object without ``properties``, ``anyOf`` and
the like at the top, a description of more than 1,024 characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..hookspecs import (
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

DIALECT = "openai"
ACCEPTED = Accepted()

_DESCRIPTION = 1_024  # characters
_ARGUMENTS = 2 * 1024 * 1024  # characters


class OpenAiConverter:
    """Tools and results out, calls in. Names are aliases: ``[A-Za-z0-9_-]``, 64 at most."""

    dialect = DIALECT

    def write_tool(self, tool: ToolDefinition) -> JsonObject:
        """Write a function tool, not ``strict``: that would forbid what is optional."""
        function = {
            "name": tool.alias,
            "description": _description(tool)[0],
            "parameters": self._fitted(tool).schema,
        }
        return {"type": "function", "function": function}

    def notes(self, tool: ToolDefinition) -> tuple[str, ...]:
        """What of ``tool`` this dialect can't say."""
        return (*_description(tool)[1], *self._fitted(tool).notes)

    def _fitted(self, tool: ToolDefinition) -> Weakened:
        return weaken(tool.parameters, ACCEPTED)

    def read_call(self, foreign: JsonObject) -> tuple[str, JsonObject]:
        """Read a tool call of a chat completion, a ``function_call`` of a response, or what is inside of either."""
        function = foreign.get("function", foreign)
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name:
            raise ToolArgumentsInvalid("the call names no function")
        return name, _arguments(function.get("arguments"))

    def write_result(self, result: ToolResult) -> JsonObject:
        """Write a message of role ``tool``; whoever sends it adds the call's ``tool_call_id``.

        There is no place in it for the tool's word that it failed, so the text begins with that.
        """
        return {"role": "tool", "content": f"{'The tool failed: ' * result.failed}{_text(result)}"}

    def read_tool(self, foreign: JsonObject) -> ForeignTool:
        raise ConversionUnsupported("openai describes no tool that could be called from here")

    def read_result(self, foreign: JsonObject) -> ToolResult:
        raise ConversionUnsupported("openai has no results of its own")


def _description(tool: ToolDefinition) -> tuple[str, tuple[str, ...]]:
    text = tool.description or tool.title or ""
    if len(text) <= _DESCRIPTION:
        return text, ()
    return f"{text[: _DESCRIPTION - 1]}…", (f"description: cut off at {_DESCRIPTION:,} characters",)


def _arguments(given: Any) -> JsonObject:
    """The arguments are JSON in a text; some who speak this dialect write the object itself. Nothing is ``{}``."""
    if isinstance(given, str):
        if len(given) > _ARGUMENTS:
            raise ToolArgumentsInvalid(f"the call's arguments take more than {_ARGUMENTS:,} characters")
        try:
            given = json.loads(given, parse_constant=_refuse) if given.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ToolArgumentsInvalid(f"the call's arguments are no JSON: {error}") from error
    if given is not None and not isinstance(given, Mapping):
        raise ToolArgumentsInvalid("the call's arguments are no object")
    return given or {}


def _refuse(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _text(result: ToolResult) -> str:
    """All that the dialect has room for is text: structured output as JSON, other things by their kind."""
    if isinstance(result.output, Mapping):
        return json.dumps(result.output, ensure_ascii=False)
    return "\n".join(map(_block, result.content))


def _block(block: JsonObject) -> str:
    if isinstance(block.get("text"), str):
        return str(block["text"])
    resource = block.get("resource")
    if isinstance(resource, Mapping) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    said = [str(block[key]) for key in ("mimeType", "uri") if isinstance(block.get(key), str)]
    return f"[{' '.join([str(block.get('type')), *said])}, which can't be shown here]"


@hookimpl
def bascule_tool_converters() -> Iterable[ToolConverter]:
    """Offer ``openai``."""
    return [OpenAiConverter()]
