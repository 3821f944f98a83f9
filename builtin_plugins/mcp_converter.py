"""The dialect ``mcp``: tools and results as MCP servers and clients write them.

Sources: MCP 2025-11-25, server/tools ("Tool", "Tool Result") and schema.json (Tool, CallToolResult, ContentBlock).
Nothing is dropped on the way in: what came is kept whole in ``origin`` and written out again as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..hookspecs import (
    ForeignTool,
    JsonObject,
    McpToolInvalid,
    Origin,
    ToolConverter,
    ToolDefinition,
    ToolResult,
    ToolResultInvalid,
    hookimpl,
)

DIALECT = "mcp"

_PERMISSION_KEYS = ("bascule/permission", "notesagent/permission")  # in the order of N5.4
_OBJECT = (dict, Mapping)  # the abstract class alone takes ten times as long, for each block of each result
_LIST = (list, tuple)  # a union would be made anew for each result
_UNSEEN = re.compile("[\\x00-\\x20]")  # browsers drop them from a URI's scheme
_DANGEROUS_SCHEMES = ("javascript:", "vbscript:", "data:text/html")


class McpConverter:
    """Both directions of MCP's own shapes."""

    dialect = DIALECT

    def read_tool(self, foreign: JsonObject) -> ForeignTool:
        """Read a ``Tool`` of ``tools/list``."""
        name = foreign.get("name")
        if not isinstance(name, str) or not name:
            raise McpToolInvalid("a listed tool has no name", where="name")
        schema = foreign.get("inputSchema")
        if not isinstance(schema, Mapping):
            raise McpToolInvalid(f"tool {name!r} has no inputSchema that is an object", where="inputSchema")
        output_schema = foreign.get("outputSchema")
        if output_schema is not None and not isinstance(output_schema, Mapping):
            raise McpToolInvalid(f"tool {name!r} has an outputSchema that is no object", where="outputSchema")
        return ForeignTool(
            name=name,
            description=_text(foreign, "description", name) or "",
            parameters=schema,
            title=_title(foreign, name),
            output_schema=output_schema,
            permission=_permission(foreign, name),
            origin=Origin(DIALECT, foreign),
        )

    def write_tool(self, tool: ToolDefinition) -> JsonObject:
        """Write a ``Tool``, under our name; everything else as the server wrote it."""
        if tool.origin is not None and tool.origin.dialect == DIALECT:
            return {**tool.origin.value, "name": tool.name}
        written: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.parameters,
        }
        if tool.title is not None:
            written["title"] = tool.title
        if tool.output_schema is not None:
            written["outputSchema"] = tool.output_schema
        return written

    def read_result(self, foreign: JsonObject) -> ToolResult:
        """Read a ``CallToolResult``: the structured content is the output, else the content list (N5.6)."""
        content = foreign.get("content", ())
        if not isinstance(content, _LIST):
            raise ToolResultInvalid("the tool's result has a content that is no list")
        for block in content:
            _check_block(block)
        failed = foreign.get("isError", False)
        if not isinstance(failed, bool):
            raise ToolResultInvalid("the tool's result has an isError that is neither true nor false")
        structured = foreign.get("structuredContent")
        if structured is None and "content" not in foreign:
            raise ToolResultInvalid("the tool's result has neither content nor structuredContent")
        output = structured if structured is not None else content
        return ToolResult(output, content, failed, Origin(DIALECT, foreign))

    def write_result(self, result: ToolResult) -> JsonObject:
        """Write a ``CallToolResult``; one that came from MCP goes out as it came."""
        if result.origin is not None and result.origin.dialect == DIALECT:
            return result.origin.value
        written: dict[str, Any] = {"content": list(result.content), "isError": result.failed}
        if isinstance(result.output, Mapping):
            written["structuredContent"] = result.output
        return written

    def read_call(self, foreign: JsonObject) -> tuple[str, JsonObject]:
        """Read the params of ``tools/call``."""
        name, arguments = foreign.get("name"), foreign.get("arguments")
        if not isinstance(name, str):
            raise ToolResultInvalid("the call names no tool")
        if arguments is not None and not isinstance(arguments, Mapping):
            raise ToolResultInvalid("the call's arguments are no object")
        return name, {} if arguments is None else arguments


def _text(foreign: JsonObject, key: str, tool: str) -> str | None:
    value = foreign.get(key)
    if value is not None and not isinstance(value, str):
        raise McpToolInvalid(f"tool {tool!r} has a {key} that is no text", where=key)
    return value


def _title(foreign: JsonObject, tool: str) -> str | None:
    """Return ``title`` or, as revisions before 2025-06-18 have it, the annotation's."""
    title = _text(foreign, "title", tool)
    annotations = foreign.get("annotations")
    if title is None and isinstance(annotations, Mapping):
        title = _text(annotations, "title", tool)
    return title


def _permission(foreign: JsonObject, tool: str) -> str | None:
    meta = foreign.get("_meta")
    if not isinstance(meta, Mapping):
        return None
    for key in _PERMISSION_KEYS:
        if key in meta:
            permission = meta[key]
            if not isinstance(permission, str):
                raise McpToolInvalid(f"tool {tool!r} has a {key} that is no text", where=f"_meta/{key}")
            return permission
    return None


def _check_block(block: object) -> None:
    """Refuse a block that is none, or that carries a link which runs code where it is shown."""
    if not isinstance(block, _OBJECT) or not isinstance(block.get("type"), str):
        raise ToolResultInvalid("the tool's result has a content block without a type")
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        raise ToolResultInvalid("the tool's result has a text block without a text")
    resource = block.get("resource") if block["type"] == "resource" else block
    uri = resource.get("uri") if isinstance(resource, _OBJECT) else None
    if isinstance(uri, str) and _UNSEEN.sub("", uri).lower().startswith(_DANGEROUS_SCHEMES):
        raise ToolResultInvalid("the tool's result links to a URI that runs code")


@hookimpl
def bascule_tool_converters() -> Iterable[ToolConverter]:
    """Offer ``mcp``."""
    return [McpConverter()]
