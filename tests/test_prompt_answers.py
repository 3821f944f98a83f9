"""Requests that uvicorn answers on the spot: as strictly as the others, in order, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from http_front import front
from prompted import KIND, SMALL, Prompted, Wire, post, wire

from bascule.core import serving
from bascule.core.tokens import Tokens
from bascule.hookspecs import HttpPolicy, Identity

pytest.importorskip("httptools", reason="only httptools has the prompt road (pip install 'bascule[fast]')")


@pytest.fixture
def app() -> Prompted:
    return Prompted()


@asynccontextmanager
async def served(app: Prompted, tokens: Tokens, **times: float) -> AsyncIterator[tuple[int, Wire]]:
    """The app's port, and a connection to it."""
    async with front(app, "uvicorn", identities=tokens, **times) as port, wire(port) as connection:
        yield port, connection


async def test_a_plain_request_is_answered_on_the_spot_again_and_again(app, tokens):
    async with served(app, tokens) as (port, connection):
        for query in ("", "a=1", "b=%20"):
            target = f"/now?{query}" if query else "/now"
            status, text = await connection.ask(post(port, KIND, SMALL, target=target))
            road = "later {}" if "%" in query else f"now {{}}?{query}"
            assert (status, text) == (200 if "%" in query else 202, road)


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ((KIND, SMALL, "Connection: close"), b"{}"),
        ((KIND, SMALL, "Expect: 100-continue"), b"{}"),
        ((KIND, SMALL, "Connection: Upgrade", "Upgrade: websocket"), b"{}"),
        ((KIND, SMALL, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"), b"{}"),
        ((KIND, "Transfer-Encoding: chunked"), b"2\r\n{}\r\n0\r\n\r\n"),
        ((KIND, "Content-Length: 70000"), b"x" * 70_000),
    ],
    ids=["close", "expect", "upgrade", "h2c", "chunked", "large"],
)
async def test_what_is_not_plain_goes_the_ordinary_road(app, tokens, lines, body):
    async with served(app, tokens) as (port, connection):
        connection.writer.write(post(port, *lines, body=body))
        async with asyncio.timeout(60):
            line = await connection.reader.readline()
            if b" 100 " in line:
                await connection.reader.readline()
                line = await connection.reader.readline()
        assert int(line.split()[1]) in (200, 400)
    assert all(road == "later" for road, _ in app.seen)


@pytest.mark.parametrize("cut", [1, -1, -2, -3, -20])
async def test_a_request_in_pieces_is_the_same_request(app, tokens, cut):
    async with served(app, tokens) as (port, connection):
        whole = post(port, KIND, "Content-Length: 10", body=b'{"a": "b"}')
        connection.writer.write(whole[:cut])
        await asyncio.sleep(0.05)  # so that it most likely comes in two pieces; it may come in one
        _, text = await connection.ask(whole[cut:])
        assert text.split("?")[0] in ('now {"a": "b"}', 'later {"a": "b"}')
        assert (await connection.ask(post(port, KIND, SMALL)))[1] == "now {}?"
    assert [body for _, body in app.seen] == [b'{"a": "b"}', b"{}"]


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("Content-Type: text/plain", SMALL), 415),
        ((KIND, SMALL, "Origin: https://evil.example"), 403),
        ((KIND, SMALL, "Sec-Fetch-Site: cross-site"), 403),
        ((KIND, SMALL, "Host: 127.0.0.1"), 400),
        ((KIND, SMALL, "Authorization: Bearer nonsense"), 401),
        ((KIND, SMALL, "Authorization: Basic Zm9vOmJhcg=="), 401),
        ((KIND, SMALL, "Transfer-Encoding: chunked"), 400),
        ((KIND, SMALL, "Content-Length: 3"), 400),
        ((KIND, SMALL, *(f"X-{number}: x" for number in range(120))), 431),
        ((KIND, "Content-Length: 5000000"), 413),
    ],
)
async def test_what_the_guard_refuses_is_refused_on_both_roads(app, tokens, lines, status):
    async with served(app, tokens) as (port, connection):
        connection.writer.write(post(port, *lines))
        line = await asyncio.wait_for(connection.reader.readline(), 60)
        assert int(line.split()[1]) == status
    assert app.seen == []


@pytest.mark.req("A6")
async def test_a_token_is_asked_for_on_the_spot_as_well(app, tokens):
    secret = tokens.create("laptop", ["call"])
    reading = tokens.create("reader", ["read"])
    policy = HttpPolicy(tokens_required=True)
    async with front(app, "uvicorn", identities=tokens, policy=policy) as port, wire(port) as connection:
        assert (await connection.ask(post(port, KIND, SMALL)))[0] == 401
        assert (await connection.ask(post(port, KIND, SMALL, f"Authorization: Bearer {reading}")))[0] == 403
        status, _ = await connection.ask(post(port, KIND, SMALL, f"Authorization: Bearer {secret}"))
        assert status == 202
        tokens.revoke("laptop")
        assert (await connection.ask(post(port, KIND, SMALL, f"Authorization: Bearer {secret}")))[0] == 401
    assert app.who == [Identity("laptop", frozenset({"call"}))]


async def test_requests_behind_one_another_are_answered_in_order(app, tokens):
    async with served(app, tokens) as (port, connection):
        targets = ["/now", "/later", "/now", "/now", "/later", "/now"]
        for number, target in enumerate(targets):
            connection.writer.write(post(port, KIND, SMALL, target=target, body=b"%02d" % number))
        answers = [await connection.answer() for _ in targets]
    assert [text.split("?")[0].split()[1] for _, text in answers] == [f"{number:02d}" for number in range(6)]
    assert [body for _, body in app.seen] == [b"%02d" % number for number in range(6)]


async def test_what_follows_a_body_is_no_header(app, tokens):
    trailer = b"2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\nX-Late: 1\r\n\r\n"
    async with served(app, tokens) as (port, connection):
        assert await connection.ask(post(port, KIND, "Transfer-Encoding: chunked", body=trailer)) == (200, "later {}")
    assert not {b"authorization", b"x-late"} & {name for name, _ in app.headers[0]}


async def test_nonsense_behind_a_request_ends_the_connection_behind_its_answer(app, tokens):
    async with served(app, tokens) as (port, connection):
        connection.writer.write(post(port, KIND, SMALL) + b"\x00\x01 nonsense\r\n\r\n")
        answers = await connection.rest()
    assert answers.startswith(b"HTTP/1.1 202 ")
    assert answers.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 400 " in answers


async def test_who_reads_no_answers_is_left_and_not_read_from_for_ever(app, tokens, monkeypatch):
    """Answers that no one takes fill the connection's buffers; then nothing more is taken from it."""
    monkeypatch.setattr(serving, "_UNREAD_MILLISECONDS", 1_000)
    body = b"x" * 60_000
    async with front(app, "uvicorn", identities=tokens, send_seconds=0.5) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        request = post(port, KIND, f"Content-Length: {len(body)}", body=body)

        async def send_all() -> None:
            for _ in range(5_000):
                writer.write(request)
                await writer.drain()

        try:
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(send_all(), 60)
        finally:
            writer.transport.abort()


async def test_a_body_that_stops_in_the_middle_is_given_up(app, tokens):
    async with served(app, tokens, body_seconds=0.3) as (port, connection):
        assert (await connection.ask(post(port, KIND, "Content-Length: 100")))[0] == 408
    assert app.seen == []


async def test_who_falls_silent_behind_an_answer_is_left(app, tokens):
    async with served(app, tokens, idle_seconds=0.5) as (port, connection):
        for _ in range(3):
            assert (await connection.ask(post(port, KIND, SMALL)))[0] == 202
        assert await connection.rest() == b""


@pytest.mark.parametrize("target", ["/fails", "/fails-soon"])
async def test_an_apps_fault_is_told_and_ends_nothing(app, tokens, caplog, target):
    async with served(app, tokens) as (port, connection):
        for _ in range(2):
            assert (await connection.ask(post(port, KIND, SMALL, target=target)))[0] == 500
        assert (await connection.ask(post(port, KIND, SMALL)))[0] == 202
    assert "a prompt answer failed" in caplog.text
