"""A head that came before on its connection: judged once, known by its bytes, and never taken for another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from http_front import front
from prompted import KIND, SMALL, Prompted, Wire, post, wire
from sse_client import connect

from bascule.core import serving
from bascule.hookspecs import HttpPolicy, Identity, KnownHead, PromptAnswer


@pytest.fixture(autouse=True)
def _on_a_parser_that_can_be_asked(http_server: str) -> None:
    if http_server == "uvicorn":
        pytest.importorskip("httptools", reason="h11 has no prompt road (pip install 'bascule[fast]')")


@pytest.fixture
def app() -> Prompted:
    return Prompted()


@pytest.fixture
def served(app, tokens, http_server):
    """The app's port and a connection to it, on which one request was answered."""

    @asynccontextmanager
    async def begun(**times: float) -> AsyncIterator[tuple[int, Wire]]:
        async with front(app, http_server, identities=tokens, **times) as port, wire(port) as connection:
            assert (await connection.ask(post(port, KIND, SMALL, body=b"[]")))[0] in (200, 202)
            yield port, connection

    return begun


def words(answers: list[tuple[int, str]]) -> list[str]:
    """What stands in answers of either road."""
    return [text.split("?")[0].split(" ", 1)[1] for _, text in answers]


async def test_a_head_that_came_before_is_looked_at_once(app, served):
    """Once, or a few times where the system cuts a request into pieces; never each time."""
    bodies = [b"{}", b'{"a": 1}', b"x", b"y" * 5_000] * 5
    async with served() as (port, connection):
        requests = [post(port, KIND, f"Content-Length: {len(body)}", body=body) for body in bodies]
        answers = [await connection.ask(request) for request in requests]
        assert words(answers) == [body.decode() for body in bodies]
        looked = app.heads
        others = [await connection.ask(post(port, KIND, SMALL, target="/now?other")) for _ in range(3)]
        assert others[-1] == (202, "now {}?other")
    assert 1 <= looked < len(bodies) / 2
    assert app.heads > looked


@pytest.mark.req("A6")
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((KIND, "Content-Length: 02"), 0),
        ((KIND, "Content-Length:  2"), 0),
        ((KIND, "content-length: 2"), 0),
        ((KIND, "Content-Length: +2"), 400),
        ((KIND, "Content-Length: 2, 3"), 400),
        ((KIND, "Content-Length: 0x2"), 400),
        ((KIND, "Content-Length: 2 2"), 400),
        ((KIND, "Content-Length: \xb2"), 400),
        ((KIND, "Content-Length: "), 400),
        ((KIND, "Content-Length: 2", "Content-Length: 3"), 400),
        ((KIND, "Content-Length: 2", "Transfer-Encoding: chunked"), 400),
        ((KIND, "Content-Length: 2", "Origin: https://evil.example"), 403),
        ((KIND, "Content-Length: 2", "Host: evil.example"), 400),
        (("Content-Type: text/plain", "Content-Length: 2"), 415),
        ((KIND, "Content-Length: 2", "Authorization: Bearer nonsense"), 401),
        ((KIND, "Content-Length: 9999999"), 413),
    ],
)
async def test_another_head_is_not_taken_for_the_one_that_came_before(app, served, lines, status):
    async with served() as (port, connection):
        assert (await connection.ask(post(port, KIND, SMALL)))[0] == 202
        connection.writer.write(post(port, *lines))
        async with asyncio.timeout(60):
            answered = int((await connection.reader.readline()).split()[1])
    assert answered == status if status else answered in (200, 202)
    assert [body for _, body in app.seen] == [b"[]", b"{}"] + [b"{}"] * (not status)


async def test_what_the_app_does_not_take_at_once_goes_the_ordinary_road(app, served):
    async with served() as (port, connection):
        answers = [await connection.ask(post(port, KIND, SMALL, body=body)) for body in (b"{}", b"no", b"{}", b"no")]
    assert words(answers) == ["{}", "no", "{}", "no"]
    assert [body for _, body in app.seen] == [b"[]", b"{}", b"no", b"{}", b"no"]
    assert {road for road, body in app.seen if body == b"no"} == {"later"}


async def test_an_apps_fault_behind_a_known_head_is_told_and_ends_nothing(app, served, caplog):
    async with served() as (port, connection):
        assert (await connection.ask(post(port, KIND, SMALL, body=b"{}")))[0] == 202
        assert (await connection.ask(post(port, KIND, "Content-Length: 4", body=b"fail")))[0] == 500
        assert (await connection.ask(post(port, KIND, SMALL, body=b"{}")))[0] == 202
    assert "a prompt answer failed" in caplog.text


async def test_several_requests_at_once_and_a_piece_of_one_are_not_taken_for_one(app, served):
    async with served() as (port, connection):
        one = post(port, KIND, SMALL)
        answers = [await connection.ask(one), await connection.ask(one * 3)]
        answers += [await connection.answer() for _ in range(2)]
        answers.append(await connection.ask(one))
        longer = post(port, KIND, "Content-Length: 10", body=b"0123456789")
        connection.writer.write(longer[:-5])
        await asyncio.sleep(0.05)  # so that it most likely comes in two pieces; it may come in one
        answers += [await connection.ask(longer[-5:] + one), await connection.answer()]
        answers.append(await connection.ask(one))
    assert words(answers) == [*["{}"] * 5, "0123456789", "{}", "{}"]
    assert [body for _, body in app.seen] == [b"[]", *[b"{}"] * 5, b"0123456789", b"{}", b"{}"]


@pytest.mark.req("A6")
async def test_a_token_that_was_revoked_opens_nothing_behind_a_known_head(app, tokens, http_server):
    secret = tokens.create("laptop", ["call"])
    policy = HttpPolicy(tokens_required=True)
    async with front(app, http_server, identities=tokens, policy=policy) as port, wire(port) as connection:
        request = post(port, KIND, SMALL, f"Authorization: Bearer {secret}")
        answers = [await connection.ask(request) for _ in range(3)]
        assert [status for status, _ in answers[1:]] == [202, 202]
        tokens.revoke("laptop")
        assert (await connection.ask(request))[0] == 401
    assert app.who == [Identity("laptop", frozenset({"call"}))] * 3


async def test_who_goes_on_asking_is_not_silent(served):
    """A machine that stalls makes him silent: then nothing is asked of the server."""
    idle = 0.5
    async with served(idle_seconds=idle) as (port, connection):
        loop = asyncio.get_running_loop()
        began = heard = loop.time()
        while loop.time() < began + 3 * idle:
            asked = loop.time()
            try:
                await connection.ask(post(port, KIND, SMALL))
            except (asyncio.IncompleteReadError, ConnectionError):
                assert loop.time() > heard + idle
                break
            heard = asked
            await asyncio.sleep(idle / 10)


async def test_who_falls_silent_behind_a_known_head_is_left(served):
    async with served(idle_seconds=0.5) as (port, connection):
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # the machine stalled
            for _ in range(3):
                await connection.ask(post(port, KIND, SMALL))
        assert await connection.rest() == b""


async def test_who_reads_no_answers_is_not_read_from_for_ever(served, monkeypatch):
    monkeypatch.setattr(serving, "_UNREAD_MILLISECONDS", 1_000)
    async with served(send_seconds=0.5) as (port, _):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        body = b"x" * 20_000
        request = post(port, KIND, f"Content-Length: {len(body)}", body=body)

        async def send_all() -> None:
            for _ in range(15_000):
                writer.write(request)
                await writer.drain()

        try:
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(send_all(), 60)
        finally:
            writer.transport.abort()


# --- a session --------------------------------------------------------------------------------------------


@pytest.mark.req("A3")
async def test_a_session_that_was_replaced_takes_nothing_behind_a_known_head(serve, echo):
    ping = b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}'
    nonsense = b"{" * len(ping)
    async with serve(echo) as served, connect(served.base) as old, wire(served.port) as connection:
        await old.initialize()

        async def put(body: bytes) -> int:
            length = f"Content-Length: {len(body)}"
            return (await connection.ask(post(served.port, KIND, length, target=old.endpoint, body=body)))[0]

        assert [await put(body) for body in (ping, ping, nonsense, ping, ping)] == [202, 202, 400, 202, 202]
        async with connect(served.base):
            await old.until_ended()
            assert await put(ping) == 404
            assert await put(ping) == 404


# --- the bytes --------------------------------------------------------------------------------------------


def known(request: bytes) -> KnownHead | None:
    return KnownHead.of(request, lambda body: PromptAnswer(200, body))


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX: y\r\n\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        HEAD,
        HEAD + b"{}x",
        HEAD + b"{",
        b"\r\n" + HEAD + b"{}",
        HEAD.replace(b"POST", b"PUT") + b"{}",
        HEAD.replace(b"Content-Length: 2", b"Content-Length : 2") + b"{}",
        HEAD.replace(b"Content-Length: 2", b"Content-Length: 2 ") + b"{}",
        HEAD.replace(b"Content-Length: 2\r\n", b"") + b"{}",
        HEAD.replace(b"\r\nX: y", b"\nX: y") + b"{}",
        b"POST / HTTP/1.1\r\nContent-Length: 31\n\n12345678\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
def test_only_a_plain_request_that_is_whole_and_alone_is_learned_from(request_):
    assert known(request_) is None


def test_a_known_head_is_known_with_any_length_and_nothing_else():
    head = known(HEAD + b"{}")
    assert head is not None
    for body in (b"", b"x", b"y" * 99_999):
        answer = head.answer(HEAD.replace(b": 2", b": %d" % len(body)) + body)
        assert answer is not None
        assert answer.endswith(b"\r\n\r\n" + body)
    others = [
        HEAD.replace(b": 2", b": 3") + b"{}",
        HEAD.replace(b": 2", b": 2 ") + b"{}",
        HEAD.replace(b": 2", b": +2") + b"{}",
        HEAD.replace(b": 2", b": \xb2") + b"{}",
        HEAD.replace(b": 2", b": ") + b"{}",
        HEAD.replace(b": 2", b": 000002") + b"{}",
        HEAD.replace(b"X: y", b"X: z") + b"{}",
        HEAD.replace(b"Host: x", b"Host: z") + b"{}",
        HEAD + b"{}" + HEAD + b"{}",
        HEAD[:-1],
        HEAD + b"{",
    ]
    assert [head.answer(other) for other in others] == [None] * len(others)
