"""The revisions with a handshake, as their server speaks them: what `downstream` answers, by revision.

Sources: MCP 2025-11-25, basic/lifecycle, server/tools, client/elicitation; what older revisions lack is read off the
five schema.json files (audio came with 2025-03-26, resource_link with 2025-06-18).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...hookspecs import JsonObject, LogMessage, McpProtocolError, Progress
from .legacy import BATCHING, LATEST, LEVELS, REVISIONS

PAGE_TOOLS = 500
"""Tools on one page of ``tools/list``."""
PAGE_OVERHEAD = 1024
"""Bytes that a page needs beside its tools: the envelope, the request's id, the cursor."""

_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""The revision that brought a content type; the others were there from the first. Dates compare as text."""
_FROM_THE_FIRST = frozenset({"text", "image", "resource"})
_MESSAGES_SINCE = "2025-03-26"
_ELICITATION_SINCE = "2025-06-18"
_CURSOR = "after "
_MAX_NAME = 128
_MAX_TOOL_NAME = 1_024
_SHOWN_ARGUMENTS = 2_000  # bytes of a call's arguments that a person is shown


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """What a client says of itself: shown, never trusted. ``elicits`` = it can put a question to a person."""

    revision: str
    name: str
    version: str
    elicits: bool

    @property
    def batching(self) -> bool:
        return self.revision in BATCHING


def read_initialize(params: object) -> ClientInfo:
    """Read the params of ``initialize``: the revision asked for if we speak it, else our latest (basic/lifecycle)."""
    if not isinstance(params, dict) or not isinstance(params.get("protocolVersion"), str):
        raise McpProtocolError("initialize names no protocolVersion")
    asked = params["protocolVersion"]
    revision = asked if asked in REVISIONS else LATEST
    info = params.get("clientInfo")
    info = info if isinstance(info, dict) else {}
    elicits = revision >= _ELICITATION_SINCE and _elicits_forms(params.get("capabilities"))
    return ClientInfo(revision, _short(info.get("name")), _short(info.get("version")), elicits)


def _elicits_forms(capabilities: object) -> bool:
    """``elicitation: {}`` means forms; beside ``url``, which came later, they must be named."""
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(elicitation, dict) and ("form" in elicitation or "url" not in elicitation)


def initialize_result(client: ClientInfo, version: str, instructions: str | None) -> dict[str, Any]:
    """Answer ``initialize``: tools that may change, and logging."""
    result: dict[str, Any] = {
        "protocolVersion": client.revision,
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "serverInfo": {"name": "bascule", "version": version},
    }
    if client.revision >= "2025-06-18":
        result["serverInfo"]["title"] = "Bascule"
    if instructions is not None:
        result["instructions"] = instructions
    return result


def read_cursor(params: object) -> str:
    """Read behind which tool a page of ``tools/list`` begins; raise on a cursor that we never gave (-32602)."""
    cursor = params.get("cursor") if isinstance(params, dict) else None
    if cursor is None:
        return ""
    if not isinstance(cursor, str) or not cursor.startswith(_CURSOR):
        raise McpProtocolError("that cursor is none of ours")
    return cursor.removeprefix(_CURSOR)


def write_cursor(last: str) -> str:
    """The cursor of the page behind the tool ``last``."""
    return _CURSOR + last


def read_call(params: object) -> tuple[str, JsonObject]:
    """Read which tool ``tools/call`` means, and its arguments; left out, they are empty."""
    if not isinstance(params, dict):
        raise McpProtocolError("tools/call has no params that are an object")
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or len(name) > _MAX_TOOL_NAME:
        raise McpProtocolError("tools/call names no tool")
    if arguments is not None and not isinstance(arguments, dict):
        raise McpProtocolError("the arguments of tools/call are no object")
    return name, arguments or {}


def read_level(params: object) -> int:
    """Read ``logging/setLevel``: the place of the level among ``LEVELS``."""
    level = params.get("level") if isinstance(params, dict) else None
    if level not in LEVELS:
        raise McpProtocolError(f"there are the levels {', '.join(LEVELS)}")
    return LEVELS.index(level)


def log_params(message: LogMessage) -> dict[str, Any]:
    """The params of ``notifications/message``."""
    params = {"level": message.level, "data": message.data}
    return params if message.logger is None else {**params, "logger": message.logger}


def progress_token(params: object) -> int | str | None:
    """The token by which a caller wants to hear of progress."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str) or type(token) is int else None


def progress_params(token: int | str, progress: Progress, revision: str) -> dict[str, Any]:
    """The params of ``notifications/progress``."""
    params: dict[str, Any] = {"progressToken": token, "progress": progress.progress}
    if progress.total is not None:
        params["total"] = progress.total
    if progress.message is not None and revision >= _MESSAGES_SINCE:
        params["message"] = progress.message
    return params


def read_cancelled(params: object) -> int | str | None:
    """The id of the request that ``notifications/cancelled`` means."""
    request_id = params.get("requestId") if isinstance(params, dict) else None
    return request_id if isinstance(request_id, str) or type(request_id) is int else None


def fit_result(result: JsonObject, revision: str) -> JsonObject:
    """Turn content that ``revision`` does not know into text that says what was left out; else unchanged."""
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return result
    for block in content:
        if block.get("type") not in _FROM_THE_FIRST and not _known(block, revision):
            break
    else:
        return result
    fitted = [block if _known(block, revision) else _in_words(block, revision) for block in content]
    return {**result, "content": fitted}


def _known(block: Mapping[str, Any], revision: str) -> bool:
    kind = block.get("type")
    return kind in _FROM_THE_FIRST or _SINCE.get(str(kind), "9999") <= revision


def _in_words(block: Mapping[str, Any], revision: str) -> dict[str, Any]:
    kind = block.get("type")
    where = f": {block['uri']}" if isinstance(block.get("uri"), str) else ""
    mime = f" ({block['mimeType']})" if isinstance(block.get("mimeType"), str) else ""
    return {"type": "text", "text": f"[left out: {kind}{mime}, which MCP {revision} does not know{where}]"}


def failure(code: str, text: str) -> dict[str, Any]:
    """A result for a call that did not succeed (server/tools, "Error Handling": tool execution errors)."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {"bascule/code": code}}


def elicitation_params(question: str, arguments: bytes, revision: str) -> dict[str, Any]:
    """The params of ``elicitation/create`` for a yes or no: accepting the empty form is the yes."""
    shown = arguments[:_SHOWN_ARGUMENTS].decode("utf-8", "ignore") + "…" * (len(arguments) > _SHOWN_ARGUMENTS)
    message = f"{question} Its arguments: {shown}"
    params: dict[str, Any] = {"message": message, "requestedSchema": {"type": "object", "properties": {}}}
    if revision >= "2025-11-25":
        params["mode"] = "form"
    return params


def accepted(result: object) -> bool:
    """Whether the answer to ``elicitation/create`` is a yes."""
    return isinstance(result, dict) and result.get("action") == "accept"


def _short(value: object) -> str:
    """A client's own word, fit for logs and traces."""
    return "".join(filter(str.isprintable, value[:_MAX_NAME])) if isinstance(value, str) else "unknown"
