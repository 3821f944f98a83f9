"""The revisions with a handshake, 2024-11-05 to 2025-11-25, as their client speaks them.

Sources: MCP 2025-11-25, basic/lifecycle (initialize), server/tools (tools/list), basic/utilities (pagination,
progress, cancellation); 2025-03-26, basic (batching).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

from ...hookspecs import (
    JsonObject,
    LogMessage,
    McpCapabilityMissing,
    McpProtocolError,
    McpVersionUnsupported,
    Progress,
)
from ..jsonrpc import encode

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST = REVISIONS[-1]
BATCHING = frozenset({"2025-03-26"})
"""Where an array of messages must be read; we never send one."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""How grave a log message is, in rising order (server/utilities/logging, RFC 5424)."""

_CALL = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%b,"arguments":%b,"_meta":{"progressToken":%d}}}'
)
_MAX_NAME = 256  # characters of a server's own name and version that are kept


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself. Self-reported: shown, never trusted (2025-11-25, basic/lifecycle)."""

    protocol_version: str
    name: str | None
    version: str | None
    capabilities: JsonObject
    instructions: str | None

    @property
    def batching(self) -> bool:
        return self.protocol_version in BATCHING


def initialize_params(client_version: str) -> dict[str, Any]:
    """Offer our latest revision and no capability at all: roots, sampling and elicitation change what servers list."""
    return {
        "protocolVersion": LATEST,
        "capabilities": {},
        "clientInfo": {"name": "bascule", "title": "Bascule", "version": client_version},
    }


def read_initialize(result: object) -> ServerInfo:
    """Read an ``InitializeResult``; raise where we can't go on with this server (N4.1.5)."""
    if not isinstance(result, dict):
        raise McpProtocolError("the answer to initialize is no object")
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        raise McpProtocolError("the answer to initialize names no protocolVersion")
    if version not in REVISIONS:
        raise McpVersionUnsupported(
            f"the server speaks MCP {version[:40]!r}", hint=f"Bascule speaks {', '.join(REVISIONS)}"
        )
    capabilities = result.get("capabilities")
    if not isinstance(capabilities, dict):
        raise McpProtocolError("the answer to initialize names no capabilities")
    if not isinstance(capabilities.get("tools"), dict):
        raise McpCapabilityMissing("the server offers no tools capability, and tools are all that Bascule hosts")
    info = result.get("serverInfo")
    info = info if isinstance(info, dict) else {}
    return ServerInfo(
        version, _short(info.get("name")), _short(info.get("version")), capabilities, _text(result.get("instructions"))
    )


def read_tools_page(result: object) -> tuple[Sequence[JsonObject], str | None]:
    """Read one page of ``tools/list``: the tools and the cursor of the next page, ``None`` at the end."""
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(tools, list):
        raise McpProtocolError("the answer to tools/list holds no list of tools")
    if not all(isinstance(tool, dict) for tool in tools):
        raise McpProtocolError("the answer to tools/list holds something that is no tool")
    cursor = result.get("nextCursor")
    if cursor is not None and not isinstance(cursor, str):
        raise McpProtocolError("the answer to tools/list has a nextCursor that is no text")
    return tools, cursor


def call_message(request_id: int, name: str, arguments: bytes) -> bytes:
    """The whole ``tools/call`` with the JSON of its arguments; its id is also the token of its progress.

    Put together from written parts: the arguments are written once for all who need them.
    """
    return _CALL % (request_id, _written(name), arguments, request_id)


@lru_cache(maxsize=4_096)
def _written(text: str) -> bytes:
    return encode(text)


def read_progress(params: object) -> tuple[int, Progress] | None:
    """Read ``notifications/progress``; ``None`` where it can't belong to a call of ours."""
    if not isinstance(params, dict):
        return None
    token, done, total = params.get("progressToken"), params.get("progress"), params.get("total")
    if type(token) is not int or not _is_number(done):
        return None
    message = params.get("message")
    return token, Progress(
        float(done),
        float(total) if _is_number(total) else None,
        message[:4096] if isinstance(message, str) else None,
    )


def read_log(params: object) -> LogMessage | None:
    """Read ``notifications/message`` (server/utilities/logging); ``None`` where it is none."""
    if not isinstance(params, dict) or params.get("level") not in LEVELS or "data" not in params:
        return None
    return LogMessage(params["level"], params["data"], _short(params.get("logger")))


def cancelled_params(request_id: int, reason: str) -> dict[str, Any]:
    """The params of ``notifications/cancelled``."""
    return {"requestId": request_id, "reason": reason}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _short(value: object) -> str | None:
    return value[:_MAX_NAME] if isinstance(value, str) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
