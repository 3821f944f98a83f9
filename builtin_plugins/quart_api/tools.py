"""Tools over HTTP; what calls them is answered by :mod:`.front`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ...hookspecs import (
    ConversionUnsupported,
    RequestInvalid,
    ToolDefinition,
    ToolNotFound,
)
from .answers import TRACE_HEADER, Answer
from .operations import CALL, READ_OR_CALL, RUN_HEADER, Operation, Parameter, Request, Rest, operation, operations_of
from .shapes import CallResult, Tool, Tools
from .tool_document import CALL_ERRORS

_TAG = "tools"


_FORMAT = Parameter("format", "a dialect: describe the tools so", {"type": "string"})
_GROUP = Parameter("group", "only tools of this group", {"type": "string"})


@operation(
    "GET",
    "/api/tools",
    _TAG,
    READ_OR_CALL,
    answers=Tools,
    query=(_FORMAT, _GROUP),
    errors=(RequestInvalid, ConversionUnsupported),
)
async def list_tools(rest: Rest, request: Request) -> Answer:
    """List the tools that may be called here, in the order of their names."""
    group = request.query.get("group")
    tools = await rest.bridge.gateway.tools(request.caller)
    chosen = [tool for tool in tools if group is None or group in tool.groups]
    dialect = request.query.get("format")
    if dialect is None:
        return Answer({"tools": [tool.as_dict() for tool in chosen]})
    return Answer(await asyncio.to_thread(_written, rest, chosen, dialect))


def _written(rest: Rest, tools: list[ToolDefinition], dialect: str) -> dict[str, Any]:
    """The tools in a dialect, and for those of which it can't say all, what was left out."""
    converter = rest.bridge.converters.get(dialect)
    if converter is None:
        known = ", ".join(sorted(rest.bridge.converters)) or "none"
        problem = {"pointer": "?format", "problem": f"must be one of: {known}"}
        raise RequestInvalid("no hook plugin offers a converter for this format", hint=known, problems=[problem])
    notes_of: Callable[[ToolDefinition], Sequence[str]] = getattr(converter, "notes", lambda _: ())
    notes = {tool.name: list(lines) for tool in tools if (lines := notes_of(tool))}
    return {"tools": [converter.write_tool(tool) for tool in tools], "notes": notes}


@operation("GET", "/api/tools/openapi.json", _TAG, READ_OR_CALL, answers=dict[str, Any])
async def get_tool_document(rest: Rest, request: Request) -> Answer:
    """Describe every tool as an operation of its own, in OpenAPI 3.1.

    Any OpenAPI client can use the tools by it: `POST /tools/{alias}` answers the bare output.
    """
    tools = await rest.bridge.gateway.tools(request.caller)
    return Answer(await rest.documents.of(tools, rest.bridge.status().version))


@operation("GET", "/api/tools/{name}", _TAG, READ_OR_CALL, answers=Tool, errors=(ToolNotFound,))
async def get_tool(rest: Rest, request: Request) -> Answer:
    """Show a tool, by its name or its alias."""
    name = request.path["name"]
    for tool in await rest.bridge.gateway.tools(request.caller):
        if name in (tool.name, tool.alias):
            return Answer(tool.as_dict())
    raise ToolNotFound.named(name)


CALL_TOOL = Operation(
    "call_tool",
    "POST",
    "/api/tools/{name}/call",
    _TAG,
    CALL,
    "Call a tool.\n\n"
    "The body is the object of its arguments. With `Accept: text/event-stream` the answer is a stream: `progress`\n"
    "events, then one `result` or `error`. Closing the request cancels the call at its server. A tool that wants\n"
    "a person's yes answers 409: there is nobody to ask here.",
    answers=CallResult,
    body_schema={"type": "object"},
    body_example={"message": "hello"},
    headers=(RUN_HEADER,),
    errors=CALL_ERRORS,
    traced=True,
    also_streams=True,
    links=(("get_trace", "trace_id", f"header.{TRACE_HEADER}"),),
    example={
        "output": {"message": "hello"},
        "content": [{"type": "text", "text": '{"message": "hello"}'}],
        "failed": False,
        "trace_id": "33d36afa0a000001",
    },
)

USE_TOOL = Operation(
    "use_tool",
    "POST",
    "/tools/{alias}",
    _TAG,
    CALL,
    "Call a tool and get its bare output.\n\n"
    "`/api/tools/openapi.json` has an operation for each tool, with the schemas of its arguments and its output.",
    answers=Any,
    body_schema={"type": "object"},
    body_example={"message": "hello"},
    headers=(RUN_HEADER,),
    errors=CALL_ERRORS,
    traced=True,
    links=(("get_trace", "trace_id", f"header.{TRACE_HEADER}"),),
    example={"message": "hello"},
)

OPERATIONS = operations_of(globals())
