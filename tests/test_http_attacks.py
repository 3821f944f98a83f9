"""What an attacker writes to a socket: messages whose end is in doubt, and floods that would fill the memory.

On every HTTP server that runs our apps. Where a server may hold so much and no more, the test counts what it took:
a server that holds back is seen by a socket that takes nothing more for a while.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from http_front import front
from sse_client import connect

from bascule.hookspecs import Prompt, PromptAnswer

pytestmark = pytest.mark.req("A6")

MIB = 1024 * 1024
MUCH = 16 * MIB
A_WHILE = 1.5  # a socket that takes nothing for so long is held back; a slow machine lets the test pass, never fail


class App:
    """Answers, streams without end, or answers on the spot; remembers what reached it, and with which headers."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.bodies: list[bytes] = []
        self.let_go = asyncio.Event()

    def prompt(self, scope) -> Prompt | None:
        def answer(_: bytes) -> PromptAnswer:
            self.reached.append(f"{scope['method']} {scope['path']}")
            return PromptAnswer(202, b"Accepted")

        return answer if scope["path"] == "/now" else None

    async def __call__(self, scope, receive, send) -> None:
        self.reached.append(f"{scope['method']} {scope['path']}")
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        self.headers.append(list(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        if scope["path"] == "/held":
            await self.let_go.wait()
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def app():
    return App()


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def taken(writer: asyncio.StreamWriter, piece: bytes) -> int:
    """Write ``piece`` again and again; how many bytes went out until the server closed, or took no more for a while."""
    sent = 0
    with suppress(OSError, TimeoutError):
        while sent < MUCH:
            writer.write(piece)
            async with asyncio.timeout(A_WHILE):
                await writer.drain()
            sent += len(piece)
    return sent


async def everything(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server closes."""
    got = b""
    with suppress(OSError):
        async with asyncio.timeout(40):
            while chunk := await reader.read(65_536):
                got += chunk
    return got


def head(port: int, first: str, *lines: str) -> bytes:
    return "\r\n".join([f"{first} HTTP/1.1", f"Host: 127.0.0.1:{port}", *lines, "", ""]).encode()


JSON = "Content-Type: application/json"


# --- whose end is in doubt --------------------------------------------------------------------------------

IN_DOUBT = {
    "two lengths": ("Content-Length: 4", "Transfer-Encoding: chunked"),
    "two lengths the other way round": ("Transfer-Encoding: chunked", "Content-Length: 4"),
    "lengths that are listed": ("Content-Length: 4, 5",),
    "lengths that differ": ("Content-Length: 4", "Content-Length: 400"),
    "an endless length": (f"Content-Length: {'9' * 5_000}",),
    "a length with a sign": ("Content-Length: +4",),
    "a length with a blank in it": ("Content-Length: 4 0",),
    "a coding said twice": ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "two codings": ("Transfer-Encoding: gzip, chunked",),
    "chunked twice": ("Transfer-Encoding: chunked, chunked",),
    "chunked and not last": ("Transfer-Encoding: chunked, identity",),
    "an unknown coding": ("Transfer-Encoding: xchunked",),
    "identity": ("Transfer-Encoding: identity", "Content-Length: 4"),
    "a coding behind a tab": ("Transfer-Encoding:\tchunked", "Content-Length: 4"),
    "a coding behind a vertical tab": ("Transfer-Encoding: \x0bchunked",),
    "a name with a blank": ("Transfer-Encoding : chunked",),
    "a NUL": ("X-Odd: a\0b", "Content-Length: 4"),
}


@pytest.mark.parametrize("lines", IN_DOUBT.values(), ids=IN_DOUBT)
async def test_nothing_is_read_behind_a_message_whose_end_is_in_doubt(app, tokens, http_server, lines):
    async with front(app, http_server, identities=tokens, idle_seconds=2) as port, raw(port) as (reader, writer):
        for second in (head(port, "GET /smuggled"), b"0\r\n\r\n" + head(port, "GET /smuggled")):
            writer.write(head(port, "POST /messages", JSON, *lines) + b"2\r\n{}\r\n0\r\n\r\n" + second)
        answer = await everything(reader)
        assert answer == b"" or answer.split()[1] in (b"400", b"413", b"415", b"431", b"501")
        assert answer.count(b"HTTP/1.1 ") <= 1
        assert not [each for each in app.reached if "smuggled" in each]
        assert not app.bodies


@pytest.mark.parametrize(
    "upgrade", ["websocket", "h2c", "TLS/1.0", "websocket, h2c"], ids=["websocket", "h2c", "TLS", "two of them"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("framing", ["none", "length", "chunked"])
async def test_no_request_hides_behind_an_upgrade(app, tokens, http_server, upgrade, method, framing):
    async with front(app, http_server, identities=tokens, idle_seconds=1) as port, raw(port) as (reader, writer):
        hidden = head(port, "GET /smuggled")
        framed = {
            "none": ([], hidden),
            "length": ([f"Content-Length: {len(hidden)}"], hidden + hidden),
            "chunked": (["Transfer-Encoding: chunked"], b"%x\r\n%s\r\n0\r\n\r\n" % (len(hidden), hidden) + hidden),
        }
        lines, rest = framed[framing]
        more = [
            "Connection: Upgrade, HTTP2-Settings",
            f"Upgrade: {upgrade}",
            "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
        ]
        writer.write(head(port, f"{method} /messages", JSON, *more, *lines) + rest)
        await everything(reader)
        assert not [each for each in app.reached if "smuggled" in each]


@pytest.mark.parametrize("http_server", ["uvicorn"])
async def test_a_client_that_offers_http2_is_answered_in_http1(serve, echo):
    pytest.importorskip("uvicorn", reason="NOT TESTED HERE: uvicorn is not installed (pip install 'bascule[fast]')")
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAoAAAAAIAAAAA"}
    async with serve(echo) as served, connect(served.base, headers=offer) as client:
        await client.initialize()
        for number in range(3):
            answer = await client.call("mcp-fixture.echo", {"message": str(number)})
            assert answer["structuredContent"]["message"] == str(number)


async def test_what_follows_a_body_is_no_header(app, tokens, http_server):
    async with front(app, http_server, identities=tokens) as port, raw(port) as (reader, writer):
        trailers = "Authorization: Bearer x\r\nHost: evil.example\r\nX-Late: y"
        writer.write(head(port, "POST /messages", JSON, "Transfer-Encoding: chunked"))
        writer.write(b"2\r\n{}\r\n0\r\n" + trailers.encode() + b"\r\n\r\n")
        await reader.readuntil(b"ok")
        assert app.bodies == [b"{}"]
        assert {name for name, _ in app.headers[0]} == {b"host", b"content-type", b"transfer-encoding"}


@pytest.mark.parametrize("lines", [("Content-Length: 4, 4",), ("Content-Length: 4", "Content-Length: 4")])
async def test_a_length_that_is_said_twice_alike_is_that_length_or_refused(app, tokens, http_server, lines):
    async with front(app, http_server, identities=tokens, idle_seconds=2) as port, raw(port) as (reader, writer):
        writer.write(head(port, "POST /messages", JSON, *lines) + b"12 4" + head(port, "GET /second"))
        await everything(reader)
        assert (app.reached, app.bodies) in (
            ([], []),
            (["POST /messages", "GET /second"], [b"12 4", b""]),  # RFC 9112, 6.3
        )


# --- floods -----------------------------------------------------------------------------------------------


def waiting_requests() -> int:
    """How many requests the HTTP servers hold in this process."""
    return sum(type(each).__name__ in ("RequestResponseCycle", "HTTPStream") for each in gc.get_objects())


@pytest.mark.parametrize("target", ["GET /any", "GET /held", "POST /now", "POST /refused"])
async def test_requests_that_come_before_their_turn_are_held_back(app, tokens, http_server, target):
    async with front(app, http_server, identities=tokens, send_seconds=60) as port, raw(port) as (_, writer):
        lines = [JSON, "Content-Length: 0"] if "now" in target else ["Content-Length: 0"] if "POST" in target else []
        sent = await taken(writer, head(port, target, *lines) * 1_000)  # and none of the answers is read
        assert sent < MUCH
        assert waiting_requests() < 500
        app.let_go.set()


async def test_pipelined_requests_are_answered_one_by_one_and_in_order(app, tokens, http_server):
    async with front(app, http_server, identities=tokens) as port, raw(port) as (reader, writer):
        names = [f"/{number}" for number in range(2_000)]

        async def ask() -> None:
            for name in names:
                writer.write(head(port, f"GET {name}"))
                await writer.drain()

        asking = asyncio.create_task(ask())
        for _ in names:
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        await asking
        assert app.reached == [f"GET {name}" for name in names]


@pytest.mark.parametrize(
    "start",
    [b"GET /", b"GET / HTTP/1.1\r\nX-Endless: ", b"GET / HTTP/1.1\r\n", b"POST /now HTTP/1.1\r\nContent-Length: "],
    ids=["target", "header", "headers", "length"],
)
@pytest.mark.parametrize("first", [None, "GET /held"])
async def test_a_head_without_end_is_bounded_also_behind_a_request_that_still_runs(
    app, tokens, http_server, until, first, start
):
    async with front(app, http_server, identities=tokens) as port, raw(port) as (_, writer):
        if first:
            writer.write(head(port, first))
            await until(lambda: len(app.headers) == 1)
        writer.write(start)
        piece = b"X: y\r\n" * 2_000 if start.endswith(b"\r\n") else b"1" * 16_384
        assert await taken(writer, piece) < MUCH
        app.let_go.set()


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"2\r\n{}\r\n0\r\nX-Endless: ", b"x" * 16_384),
        (b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 2_000),
        (b"2;endless=", b"x" * 16_384),
        (b"0" * 10, b"0" * 16_384),
    ],
    ids=["trailer", "trailers", "extension", "size"],
)
async def test_what_stands_around_a_body_is_bounded(app, tokens, http_server, start, piece):
    async with front(app, http_server, identities=tokens, body_seconds=60) as port, raw(port) as (_, writer):
        writer.write(head(port, "POST /messages", JSON, "Transfer-Encoding: chunked") + start)
        assert await taken(writer, piece) < MUCH


async def test_blank_lines_before_a_request_are_no_way_to_stay(app, tokens, http_server):
    async with front(app, http_server, identities=tokens, idle_seconds=1) as port, raw(port) as (reader, writer):
        ending = asyncio.create_task(everything(reader))
        while not ending.done():
            with suppress(OSError):
                writer.write(b"\r\n" * 100)
                await writer.drain()
            await asyncio.wait({ending}, timeout=0.05)
        assert not app.reached
