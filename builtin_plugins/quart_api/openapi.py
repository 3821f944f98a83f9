"""``/openapi.json``: the operations as an OpenAPI 3.1 document; shapes come from the values themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from ...hookspecs import BasculeError, RequestRefused, ScopeRequired, TokenRequired
from .answers import JSON, PROBLEM, TRACE_HEADER, phrase
from .operations import Operation, Parameter

BASE: dict[str, Any] = {
    "openapi": "3.1.1",
    "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
    "servers": [{"url": "/"}],
    "security": [{"token": []}],
}
SECURITY: dict[str, Any] = {
    "securitySchemes": {
        "token": {"type": "http", "scheme": "bearer", "description": "Made by `bascule token create`."},
    }
}

Error = type[BasculeError] | tuple[type[BasculeError], int]

_REF = "#/components/schemas/"
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "What went wrong (RFC 9457). `code` is stable and meant for programs.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "pattern": "^[A-Z_]+$"},
        "detail": {"type": "string"},
        "hint": {"type": "string", "description": "What to do next."},
        "where": {"type": "string"},
        "trace_id": {"type": "string", "description": "The step that the call left in the traces."},
        "errors": {
            "type": "array",
            "description": "Each fault. `pointer` leads into the body; `?name` is a parameter of the query.",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
            },
        },
    },
}
_INTERNAL = ("INTERNAL_ERROR", 500, "A fault of Bascule's own.")


def api_document(operations: Sequence[Operation], version: str, dialects: Sequence[str]) -> dict[str, Any]:
    """Describe ``operations``; ``dialects`` are those that tools can be described in."""
    shapes, schemas = _shapes(operations)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, shapes)
    document = {
        **BASE,
        "info": {
            "title": "Bascule",
            "version": version,
            "description": "Plugins, tools, runs and traces of this bridge. Each operation names the scopes of tokens, "
            "one of which it takes; `call`, `read` and `admin` are three authorities, none includes another.",
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": {"schemas": {**schemas, **error_schemas()}, **SECURITY},
    }
    for each in paths["/api/tools"]["get"]["parameters"]:
        if each["name"] == "format":
            each["schema"]["enum"] = list(dialects)
    return document


def error_schemas() -> dict[str, Any]:
    """The shape of every error."""
    return {"Problem": _PROBLEM}


def error_responses(errors: Iterable[Error], *, with_body: bool, opened: bool = False) -> dict[str, Any]:
    """The responses of ``errors`` by status, and of those that any request may have."""
    everywhere: list[Error] = [RequestRefused, (RequestRefused, 421), (RequestRefused, 431)]
    if not opened:
        everywhere += [TokenRequired, ScopeRequired, (RequestRefused, 403)]
    if with_body:
        everywhere += [(RequestRefused, 408), (RequestRefused, 413), (RequestRefused, 415)]
    found: dict[int, dict[str, str]] = {_INTERNAL[1]: {_INTERNAL[0]: _INTERNAL[2]}}
    for error in (*everywhere, *errors):
        kind, status = error if isinstance(error, tuple) else (error, error.status)
        text = (kind.__doc__ or "").partition("\n")[0]
        found.setdefault(status, {}).setdefault(kind.code, text.replace("``", "`"))
    return {str(status): _problem(status, codes) for status, codes in sorted(found.items())}


def _problem(status: int, codes: dict[str, str]) -> dict[str, Any]:
    title = phrase(status)
    examples = {
        code: {
            "summary": text,
            "value": {
                "type": f"urn:bascule:error:{code}",
                "title": title,
                "status": status,
                "code": code,
                "detail": text,
            },
        }
        for code, text in codes.items()
    }
    content = {PROBLEM: {"schema": {"$ref": f"{_REF}Problem"}, "examples": examples}}
    return {"description": f"{title}: {', '.join(codes)}", "content": content}


def trace_header() -> dict[str, Any]:
    """The header that every answered call has."""
    text = "The id of the step that the call left in the traces."
    return {TRACE_HEADER: {"description": text, "schema": {"type": "string"}}}


def parameter(which: Parameter, place: str, *, required: bool = False) -> dict[str, Any]:
    """Describe a parameter that stands in ``place``."""
    shown = {"name": which.name, "in": place, "schema": dict(which.schema), "description": which.description}
    return {**shown, "required": True} if required else shown


def _operation(operation: Operation, shapes: dict[Any, Any]) -> dict[str, Any]:
    scopes = " or ".join(f"`{scope}`" for scope in sorted(operation.scopes))
    described = operation.text.partition("\n")[2].strip()
    text = "\n\n".join(part for part in (described, f"Scope: {scopes}." if scopes else "No token is needed.") if part)
    shown: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": text,
        "parameters": [
            *(
                parameter(Parameter(name, _NAMES[name], {"type": "string", "minLength": 1}), "path", required=True)
                for name in _names(operation.path)
            ),
            *(parameter(each, "query") for each in operation.query),
            *(parameter(each, "header") for each in operation.headers),
        ],
        "responses": _responses(operation, shapes),
    }
    if not operation.scopes:
        shown["security"] = []
    if operation.takes_body:
        shown["requestBody"] = _body(operation, shapes)
    return shown


_NAMES = {
    "plugin_id": "the plugin's id",
    "name": "the tool's name, or its alias",
    "alias": "the tool's alias, or its name",
    "run_id": "the run's id",
    "trace_id": "the step's id",
}


def _names(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _body(operation: Operation, shapes: dict[Any, Any]) -> dict[str, Any]:
    schema = operation.body_schema if operation.body is None else shapes[operation.body, "validation"]
    content = {"schema": schema}
    if operation.body_example is not None:
        content["example"] = operation.body_example
    required = operation.body is not None and any(field.is_required() for field in operation.body.model_fields.values())
    return {"required": required, "content": {JSON: content}}


def _responses(operation: Operation, shapes: dict[Any, Any]) -> dict[str, Any]:
    answered: dict[str, Any] = {"description": phrase(operation.status)}
    if operation.answers is not None:
        content = {"schema": _answer_schema(operation, shapes)}
        if operation.example is not None:
            content["example"] = operation.example
        answered["content"] = {operation.content_type: content}
        if operation.also_streams:
            answered["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    if operation.traced:
        answered["headers"] = trace_header()
    if operation.links:
        answered["links"] = {
            target: {"operationId": target, "parameters": {name: f"$response.{place}"}}
            for target, name, place in operation.links
        }
    responses = {str(operation.status): answered}
    if operation.also is not None:
        responses[str(operation.also[0])] = {**answered, "description": operation.also[1]}
    errors = error_responses(operation.errors, with_body=operation.takes_body, opened=not operation.scopes)
    return {**responses, **{status: each for status, each in errors.items() if status not in responses}}


def _answer_schema(operation: Operation, shapes: dict[Any, Any]) -> Any:
    return shapes[operation.answers, "serialization"]


def _shapes(operations: Sequence[Operation]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Schemas of all bodies and answers: each one's place, and the definitions that they share."""
    wanted: dict[tuple[Any, JsonSchemaMode], TypeAdapter[Any]] = {}
    for operation in operations:
        if operation.answers is not None:
            wanted.setdefault((operation.answers, "serialization"), TypeAdapter(operation.answers))
        if operation.body is not None:
            wanted.setdefault((operation.body, "validation"), TypeAdapter(operation.body))
    inputs = [(key[0], key[1], adapter) for key, adapter in wanted.items()]
    found, shared = TypeAdapter.json_schemas(inputs, ref_template=_REF + "{model}")
    return dict(found), shared.get("$defs", {})
