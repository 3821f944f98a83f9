"""What a connection takes, holds and gives back, on every HTTP server that runs our apps."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import http.client
import json
import os
import socket
import struct
import sys
import tracemalloc
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
from http_front import USUAL, front

from bascule.core.bridge import Bridge
from bascule.hookspecs.kit import free_port

MIB = 1024 * 1024
A_WHILE = 1.5  # a socket that takes nothing for so long is held back; a slow machine lets the test pass, never fail
IDLE_KB = 40
SECONDS = 60


class App:
    """Reads a body once it may, answers, or streams until the client leaves."""

    def __init__(self) -> None:
        self.begun = self.left = 0
        self.taken = hashlib.sha256()
        self.let_go = asyncio.Event()

    async def __call__(self, scope, receive, send) -> None:
        self.begun += 1
        if scope["method"] == "POST":
            await self.let_go.wait()
            while True:
                message = await receive()
                self.taken.update(message.get("body", b""))
                if not message.get("more_body"):
                    break
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left += 1
            return
        await self.let_go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def app():
    return App()


def head(port: int, first: str, *lines: str) -> bytes:
    return "\r\n".join([f"{first} HTTP/1.1", f"Host: 127.0.0.1:{port}", *lines, "", ""]).encode()


@pytest.mark.req("A6")
async def test_a_body_that_is_read_late_is_held_back_and_arrives_whole(app, tokens, http_server):
    body = os.urandom(MIB) * 24
    limits = replace(USUAL, http_body_bytes=len(body))
    async with front(app, http_server, identities=tokens, limits=limits, body_seconds=SECONDS) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        kind = "Content-Type: application/json"
        writer.write(head(port, "POST /", kind, f"Content-Length: {len(body)}"))
        sent = 0
        with suppress(TimeoutError):
            while sent < len(body):
                writer.write(body[sent : sent + 65_536])
                sent += 65_536
                async with asyncio.timeout(A_WHILE):
                    await writer.drain()
        assert sent < len(body)
        app.let_go.set()
        for at in range(sent, len(body), 65_536):
            writer.write(body[at : at + 65_536])
            await writer.drain()
        async with asyncio.timeout(SECONDS):
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert app.taken.digest() == hashlib.sha256(body).digest()
        writer.transport.abort()


@pytest.mark.req("A6")
@pytest.mark.parametrize("http_server", ["hypercorn"])  # uvicorn takes that for the client's end
async def test_who_has_said_all_is_still_answered(app, tokens, http_server, until):
    async with front(app, http_server, identities=tokens) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(port, "GET /"))
        writer.write_eof()
        await until(lambda: app.begun == 1)
        app.let_go.set()
        async with asyncio.timeout(SECONDS):
            assert (await reader.read()).endswith(b"\r\n\r\nok")
        writer.close()


@pytest.mark.req("A6")
async def test_of_who_breaks_off_nothing_is_kept(app, tokens, http_server, until):
    async with front(app, http_server, identities=tokens, idle_seconds=3_600) as port:
        before = len(asyncio.all_tasks())
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for reader, writer in streams:
            writer.write(head(port, "GET /stream"))
            await reader.readuntil(b"begun")
        for _, writer in streams:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
            writer.transport.abort()
        await until(lambda: app.left == 10)
        await until(lambda: len(asyncio.all_tasks()) == before)


# --- what idle sessions hold ------------------------------------------------------------------------------


def session(port: int, kept: ExitStack) -> None:
    """Open a stream and, on a connection of its own, go through the handshake; both stay open."""
    stream = kept.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS))
    stream.sendall(head(port, "GET /sse", "Accept: text/event-stream"))
    lines = stream.makefile("rb")

    def data() -> bytes:
        while not (line := lines.readline()).startswith(b"data: "):
            assert line, "the stream ended"
        return line[6:].strip()

    endpoint = data().decode()
    posts = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    kept.callback(posts.close)

    def post(method: str, **more: object) -> None:
        message = json.dumps({"jsonrpc": "2.0", "method": method, **more})
        posts.request("POST", endpoint, message, {"Content-Type": "application/json"})
        assert posts.getresponse().read() == b"Accepted"

    client = {"name": "idle", "version": "1"}
    post("initialize", id=1, params={"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
    assert json.loads(data())["id"] == 1
    post("notifications/initialized")
    lines.close()


def opened(port: int, count: int, kept: ExitStack) -> None:
    for _ in range(count):
        session(port, kept)


@pytest.mark.req("A3")
@pytest.mark.skipif(sys.platform == "win32", reason="uvloop, on which the bound is set, does not run on Windows")
def test_an_idle_session_holds_little(settings, http_server):
    uvloop = pytest.importorskip("uvloop", reason="the bound is set for uvloop, which the extra `fast` brings")
    port, count = free_port(), 100

    async def held() -> float:
        serving = settings.with_(
            http_server=http_server,
            disabled_hook_plugins=("quart_api",),
            plugins={"sse_server": {"port": port, "maxSessions": 2 * count}},
        )
        async with Bridge(serving) as bridge, bridge.serve():
            with ExitStack() as kept:
                await asyncio.to_thread(opened, port, 10, kept)
                gc.collect()
                before, _ = tracemalloc.get_traced_memory()
                await asyncio.to_thread(opened, port, count, kept)
                gc.collect()
                return (tracemalloc.get_traced_memory()[0] - before) / count / 1024

    tracemalloc.start()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            kilobytes = runner.run(held())
    finally:
        tracemalloc.stop()
    assert kilobytes < IDLE_KB
