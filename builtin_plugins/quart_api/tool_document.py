"""The tools as an OpenAPI 3.1 document: every one an operation of its own, with its real schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...hookspecs import ToolDefinition
from .embedding import Embedded, embed
from .openapi import BASE, SECURITY, Error, error_responses, error_schemas, parameter, trace_header
from .operations import RUN_HEADER

_BLOCK = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
_ANYTHING = {"anyOf": [{"type": "object"}, {"type": "array", "items": _BLOCK}]}
"""What comes of a tool that says nothing about its output: its structured content, or its content blocks."""


def tool_document(tools: Sequence[ToolDefinition], version: str, errors: Sequence[Error]) -> dict[str, Any]:
    """Describe ``tools``; their schemas are brought to JSON Schema 2020-12, which is OpenAPI 3.1's."""
    schemas: dict[str, Any] = error_schemas()
    responses = error_responses(errors, with_body=True)
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
