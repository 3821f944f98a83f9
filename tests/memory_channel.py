"""An MCP client in memory: a channel whose other end is the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bascule.core.bridge import Bridge
from bascule.core.view import View
from bascule.hookspecs import EVERYTHING, Caller, ChannelClosed, Exposure, SessionOptions

CALLER = Caller("mcp", "mcp-client", "mcp-server", "memory")
LATEST = "2025-11-25"

Json = dict[str, Any]


class Memory:
    """A channel whose other end is the test."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._news = asyncio.Condition()
        self._closed = False
        self._last_id = 0

    # the session's end

    async def send(self, message: bytes) -> None:
        await self.may_send.wait()
        if self._closed:
            raise ChannelClosed("the client went away")
        async with self._news:
            self.sent.append(json.loads(message))
            self._news.notify_all()

    def __aiter__(self) -> Memory:
        return self

    async def __anext__(self) -> bytes:
        message = await self._incoming.get()
        if message is None:
            raise StopAsyncIteration
        return message

    # the test's end

    @property
    def unread(self) -> int:
        return self._incoming.qsize()

    def close(self) -> None:
        self._closed = True
        self.may_send.set()
        self._incoming.put_nowait(None)

    def write(self, message: object) -> None:
        self._incoming.put_nowait(message if isinstance(message, bytes) else json.dumps(message).encode())

    def begin(self, method: str, params: object = None, id: int | str | None = None) -> int | str:
        if id is None:
            self._last_id += 1
            id = self._last_id
        self.write({"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})})
        return id

    def begin_call(self, tool: str, arguments: Json | None = None, id: int | str | None = None) -> int | str:
        return self.begin("tools/call", {"name": tool, "arguments": arguments or {}}, id)

    async def message(self, wanted: Callable[[Any], bool], seconds: float = 60) -> Any:
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: any(map(wanted, self.sent)))
        return next(filter(wanted, self.sent))

    async def answer(self, id: int | str | None) -> Json:
        answer: Json = await self.message(lambda m: "method" not in m and m.get("id") == id)
        return answer

    async def request(self, method: str, params: object = None) -> Json:
        return await self.answer(self.begin(method, params))

    async def call(self, tool: str, arguments: Json | None = None) -> Json:
        result: Json = (await self.answer(self.begin_call(tool, arguments)))["result"]
        return result

    async def initialize(self, revision: str = LATEST, capabilities: Json | None = None) -> Json:
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "tester", "version": "1"},
        }
        answer = await self.request("initialize", params)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def asked(self, number: int = 1) -> Json:
        """The question of that number that was put to this client's person."""
        question: Json = await self.message(lambda m: m.get("method") == "elicitation/create" and m["id"] == number)
        return question


class Way:
    """A way in, as far as a view needs one."""

    name = "memory"

    def __init__(self, exposure: Exposure) -> None:
        self.exposure = exposure


@asynccontextmanager
async def attended(
    bridge: Bridge, options: SessionOptions | None = None, exposure: Exposure = EVERYTHING
) -> AsyncIterator[Memory]:
    """A session on the bridge; left = the channel was closed and nothing of the session is left."""
    channel = Memory()
    view = View(bridge, Way(exposure))
    session = asyncio.create_task(view.attend(channel, CALLER, options or SessionOptions()))
    try:
        yield channel
    finally:
        channel.close()
        async with asyncio.timeout(60):
            await session
