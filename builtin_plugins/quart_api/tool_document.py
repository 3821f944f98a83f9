"""The tools as an OpenAPI 3.1 document: every one an operation of its own, with its real schemas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import is_
from typing import Any

from ...hookspecs import (
    PluginHostUnavailable,
    StateUnavailable,
    ToolArgumentsInvalid,
    ToolBusy,
    ToolCallFailed,
    ToolCallTimeout,
    ToolConfirmationUnavailable,
    ToolDefinition,
    ToolNotFound,
    ToolPermissionDenied,
    ToolResultInvalid,
    ToolResultTooLarge,
)
from .answers import encode
from .embedding import Embedded, embed
from .openapi import BASE, SECURITY, error_responses, error_schemas, parameter, trace_header
from .operations import RUN_HEADER

CALL_ERRORS = (
    ToolNotFound,
    ToolArgumentsInvalid,
    ToolPermissionDenied,
    ToolConfirmationUnavailable,
    ToolBusy,
    ToolCallFailed,
    ToolResultTooLarge,
    ToolResultInvalid,
    PluginHostUnavailable,
    ToolCallTimeout,
    StateUnavailable,
)
"""What a call may fail with."""

_BLOCK = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
_ANYTHING = {"anyOf": [{"type": "object"}, {"type": "array", "items": _BLOCK}]}
"""What comes of a tool that says nothing about its output: its structured content, or its content blocks."""


class ToolDocuments:
    """Keeps the last document as JSON: with thousands of tools it takes a second to make."""

    def __init__(self) -> None:
        self._tools: tuple[ToolDefinition, ...] = ()
        self._json = b""
        self._lock = asyncio.Lock()

    async def of(self, tools: Sequence[ToolDefinition], version: str) -> bytes:
        """The document of ``tools``; made in a thread, by one caller at a time."""
        async with self._lock:
            same = len(tools) == len(self._tools) and all(map(is_, tools, self._tools))
            if not same or not self._json:
                self._json = await asyncio.to_thread(lambda: encode(tool_document(tools, version)))
                self._tools = tuple(tools)
            return self._json


def tool_document(tools: Sequence[ToolDefinition], version: str) -> dict[str, Any]:
    """Describe ``tools``; their schemas are brought to JSON Schema 2020-12, which is OpenAPI 3.1's."""
    schemas: dict[str, Any] = error_schemas()
    responses = error_responses(CALL_ERRORS, with_body=True)
    shared = {f"e{status}": response for status, response in responses.items()}
    paths = {}
    for tool in tools:
        arguments = _placed(schemas, f"{tool.alias}.arguments", tool.parameters)
        output = (
            _ANYTHING if tool.output_schema is None else _placed(schemas, f"{tool.alias}.output", tool.output_schema)
        )
        paths[f"/tools/{tool.alias}"] = {"post": _operation(tool, arguments, output, list(responses))}
    return {
        **BASE,
        "info": {
            "title": "Tools",
            "version": version,
            "description": "Tools that Bascule lets through. `POST` an object of arguments, get the output.",
        },
        "tags": [{"name": plugin} for plugin in sorted({tool.plugin_id for tool in tools})],
        "paths": paths,
        "components": {"schemas": schemas, "responses": shared, **SECURITY},
    }


def _placed(schemas: dict[str, Any], name: str, schema: Any) -> dict[str, Any]:
    """The schema itself where it stands alone; else a reference to where its own references work."""
    embedded: Embedded = embed(schema, f"#/components/schemas/{name}")
    if not embedded.refers:
        return embedded.schema
    schemas[name] = embedded.schema
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(tool: ToolDefinition, arguments: Any, output: Any, statuses: Sequence[str]) -> dict[str, Any]:
    needed = bool(tool.parameters.get("required")) or bool(tool.parameters.get("minProperties"))
    return {
        "operationId": tool.alias,
        "tags": [tool.plugin_id],
        "summary": (tool.title or tool.name)[:200],
        "description": tool.description,
        "x-bascule-tool": tool.name,
        "parameters": [parameter(RUN_HEADER, "header")],
        "requestBody": {"required": needed, "content": {"application/json": {"schema": arguments}}},
        "responses": {
            "200": {
                "description": "What the tool answered.",
                "headers": trace_header(),
                "content": {"application/json": {"schema": output}},
            },
            **{status: {"$ref": f"#/components/responses/e{status}"} for status in statuses},
        },
    }
