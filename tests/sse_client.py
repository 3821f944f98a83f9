"""An MCP client over HTTP+SSE as a test wants it: it sends anything, and keeps everything that came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

LATEST = "2025-11-25"
SECONDS = 60.0

Json = dict[str, Any]


class Refused(Exception):
    """A JSON-RPC error came instead of a result."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.code: int = error["code"]
        self.text: str = error["message"]


class SseClient:
    """One session. ``events`` has every event in order: ``(name, data)``, comments under the name ``""``."""

    def __init__(self, http: httpx.AsyncClient, base: str) -> None:
        self.http = http
        self.base = base
        self.endpoint = ""
        self.events: list[tuple[str, str]] = []
        self.messages: list[Any] = []
        self.ended = False
        self.broke: Exception | None = None
        self._last_id = 0
        self._news = asyncio.Condition()

    @property
    def session_id(self) -> str:
        return self.endpoint.partition("session_id=")[2]

    # --- out ------------------------------------------------------------------------------------------

    async def post(self, message: object, **options: Any) -> httpx.Response:
        """Post a message; ``bytes`` go as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return await self.http.post(self.base + self.endpoint, content=body, headers=headers, **options)

    async def send(self, method: str, params: object = None, id: int | str | None = None) -> int | str:
        """Send a request, do not wait for its answer; returns its id."""
        if id is None:
            self._last_id += 1
            id = self._last_id
        message: Json = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            message["params"] = params
        answer = await self.post(message)
        assert (answer.status_code, answer.text) == (202, "Accepted")
        return id

    async def notify(self, method: str, params: object = None) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        assert (await self.post(message)).status_code == 202

    async def request(self, method: str, params: object = None) -> Any:
        """Send a request and wait for its result; raises ``Refused``."""
        return self.result_of(await self.answer(await self.send(method, params)))

    async def initialize(self, revision: str = LATEST, capabilities: Json | None = None) -> Json:
        """Shake hands as the client ``tester``."""
        client = {"name": "tester", "version": "1.2.3"}
        params = {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": client}
        result: Json = await self.request("initialize", params)
        await self.notify("notifications/initialized")
        return result

    async def call(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """Call a tool; the whole result."""
        result: Json = await self.request("tools/call", {"name": tool, "arguments": arguments or {}, **more})
        return result

    # --- in -------------------------------------------------------------------------------------------

    @staticmethod
    def result_of(message: Json) -> Any:
        if "error" in message:
            raise Refused(message["error"])
        return message["result"]

    async def answer(self, id: int | str | None) -> Json:
        """Wait for the answer to the request ``id``."""
        message: Json = await self.message(lambda m: "method" not in m and m.get("id") == id)
        return message

    async def message(self, wanted: Callable[[Any], bool], seconds: float = SECONDS) -> Any:
        """Wait for the first message that is ``wanted``; one that came already counts."""
        await self.until(lambda: any(map(wanted, self.messages)), seconds)
        return next(filter(wanted, self.messages))

    async def until(self, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait until what came meets the ``condition``."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: condition() or self.ended)
        assert condition(), "the stream ended before"

    async def until_ended(self, seconds: float = SECONDS) -> None:
        """Wait for the end of the stream."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: self.ended)

    def notifications(self, method: str) -> list[Json]:
        """The params of every notification of this method so far."""
        return [message.get("params") for message in self.messages if message.get("method") == method]

    async def _read(self, response: httpx.Response) -> None:
        name, data = "", []
        try:
            async for line in response.aiter_lines():
                if line.startswith(":"):
                    await self._took("", line)
                elif not line and name:
                    await self._took(name, "\n".join(data))
                    name, data = "", []
                else:
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data":
                        data.append(value)
        except httpx.HTTPError as error:
            self.broke = error
        finally:
            async with self._news:
                self.ended = True
                self._news.notify_all()

    async def _took(self, name: str, data: str) -> None:
        async with self._news:
            self.events.append((name, data))
            if name == "endpoint":
                self.endpoint = data
            elif name == "message":
                self.messages.append(json.loads(data))
            self._news.notify_all()


@asynccontextmanager
async def connect(base: str, path: str = "/sse", **options: Any) -> AsyncIterator[SseClient]:
    """Open a stream at ``base``; entered = the endpoint is known."""
    async with httpx.AsyncClient(timeout=SECONDS, **options) as http, http.stream("GET", base + path) as response:
        assert response.status_code == 200, await response.aread()
        client = SseClient(http, base)
        reading = asyncio.create_task(client._read(response))
        try:
            await client.until(lambda: bool(client.endpoint))
            yield client
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
