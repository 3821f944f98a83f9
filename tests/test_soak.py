"""For minutes on end clients come, go, cancel and stall: memory, descriptors and tasks end where they began.

`BASCULE_SOAK_SECONDS` says for how long, 600 by default; each HTTP server gets its half.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
from sse_client import LATEST

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs.kit import free_port

SECONDS = float(os.environ.get("BASCULE_SOAK_SECONDS", "600")) / 2
WARM_UP_SECONDS = min(20.0, SECONDS / 3)
CLIENTS = 12
SESSIONS = 8  # fewer than clients: the oldest gives way again and again
MOST_GROWTH = (12 if SECONDS >= 200 else 24) * 1024 * 1024  # a short run begins to measure before all is warm
KEPT = {"traces": 1000}  # so that what is kept is full when we begin to measure

pytestmark = pytest.mark.soak


class Gone(Exception):
    """The session ended under the client: it was replaced, or its plugin is away."""


class Client:
    """A client on bare streams, so that it weighs little beside the server."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._port = port
        self._reader = reader
        self.writer = writer
        self._endpoint = ""
        self._last_id = 0
        self.kept: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def event(self) -> str:
        """The data of the next event."""
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                return line[6:].decode().strip()
        raise Gone

    async def post(self, message: object, endpoint: str | None = None) -> int:
        """Post on a connection of its own, or on the one that is kept; the status."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        closing = "" if self.kept else "Connection: close\r\n"
        head = (
            f"POST {endpoint or self._endpoint} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n{closing}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        if self.kept is None:
            return await status_of(self._port, head.encode() + body)
        reader, writer = self.kept
        writer.write(head.encode() + body)
        try:
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(answer.partition("content-length: ")[2].split()[0]))
        except asyncio.IncompleteReadError:
            raise Gone from None
        return int(answer.split()[1])

    async def begin(self, method: str, params: object = None) -> int:
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}}
        if await self.post(message) != 202:
            raise Gone
        return self._last_id

    async def answer(self, request_id: int) -> Any:
        """Read up to the answer to that request."""
        while True:
            message = json.loads(await self.event())
            if "method" not in message and message["id"] == request_id:
                return message["result"]

    async def request(self, method: str, params: object = None) -> Any:
        return await self.answer(await self.begin(method, params))

    async def begin_call(self, tool: str, arguments: object, **more: object) -> int:
        return await self.begin("tools/call", {"name": f"mcp-fixture.{tool}", "arguments": arguments, **more})

    async def call(self, tool: str, arguments: object, **more: object) -> Any:
        return await self.answer(await self.begin_call(tool, arguments, **more))


async def status_of(port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        line = await reader.readline()
        await reader.read()
    finally:
        writer.transport.abort()
    return int(line.split()[1]) if line else 0


@asynccontextmanager
async def client(port: int, *, small: bool = False, keep: bool = False) -> AsyncIterator[Client]:
    """A session that has shaken hands.

    ``small`` = its system takes little that it does not read; ``keep`` = it posts on one connection.
    """
    sock = socket.socket()
    if small:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2 * 1024 * 1024 if not small else 1024)
    session = Client(port, reader, writer)
    try:
        writer.write(f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        if keep:
            session.kept = await asyncio.open_connection("127.0.0.1", port)
        session._endpoint = await session.event()
        info = {"name": "soak", "version": "1"}
        params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": info}
        begun = await session.begin("initialize", params)
        if not small:
            await session.answer(begun)
        await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield session
    finally:
        writer.transport.abort()
        if session.kept:
            session.kept[1].transport.abort()


# --- what clients do --------------------------------------------------------------------------------------


@dataclass
class Load:
    """One run against one server; ``done`` counts what was finished."""

    port: int
    dice: random.Random
    done: Counter[str]

    async def polite(self) -> None:
        async with client(self.port, keep=self.dice.random() < 0.7) as session:
            await session.request("tools/list")
            for number in range(self.dice.randrange(1, 20)):
                word = f"{id(session)} {number}"
                result = await session.call("echo", {"message": word})
                assert result.get("isError") or result["structuredContent"]["message"] == word
            await session.request("ping")

    async def abrupt(self) -> None:
        async with client(self.port) as session:
            await session.begin_call("sleep", {"seconds": 30})
            await session.begin_call("large", {"bytes": 100_000})

    async def cancels(self) -> None:
        async with client(self.port, keep=self.dice.random() < 0.5) as session:
            calls = [
                await session.begin_call("sleep", {"seconds": 30, "progress": 300}, _meta={"progressToken": number})
                for number in range(5)
            ]
            for call in calls:
                await session.post(
                    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}}
                )
            await session.request("ping")

    async def stalls(self) -> None:
        async with client(self.port, small=True) as session:
            for _ in range(100):
                await session.begin_call("large", {"bytes": 200_000})

    async def talks_nonsense(self) -> None:
        host = f"Host: 127.0.0.1:{self.port}\r\n"
        two = "Content-Length: 2\r\n\r\n{}"
        for request in (
            "GET /sse HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            f"POST /messages HTTP/1.1\r\n{host}Content-Type: text/plain\r\n{two}",
            f"POST /messages?session_id=x HTTP/1.1\r\n{host}Content-Type: application/json\r\n{two}",
            f"GET /nothing HTTP/1.1\r\n{host}Connection: close\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\x00\x01\x02\r\n\r\n",
        ):
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(0.2):
                    await status_of(self.port, request.encode())
        async with client(self.port, keep=True) as session:
            for body in (b"nul", b"[" * 5000, b"{}", b"[]"):
                await session.post(body)
            await session.request("ping")

    async def one(self, deadline: float) -> None:
        """A client after the other, until the time is over."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            *[self.polite] * 4,
            self.abrupt,
            self.cancels,
            self.stalls,
            self.talks_nonsense,
        ]
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            kind = self.dice.choice(kinds)
            try:
                async with asyncio.timeout(60):
                    await kind()
            except (Gone, ConnectionError):
                self.done["replaced"] += 1
            self.done[kind.__name__] += 1

    async def run(self, bridge: Bridge, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self.one(deadline))
            group.create_task(restarts(bridge, deadline))


async def restarts(bridge: Bridge, deadline: float) -> None:
    """The plugin comes and goes meanwhile."""
    loop = asyncio.get_running_loop()
    while loop.time() < deadline:
        await asyncio.sleep(min(5, max(0, deadline - loop.time())))
        await bridge.plugins.restart("mcp-fixture")


# --- what is left -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Left:
    """What this process holds when nobody is there."""

    memory: int
    descriptors: int
    databases: int
    tasks: int
    children: int

    @classmethod
    async def now(cls) -> Left:
        """Wait until nothing changes any more, then look."""
        steady, before = 0, (0, 0, 0)
        async with asyncio.timeout(90):  # what is not read is kept by the kernel for half a minute
            while steady < 5:
                await asyncio.sleep(0.5)
                seen = (*descriptors(), len(asyncio.all_tasks()))
                steady, before = (steady + 1 if seen == before else 0), seen
        gc.collect()
        give_back()
        process = psutil.Process()
        return cls(process.memory_info().rss, *before, len(process.children(recursive=True)))


def give_back() -> None:
    """Give the system what the allocator holds for later: some 25 MiB, for which no one else is to blame."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def descriptors() -> tuple[int, int]:
    """How many are open: of anything but the database, and of the database."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    databases = sum(".db" in link for link in links)
    return len(links) - databases, databases


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
@pytest.mark.req("A3", "A6")
@pytest.mark.timeout(SECONDS + 400)
def test_nothing_grows_while_clients_come_go_cancel_and_stall(
    settings: Settings, echo: Any, http_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    use = settings.with_(
        http_server=http_server,
        disabled_hook_plugins=("quart_api",),
        plugins={"sse_server": {"port": port, "maxSessions": SESSIONS}},
        limits=KEPT,
    )
    load = Load(port, random.Random(7), Counter())

    async def soak() -> tuple[Left, Left]:
        async with Bridge(use, plugins=[echo], grant=True, remember=False) as bridge, bridge.serve():
            await bridge.settled()
            await load.run(bridge, WARM_UP_SECONDS)
            before = await Left.now()
            await load.run(bridge, SECONDS - WARM_UP_SECONDS)
            return before, await Left.now()

    before, after = asyncio.run(soak())
    with capsys.disabled():
        print(f"\n{http_server}: {before} → {after}; {dict(load.done)}")
    assert after.descriptors == before.descriptors
    assert after.databases <= before.databases + 1  # SQLite keeps one that it may not close while others hold locks
    assert after.tasks == before.tasks
    assert after.children == before.children == 1
    assert after.memory - before.memory < MOST_GROWTH
    assert load.done["polite"] > load.done["replaced"] / 2
