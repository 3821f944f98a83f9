"""Those who call: what a server transport's suite needs of a client, and one for MCP over any channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

NEWEST = "3000-01-01"  # of the future: whoever serves answers with the newest that it knows


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call: all its text, and whether it failed."""

    text: str
    failed: bool = False


class Client(Protocol):
    """One caller, connected. It raises ``ConnectionError`` once the transport has ended its connection."""

    async def tools(self) -> Sequence[str]:
        """The names of the tools that are listed."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """Call a tool; a refusal is an answer that failed."""


class McpClient:
    """An MCP client over whatever carries messages: ``receive`` gives ``b""`` at the end."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], receive: Callable[[], Awaitable[bytes]]) -> None:
        self._send, self._receive = send, receive
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._reading: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def session(self, revision: str = NEWEST) -> AsyncIterator[McpClient]:
        """Shake hands; entered = ready."""
        self._reading = asyncio.create_task(self._read())
        try:
            info = {"clientInfo": {"name": "kit", "version": "1"}, "capabilities": {}}
            await self.request("initialize", {"protocolVersion": revision, **info})
            await self._send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            yield self
        finally:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading

    async def _read(self) -> None:
        try:
            while message := await self._receive():
                answer = json.loads(message)
                if "method" not in answer and (waiter := self._waiting.pop(answer["id"], None)) and not waiter.done():
                    waiter.set_result(answer)
        except (OSError, ValueError):
            pass
        finally:
            for waiter in self._waiting.values():
                if not waiter.done():
                    waiter.set_exception(ConnectionError("the server ended the connection"))
            self._waiting.clear()

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The result, or the error as it came."""
        if self._reading is None or self._reading.done():
            raise ConnectionError("the server ended the connection")
        self._last += 1
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = waiter
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params or {}}
        await self._send(json.dumps(message).encode())
        return await waiter

    async def tools(self) -> list[str]:
        answer = await self.request("tools/list")
        return [tool["name"] for tool in answer["result"]["tools"]]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        answer = await self.request("tools/call", {"name": tool, "arguments": dict(arguments)})
        if "error" in answer:
            return Answer(answer["error"]["message"], failed=True)
        result = answer["result"]
        text = "\n".join(block.get("text", "") for block in result.get("content", []))
        return Answer(text, bool(result.get("isError")))


@asynccontextmanager
async def mcp_over_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[McpClient]:
    """An MCP client over a stream with a message a line; left = the stream is closed."""

    async def send(message: bytes) -> None:
        writer.write(message + b"\n")
        await writer.drain()

    try:
        async with McpClient(send, reader.readline).session() as client:
            yield client
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
