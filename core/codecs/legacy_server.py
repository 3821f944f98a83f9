"""The revisions with a handshake, as their server speaks them: what `downstream` answers, by revision.

Sources: MCP 2025-11-25, basic/lifecycle, server/tools, client/elicitation; what older revisions lack is read off the
five schema.json files (audio came with 2025-03-26, resource_link with 2025-06-18).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...hookspecs import JsonObject, McpProtocolError, Progress
from .legacy import BATCHING, LATEST, REVISIONS

PAGE_TOOLS = 500
"""Tools on one page of ``tools/list``."""

_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
"""The revision that brought a content type; the others were there from the first. Dates compare as text."""
_FROM_THE_FIRST = frozenset({"text", "image", "resource"})
_MESSAGES_SINCE = "2025-03-26"
_MAX_NAME = 128


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
    if not isinstance(params, Mapping) or not isinstance(params.get("protocolVersion"), str):
        raise McpProtocolError("initialize names no protocolVersion")
    asked = params["protocolVersion"]
    capabilities = params.get("capabilities")
    info = params.get("clientInfo")
    info = info if isinstance(info, Mapping) else {}
    return ClientInfo(
        asked if asked in REVISIONS else LATEST,
        _short(info.get("name")),
        _short(info.get("version")),
        isinstance(capabilities, Mapping) and isinstance(capabilities.get("elicitation"), Mapping),
    )


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


def read_cursor(params: object) -> int:
    """Read where a page of ``tools/list`` begins; raise on a cursor that we never gave (-32602)."""
    cursor = params.get("cursor") if isinstance(params, Mapping) else None
    if cursor is None:
        return 0
    if not isinstance(cursor, str) or not cursor.isascii() or not cursor.isdigit() or len(cursor) > 9:
        raise McpProtocolError("that cursor is none of ours")
    return int(cursor)


def progress_token(params: object) -> int | str | None:
    """The token by which a caller wants to hear of progress."""
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    token = meta.get("progressToken") if isinstance(meta, Mapping) else None
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
    request_id = params.get("requestId") if isinstance(params, Mapping) else None
    return request_id if isinstance(request_id, str) or type(request_id) is int else None


def fit_result(result: JsonObject, revision: str) -> JsonObject:
    """Turn content that ``revision`` does not know into text that says what was left out; else unchanged."""
    content = result.get("content")
    if not isinstance(content, Sequence) or all(_known(block, revision) for block in content):
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


def elicitation_params(question: str, revision: str) -> dict[str, Any]:
    """The params of ``elicitation/create`` for a yes or no: accepting the empty form is the yes."""
    params: dict[str, Any] = {"message": question, "requestedSchema": {"type": "object", "properties": {}}}
    if revision >= "2025-11-25":
        params["mode"] = "form"
    return params


def accepted(result: object) -> bool:
    """Whether the answer to ``elicitation/create`` is a yes."""
    return isinstance(result, Mapping) and result.get("action") == "accept"


def _short(value: object) -> str:
    return value[:_MAX_NAME] if isinstance(value, str) else "unknown"
