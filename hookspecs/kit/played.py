"""A small MCP server and the plugin that it belongs to, played by a check at the other end of a transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from .peers import Peer, PeerEnd

PLUGIN = "kit-fixture"
ECHO = f"{PLUGIN}.echo"

_ECHO_TOOL = {
    "name": "echo",
    "description": "Say it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def write_plugin(folder: Path, transport: str, backend: Mapping[str, Any]) -> Path:
    """Write the manifest of the played server; JSON is YAML as well."""
    place = folder / "plugin"
    place.mkdir()
    manifest = {
        "id": PLUGIN,
        "name": "The kit's fixture",
        "version": "1.0.0",
        "permissions": ["tools.call"],
        "contributes": {"tools": [ECHO]},
        "backend": {"type": "mcp", "transport": transport, **backend},
    }
    (place / "plugin.yaml").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return place


class PlayedServer:
    """Answers as an MCP server does, on every connection that comes; ``ends`` are those, in order."""

    def __init__(self) -> None:
        self.ends: list[PeerEnd] = []
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def on(self, peer: Peer) -> AsyncIterator[PlayedServer]:
        """Play until left."""
        self._tasks.append(asyncio.create_task(self._accept(peer)))
        try:
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, peer: Peer) -> None:
        while True:
            end = await peer.accept()
            self.ends.append(end)
            self._tasks.append(asyncio.create_task(self._play(end)))

    async def _play(self, end: PeerEnd) -> None:
        while message := await end.receive():
            request = json.loads(message)
            if "id" in request and "method" in request:
                answer = {"jsonrpc": "2.0", "id": request["id"], **_answer(request["method"], request.get("params"))}
                await end.send(json.dumps(answer).encode())


def _answer(method: str, params: Any) -> dict[str, Any]:
    if method == "initialize":
        return {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "kit", "version": "1"},
            }
        }
    if method == "tools/list":
        return {"result": {"tools": [_ECHO_TOOL]}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": params["arguments"]["text"]}]}}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}
