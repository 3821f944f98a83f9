"""What must not get through to an app, on every HTTP server that runs ours: raw sockets, real bytes."""

from __future__ import annotations

import asyncio
import json
import stat
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import h2.config
import h2.connection
import httpx
import pytest
from http_front import SERVERS, front
from sse_client import connect

from bascule.builtin_plugins.sse_server import SseServer, SseSettings
from bascule.builtin_plugins.sse_server.app import SseApp
from bascule.core.guard import Guard
from bascule.core.serving import serve_http
from bascule.core.view import View
from bascule.hookspecs import Bind, HttpPolicy, Limits

JSON = {"content-type": "application/json"}


class Recorder:
    """An app that reads what it is sent, says who sent it, and remembers what reached it."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.bodies: list[bytes] = []
        self.asked: list[str] = []

    def prompt(self, scope) -> None:
        """Answer nothing on the spot: what we are asked here must then come the ordinary way, and nothing else."""
        self.asked.append(f"{scope['method']} {scope['path']}")

    async def __call__(self, scope, receive, send) -> None:
        self.reached.append(f"{scope['method']} {scope['path']}")
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        identity = scope["bascule.identity"]
        answer = json.dumps(
            {"who": identity and identity.name, "scopes": identity and sorted(identity.scopes)}
        ).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@pytest.fixture
def app():
    recorder = Recorder()
    yield recorder
    assert not Counter(recorder.asked) - Counter(recorder.reached)


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def status_of(port: int, request: bytes, seconds: float = 60) -> int:
    """Send the bytes; the status of the answer, 0 where the connection was closed without one."""
    async with asyncio.timeout(seconds), raw(port) as (reader, writer):
        with suppress(OSError):
            writer.write(request)
            await writer.drain()
        try:
            line = await reader.readline()
        except OSError:
            return 0
        return int(line.split()[1]) if line else 0


def get(port: int, *lines: str, target: str = "/sse", host: str | None = "127.0.0.1:{port}") -> bytes:
    head = [f"GET {target} HTTP/1.1", *([] if host is None else [f"Host: {host.format(port=port)}"]), *lines]
    return "\r\n".join([*head, "", ""]).encode("latin-1")


def post(port: int, *lines: str, body: bytes = b"{}") -> bytes:
    head = [f"POST /messages HTTP/1.1\r\nHost: 127.0.0.1:{port}", *lines]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


# --- who is addressed, and from where ---------------------------------------------------------------------

OURS = ("127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}", "[::1]:{port}")
NOT_OURS = (
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "localhost.evil.example:{port}",
    "0.0.0.0:{port}",
    "127.1:{port}",
    "2130706433:{port}",
    "127.0.0.1",
    "127.0.0.1:1",
    "user@127.0.0.1:{port}",
    "127.0.0.1:{port}@evil.example",
    "localhost.:{port}",
    "",
)


@pytest.mark.req("A6")
async def test_only_our_own_names_are_answered(app, tokens, http_server):
    async with front(app, http_server, identities=tokens) as port:
        assert [await status_of(port, get(port, host=host)) for host in OURS] == [200] * 4
        assert app.reached == ["GET /sse"] * 4
        assert [await status_of(port, get(port, host=host)) for host in NOT_OURS] == [421] * 13
        assert await status_of(port, get(port, host=None)) == 400
        assert await status_of(port, get(port, "Host: evil.example")) == 400
        assert len(app.reached) == 4


@pytest.mark.req("A6")
async def test_names_that_the_owner_adds_are_answered_too(app, tokens, http_server):
    policy = HttpPolicy(
        allowed_hosts=frozenset({"Bridge.example:8443"}), allowed_origins=frozenset({"https://App.example"})
    )
    async with front(app, http_server, identities=tokens, policy=policy) as port:
        assert await status_of(port, get(port, host="bridge.example:8443")) == 200
        assert await status_of(port, get(port, "Origin: https://bridge.example:8443")) == 200
        assert await status_of(port, get(port, "Origin: https://app.example")) == 200
        assert await status_of(port, get(port, host="bridge.example")) == 421


FOREIGN_ORIGINS = (
    "null",
    "http://evil.example",
    "https://evil.example",
    "http://localhost.evil.example:{port}",
    "http://localhost:{port}.evil.example",
    "http://127.0.0.1",
    "http://localhost:1",
    "file://",
)


@pytest.mark.req("A6")
async def test_pages_of_other_sites_are_refused(app, tokens, http_server):
    async with front(app, http_server, identities=tokens) as port:
        for origin in FOREIGN_ORIGINS:
            line = f"Origin: {origin.format(port=port)}"
            assert (origin, await status_of(port, get(port, line))) == (origin, 403)
            preflight = get(port, line, "Access-Control-Request-Method: POST").replace(b"GET", b"OPTIONS", 1)
            assert await status_of(port, preflight) == 403
        for site in ("cross-site", "same-site"):
            assert await status_of(port, get(port, f"Sec-Fetch-Site: {site}")) == 403
        assert not app.reached
        for line in (f"Origin: http://localhost:{port}", "Sec-Fetch-Site: none", "Sec-Fetch-Site: same-origin"):
            assert await status_of(port, get(port, line)) == 200


@pytest.mark.req("A6")
async def test_a_websocket_is_refused(app, tokens, http_server):
    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: " + "A" * 22 + "==",
    )
    async with front(app, http_server, identities=tokens) as port:
        foreign = await status_of(port, get(port, *upgrade, "Origin: http://evil.example"))
        assert foreign == 403
        assert await status_of(port, get(port, *upgrade)) != 101


NO_JSON = (
    "Content-Type: text/plain",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: multipart/form-data; boundary=x",
    "Content-Type: text/plain; application/json",
    "Content-Type: application/json-patch+json",
    "Content-Type:",
    "X-Content-Type: application/json",
)


@pytest.mark.req("A6")
async def test_what_a_page_can_post_without_asking_is_refused(app, tokens, http_server):
    async with front(app, http_server, identities=tokens) as port:
        assert [await status_of(port, post(port, line, "Content-Length: 2")) for line in NO_JSON] == [415] * 7
        assert not app.reached
        for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON ;x=y"):
            assert await status_of(port, post(port, f"Content-Type: {kind}", "Content-Length: 2")) == 200


# --- framing ----------------------------------------------------------------------------------------------

KIND = "Content-Type: application/json"


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 2"),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Content-Length: 2, 3",),
        ("Content-Length: +2",),
        ("Content-Length: -2",),
        ("Content-Length: 0x2",),
        ("Content-Length: 2", "Content-Type: text/plain"),
        ("Content-Length: 2", "Bad Header: x"),
        ("Content-Length : 2",),
    ],
)
async def test_a_message_whose_end_or_kind_is_in_doubt_is_refused(app, tokens, http_server, lines):
    async with front(app, http_server, identities=tokens) as port:
        assert await status_of(port, post(port, KIND, *lines, body=b"2\r\n{}\r\n0\r\n\r\n")) in (400, 0)
        assert not app.reached


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    "target", ["http://evil.example/sse", "http://127.0.0.1/sse", "//evil.example/sse", "evil.example:80", "*", "sse"]
)
async def test_a_target_that_is_no_path_is_refused(app, tokens, http_server, target):
    async with front(app, http_server, identities=tokens) as port:
        status = await status_of(port, get(port, target=target))
        if target.startswith("//"):  # a path, if an odd one: it names no authority
            assert app.reached == ["GET //evil.example/sse"]
        else:
            assert status in (400, 0)
            assert not app.reached


@pytest.mark.req("A6")
async def test_too_many_headers_and_too_large_ones_are_refused(app, tokens, http_server):
    async with front(app, http_server, identities=tokens) as port:
        for lines in ([f"X-{number}: {number}" for number in range(2000)], [f"X-Large: {'x' * 17 * 1024}"]):
            assert await status_of(port, get(port, *lines)) == 431
        assert not app.reached
        assert await status_of(port, get(port, *[f"X-{number}: x" for number in range(90)])) == 200


@pytest.mark.req("A6")
async def test_a_head_without_end_is_cut_off(app, tokens, http_server):
    async with front(app, http_server, identities=tokens) as port:
        for start in (b"GET /" + b"a" * 100, get(port)[:-2] + b"X-Endless: "):
            async with asyncio.timeout(20), raw(port) as (reader, writer):
                writer.write(start)
                sent = 0
                try:
                    while sent < 8 * 1024 * 1024:
                        writer.write(b"x" * 16_384)
                        await writer.drain()
                        sent += 16_384
                        await asyncio.sleep(0)
                except OSError:
                    pass
                assert sent < 8 * 1024 * 1024
                with suppress(OSError):
                    assert (await reader.read())[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 431")
        assert not app.reached


# --- bodies -----------------------------------------------------------------------------------------------

SMALL = Limits(http_body_bytes=64 * 1024)


@pytest.mark.req("A6")
async def test_a_body_over_the_bound_is_refused_before_it_is_read(app, tokens, http_server):
    async with front(app, http_server, identities=tokens, limits=SMALL) as port:
        assert await status_of(port, post(port, KIND, f"Content-Length: {1024**3}")) == 413
        assert not app.reached
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=JSON) as http:
            assert (await http.post("/messages", content=b"x" * 65_537)).status_code == 413
            assert (await http.post("/messages", content=b"x" * 65_536)).status_code == 200


@pytest.mark.req("A6")
async def test_a_body_that_says_no_length_is_bounded_as_it_comes(app, tokens, http_server):
    async with front(app, http_server, identities=tokens, limits=SMALL) as port:
        chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        request = post(port, KIND, "Transfer-Encoding: chunked", body=b"")
        assert await status_of(port, request + chunk * 15 + b"0\r\n\r\n") == 200
        assert await status_of(port, request + chunk * 400) == 413
        assert [len(body) for body in app.bodies] == [15 * 4096]


@pytest.mark.req("A6")
async def test_a_body_that_does_not_come_is_given_up(app, tokens, http_server):
    async with front(app, http_server, identities=tokens, body_seconds=0.4) as port:
        request = post(port, KIND, "Content-Length: 1000")
        assert await status_of(port, request) == 408

        async def drip() -> int:
            async with raw(port) as (reader, writer):
                writer.write(request)
                answer = asyncio.create_task(reader.readline())
                while not answer.done():
                    writer.write(b" ")
                    await asyncio.sleep(0.05)
                # who still writes while the server closes may lose its answer
                return 0 if answer.exception() or not answer.result() else int(answer.result().split()[1])

        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(drip() for _ in range(50)))
        assert set(answers) <= {408, 0}
        assert 408 in answers
        assert await status_of(port, get(port)) == 200


# --- slow and silent connections --------------------------------------------------------------------------


@pytest.mark.req("A6")
async def test_silent_connections_and_slow_heads_are_ended(app, tokens, http_server):
    async def ends(port: int, start: bytes, drip: bytes) -> None:
        async with raw(port) as (reader, writer):
            writer.write(start)
            reading = asyncio.create_task(reader.read())
            with suppress(OSError):
                while not reading.done():
                    if drip:
                        writer.write(drip)
                        await writer.drain()
                    await asyncio.wait({reading}, timeout=0.1)
            with suppress(OSError):
                await reading

    async with front(app, http_server, identities=tokens, idle_seconds=0.6) as port:
        answered = get(port)
        async with asyncio.timeout(60):
            slow = [(b"", b""), (b"GET /s", b""), (b"GET /s", b"x"), (get(port)[:-4], b"a"), (b"\r\n", b"\r\n")]
            idle = [(answered, b""), (answered, b"G"), (answered + b"GET /", b"x")]
            await asyncio.gather(*(ends(port, start, drip) for start, drip in (*slow, *idle) for _ in range(10)))
        assert app.reached == ["GET /sse"] * 30
        assert await status_of(port, get(port)) == 200


@pytest.mark.req("A6")
async def test_of_who_has_left_nothing_is_kept(app, tokens, http_server, until):
    """A connection may be idle for long; once its client has closed it, no task and no descriptor waits for that."""
    async with front(app, http_server, identities=tokens, idle_seconds=3_600) as port:
        before = len(asyncio.all_tasks())
        for request in (get(port), post(port, KIND, "Content-Length: 2"), get(port)[:-3], b""):
            connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
            for reader, writer in connections:
                writer.write(request)
                if request.endswith((b"\r\n\r\n", b"{}")):
                    await reader.readuntil(b"}")
            for _, writer in connections:
                writer.close()
            await until(lambda: len(asyncio.all_tasks()) == before)


class Endless:
    """Streams for as long as it is let, and tells when it ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended: list[BaseException | None] = []

    async def __call__(self, scope, receive, send) -> None:
        if scope["path"] != "/stream":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        self.begun += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
                await asyncio.sleep(0)
        except BaseException as error:
            self.ended.append(error)
            raise


@pytest.mark.req("A6", "A3")
async def test_streams_that_nobody_reads_are_cut(tokens, http_server, until):
    app = Endless()
    async with front(app, http_server, identities=tokens, send_seconds=0.5) as port:
        connections = [await asyncio.open_connection("127.0.0.1", port, limit=1024) for _ in range(20)]
        for _, writer in connections:
            writer.write(get(port, target="/stream"))
        await until(lambda: app.begun == 20)
        assert await status_of(port, get(port, target="/other")) == 204
        await until(lambda: len(app.ended) == 20)
        assert {type(error) for error in app.ended} == {TimeoutError}
        for _, writer in connections:
            writer.transport.abort()


# --- cleartext HTTP/2 -------------------------------------------------------------------------------------


@pytest.mark.req("A6")
async def test_cleartext_http2_reaches_no_app(app, tokens, http_server):
    async with front(app, http_server, identities=tokens) as port:
        spoken = {"hypercorn": ["505"], "uvicorn": []}  # uvicorn does not speak it at all
        assert await speak_http2(port, resets=0) == spoken[http_server]
        await speak_http2(port, resets=2000)
        upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
        await status_of(port, get(port, *upgrade))
        upgraded = {"hypercorn": [], "uvicorn": ["GET /sse"]}  # which ignores it, and speaks HTTP/1.1
        assert app.reached == upgraded[http_server]
        assert await status_of(port, get(port)) == 200


async def speak_http2(port: int, resets: int) -> list[str]:
    """Open streams with prior knowledge, reset all but the last at once; the statuses that came back."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    headers = [(":method", "GET"), (":path", "/sse"), (":scheme", "http"), (":authority", f"127.0.0.1:{port}")]
    statuses: list[str] = []
    async with asyncio.timeout(30), raw(port) as (reader, writer):
        with suppress(OSError):
            for _ in range(resets):
                stream = connection.get_next_available_stream_id()
                connection.send_headers(stream, headers, end_stream=True)
                connection.reset_stream(stream)
                writer.write(connection.data_to_send())
                await writer.drain()
            if not resets:
                connection.send_headers(connection.get_next_available_stream_id(), headers, end_stream=True)
                writer.write(connection.data_to_send())
            while not statuses and (data := await reader.read(65_536)):
                if not data.startswith(b"HTTP/1.1"):
                    for event in connection.receive_data(data):
                        statuses += [
                            value.decode() for name, value in getattr(event, "headers", []) if name == b":status"
                        ]
                if resets:
                    break
    return statuses


# --- tokens -----------------------------------------------------------------------------------------------


def bearer(secret: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {secret}"}


@pytest.mark.req("A6")
async def test_without_a_token_a_local_caller_is_the_documents_client_and_may_call(app, tokens, http_server):
    policy = HttpPolicy(scopes={"/api/": "read", "/api/admin/": "admin"}, open_paths=frozenset({"/healthz"}))
    async with (
        front(app, http_server, identities=tokens, policy=policy) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        assert (await http.get("/sse")).json() == {"who": "mcp-client", "scopes": ["call"]}
        assert (await http.get("/healthz")).json() == {"who": None, "scopes": None}
        for path in ("/api/x", "/api/admin/x"):
            assert (await http.get(path)).status_code == 401


@pytest.mark.req("A6")
async def test_where_tokens_are_needed_only_a_known_one_in_the_header_opens(app, tokens, http_server):
    secret = tokens.create("laptop", ["call"])
    policy = HttpPolicy(tokens_required=True)
    async with (
        front(app, http_server, identities=tokens, policy=policy) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        for query in ("", f"?token={secret}", f"?access_token={secret}", f"?authorization=Bearer%20{secret}"):
            answer = await http.get(f"/sse{query}")
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        wrong = (
            bearer(secret[:-1]),
            bearer(secret + "x"),
            bearer(secret, "Basic"),
            bearer("é"),
            {"authorization": "Bearer"},
        )
        for headers in wrong:
            answer = await http.get("/sse", headers={k: v.encode("latin-1") for k, v in headers.items()})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
            assert secret not in answer.text
        assert (await http.get("/sse", headers=[*bearer(secret).items(), *bearer("x").items()])).status_code == 400
        assert not app.reached
        for scheme in ("Bearer", "bearer"):
            assert (await http.get("/sse", headers=bearer(secret, scheme))).json()["who"] == "laptop"
        assert tokens.revoke("laptop")
        assert (await http.get("/sse", headers=bearer(secret))).status_code == 401


@pytest.mark.req("A6")
async def test_a_tokens_scopes_are_authorities_not_ranks(app, tokens, http_server):
    policy = HttpPolicy(scopes={"/api/": "read", "/api/admin/": "admin"})
    secrets = {
        name: tokens.create(name, scopes)
        for name, scopes in (
            ("call", ["call"]),
            ("read", ["read"]),
            ("admin", ["admin"]),
            ("all", ["call", "read", "admin"]),
        )
    }
    allowed = {
        "call": ["/sse"],
        "read": ["/api/x"],
        "admin": ["/api/admin/x"],
        "all": ["/sse", "/api/x", "/api/admin/x"],
    }
    async with (
        front(app, http_server, identities=tokens, policy=policy) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        for name, secret in secrets.items():
            for path in ("/sse", "/api/x", "/api/admin/x"):
                answer = await http.get(path, headers=bearer(secret))
                assert answer.status_code == (200 if path in allowed[name] else 403)
                if answer.status_code == 403:
                    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


@pytest.mark.req("A6")
async def test_a_session_belongs_to_the_token_that_opened_it(host, echo, tokens, http_server):
    mine, other = tokens.create("mine", ["call"]), tokens.create("other", ["call"])
    async with host(echo) as bridge:
        view = View(bridge, SseServer(SseSettings(), Limits()))
        app = SseApp(view, Limits(), max_sessions=2)
        async with front(app, http_server, identities=tokens, policy=HttpPolicy(tokens_required=True)) as port:
            async with connect(f"http://127.0.0.1:{port}", headers=bearer(mine)) as client:
                await client.initialize()
                for headers, status in ((bearer(other), 404), ({"authorization": ""}, 401)):
                    answer = await client.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
                    assert answer.status_code == status
                assert not (await client.call("mcp-fixture.echo", {"message": "x"}))["isError"]
                tokens.revoke("mine")
                assert (await client.post({})).status_code == 401
            await app.close()


@pytest.mark.req("A6")
async def test_beyond_loopback_tokens_are_needed_whatever_the_policy_says(app, tokens, http_server):
    secret = tokens.create("laptop", ["call"])
    async with front(app, http_server, identities=tokens, host="0.0.0.0") as port:
        assert await status_of(port, get(port, host="0.0.0.0:{port}")) == 401
        assert await status_of(port, get(port, host="127.0.0.1:{port}")) == 421
        assert await status_of(port, get(port, f"Authorization: Bearer {secret}", host="0.0.0.0:{port}")) == 200
    for host, needed in (("127.0.0.1", False), ("::1", False), ("localhost", False), ("192.0.2.7", True), ("::", True)):
        assert Guard.around(app, Bind(host, 1), HttpPolicy(), tokens, Limits()).tokens_required is needed


@pytest.mark.req("A6")
async def test_a_unix_socket_is_its_owners_alone(app, tokens, http_server, short_path):
    path = short_path / "bascule.sock"
    server = SERVERS[http_server]()
    async with serve_http(app, Bind(unix=path), HttpPolicy(), server=server, identities=tokens, limits=Limits()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.get("/sse")).json()["who"] == "mcp-client"
            assert (await http.get("/sse", headers={"host": "evil.example"})).status_code == 421


# --- what a refusal looks like ----------------------------------------------------------------------------


async def test_a_refusal_is_a_problem_document_and_stands_in_the_log(app, tokens, http_server, caplog):
    caplog.set_level("WARNING", logger="bascule.core.guard")
    async with (
        front(app, http_server, identities=tokens) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        answer = await http.get("/sse%0Aforged", headers={"host": "evil.example"})
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (problem["status"], problem["title"]) == (421, "Misdirected Request")
    assert "allowed_hosts" in problem["detail"]
    (record,) = caplog.records
    assert "'GET /sse\\nforged' of 127.0.0.1:" in record.getMessage()
    assert "\n" not in record.getMessage()
