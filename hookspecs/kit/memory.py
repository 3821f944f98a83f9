"""A plugin without a process or a port: its server is played here, on the check's own loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ..config import Section
from ..errors import ChannelClosed
from ..permissions import Deny
from ..tools import Caller, ToolCall, ToolDefinition

PLUGIN = "kit-fixture"
ECHO, WAIT, DENIED, RESTRICTED, WRITING = (
    f"{PLUGIN}.{name}" for name in ("echo", "wait", "denied", "restricted", "writing")
)
PUBLIC = {ECHO, WAIT, DENIED, WRITING}


def write_plugin(folder: Path) -> Path:
    """Write the manifest; JSON is YAML as well."""
    place = folder / "plugin"
    place.mkdir()
    more: dict[str, Any] = {RESTRICTED: {"visibility": "restricted"}, WRITING: {"groups": ["writing"]}}
    manifest = {
        "id": PLUGIN,
        "name": "The kit's fixture",
        "version": "1.0.0",
        "permissions": ["tools.call"],
        "contributes": {"tools": [{"id": name, **more.get(name, {})} for name in sorted({*PUBLIC, RESTRICTED})]},
        "backend": {"type": "mcp", "transport": "kit-memory", "tool_timeout_seconds": 300},
    }
    (place / "plugin.yaml").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return place


class MemoryTransport:
    """The client transport ``kit-memory``. ``waiting`` are the calls of ``wait`` that are under way."""

    name = "kit-memory"
    backend_model = Section
    starts_process = False

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.cancelled = 0

    def preview(self, backend: Section, directory: Path) -> None:
        return None

    @asynccontextmanager
    async def connect(self, backend: Section, context: object) -> AsyncIterator[_Channel]:
        channel = _Channel(self)
        try:
            yield channel
        finally:
            channel.closed = True


class _Channel:
    def __init__(self, server: MemoryTransport) -> None:
        self._server = server
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = False

    async def send(self, message: bytes) -> None:
        if self.closed:
            raise ChannelClosed("it was closed")
        request = json.loads(message)
        method, params = request.get("method"), request.get("params")
        if method == "notifications/cancelled":
            self._server.waiting.discard(params["requestId"])
            self._server.cancelled += 1
        elif "id" in request and method is not None:
            if method == "tools/call" and params["name"] == "wait":
                self._server.waiting.add(request["id"])
                return
            answer = {"jsonrpc": "2.0", "id": request["id"], **_answer(method, params)}
            self._answers.put_nowait(json.dumps(answer).encode())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._answers.get()


def _answer(method: str, params: Any) -> dict[str, Any]:
    if method == "initialize":
        info = {"serverInfo": {"name": "kit", "version": "1"}, "capabilities": {"tools": {}}}
        return {"result": {"protocolVersion": params["protocolVersion"], **info}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        names = sorted(name.partition(".")[2] for name in {*PUBLIC, RESTRICTED})
        return {"result": {"tools": [{"name": name, "description": name, "inputSchema": schema} for name in names]}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": params["arguments"].get("text", "")}]}}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


class Spy:
    """A permission check that hears who calls, and denies one tool."""

    name = "kit-spy"

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    async def __call__(self, call: ToolCall, tool: ToolDefinition, facts: object) -> Deny | None:
        self.callers.append(call.caller)
        return Deny("the kit says no", "kit") if tool.name == DENIED else None
