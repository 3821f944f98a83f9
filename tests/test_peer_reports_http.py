"""Faults that users reported of other gateways and bridges, as tests of ours: what becomes of HTTP, on every server.

Each test's docstring begins with the class of the report and says what happens here.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from urllib.parse import urljoin

import httpx
import pytest
from rest_server import problem, serve_rest
from scripted import scripted
from sse_client import connect

JSON = {"content-type": "application/json"}


@pytest.fixture
def local(settings):
    """Unsandboxed, so that the server can record what reached it."""
    return settings.with_(launcher="local")


async def test_a_wrong_credential_is_refused_and_never_an_empty_list(serve, settings, http_server, echo):
    """auth: a wrong or doubled credential looks like "no tools"; here it is 401, on SSE and on REST."""
    wrong = {"authorization": "Bearer nobody"}
    async with serve(echo) as served, httpx.AsyncClient() as http:
        answer = await http.get(f"{served.base}/sse", headers=wrong)
        assert answer.status_code == 401
        assert "invalid_token" in answer.headers["www-authenticate"]
        twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
        assert (await http.get(f"{served.base}/sse", headers=twice)).status_code == 400
    async with serve_rest(settings, http_server, echo) as api:
        problem(await api.http.get("/api/tools", headers=wrong), 401, "TOKEN_REQUIRED")


@pytest.mark.parametrize(
    "header", [{"host": "evil.example"}, {"origin": "http://evil.example"}], ids=["Host", "Origin"]
)
async def test_no_web_page_reaches_a_local_bridge(serve, settings, http_server, echo, header):
    """security.rebinding: protection is off by default; here both servers refuse foreign names before anything else."""
    expected = 421 if "host" in header else 403
    async with serve(echo) as served, httpx.AsyncClient(headers={**JSON, **header}) as http:
        assert (await http.get(f"{served.base}/sse")).status_code == expected
        assert (await http.post(f"{served.base}/messages", content=b"{}")).status_code == expected
    async with serve_rest(settings, http_server, echo) as api:
        for path in ("/api/tools", "/healthz", "/docs", "/openapi.json"):
            assert (await api.http.get(path, headers=header)).status_code == expected


async def test_no_one_installs_a_command_over_http(settings, http_server, tmp_path):
    """security.rce: any user registers a local command; here it takes the owner's scope and a directory he named."""
    fx = scripted(tmp_path)
    (tmp_path / "roots").mkdir()
    async with serve_rest(settings, http_server, roots=[tmp_path / "roots"]) as api:
        caller = api.token("laptop", "call", "read")
        body = {"directory": str(fx.path)}
        assert (await api.http.post("/api/plugins", json=body, headers=caller)).status_code == 403
        assert (await api.http.post("/api/plugins", json=body)).status_code in (403, 404, 422)
        command = {"command": "sh", "args": ["-c", "touch pwned"], "name": "x"}
        assert (await api.http.post("/api/plugins", json=command)).status_code in (400, 422)
        assert (await api.http.post("/api/plugins", json={**body, **command})).status_code in (400, 403, 404, 422)
        assert (await api.ask("GET", "/api/plugins")) == {"plugins": []}
    assert not fx.starts


async def test_a_group_filter_holds_for_listing_and_for_calling(serve, plugin_copy, echo):
    """exposure.leak: a search shows tools outside the group; here one decision serves listing and calling."""

    def grouped(manifest):
        first, *rest = manifest["contributes"]["tools"]
        manifest["contributes"]["tools"] = [{"id": first, "groups": ["a"]}, *rest]

    folder = plugin_copy(echo, grouped)
    async with serve(folder, toolGroups=["a"]) as served, connect(served.base) as client:
        await client.initialize()
        assert [each["name"] for each in (await client.request("tools/list"))["tools"]] == ["mcp-fixture.echo"]
        hidden = await client.call("mcp-fixture.environment")
        assert hidden["isError"]
        assert hidden["content"][0]["text"].replace("environment", "x") == (await client.call("mcp-fixture.x"))[
            "content"
        ][0]["text"].replace("environment", "x")


async def test_the_address_to_post_to_is_relative_and_reachable(serve):
    """sse.endpoint: the event names an internal host or forgets the prefix; here it is a path, prefix included."""
    async with serve(root_path="/bridge") as served, connect(served.base, path="/bridge/sse") as client:
        assert client.endpoint.startswith("/bridge/messages?session_id=")
        assert urljoin(f"{served.base}/bridge/sse", client.endpoint).startswith(f"{served.base}/bridge/messages")
        await client.initialize()


async def test_no_forwarded_header_changes_the_address(serve):
    """sse.endpoint: what a request claims of its host ends up in the event; here nothing of it does."""
    forged = {"x-forwarded-host": "evil.example", "x-forwarded-prefix": "/evil", "forwarded": "host=evil.example"}
    async with serve() as served, connect(served.base, headers=forged) as client:
        assert client.endpoint.startswith("/messages?session_id=")


async def test_events_are_neither_buffered_nor_compressed(serve, echo):
    """sse.buffering: a proxy buffers the stream and both sides wait; here it is told not to."""
    async with serve(echo) as served, httpx.AsyncClient() as http:
        headers = {"accept-encoding": "gzip, deflate, br, zstd"}
        async with http.stream("GET", f"{served.base}/sse", headers=headers) as answer:
            assert answer.headers["x-accel-buffering"] == "no"
            assert "no-transform" in answer.headers["cache-control"]
            assert "content-encoding" not in answer.headers
            assert (await anext(answer.aiter_lines())) == "event: endpoint"


@pytest.mark.parametrize("query", ["", "?session_id=", "?session_id=nobody", "?sessionId=x", "?session_id=%00%ff"])
@pytest.mark.parametrize("body", [b"", b"{}", b"nul", b"\xff" * 100], ids=["empty", "object", "cut", "bytes"])
async def test_a_post_without_a_session_harms_no_one(serve, echo, query, body):
    """sse.robustness: such a POST kills the process, and a health probe becomes a crash loop; here it is a 4xx."""
    async with serve(echo) as served, httpx.AsyncClient(headers=JSON) as http:
        assert 400 <= (await http.post(f"{served.base}/messages{query}", content=body)).status_code < 500
        async with connect(served.base) as client:
            assert 400 <= (await http.post(f"{served.base}/messages{query}", content=body)).status_code < 500
            await client.initialize()
            assert (await client.call("mcp-fixture.echo", {"message": "x"}))["structuredContent"]["message"] == "x"


async def test_clients_that_come_back_disturb_neither_each_other_nor_the_server(serve, local, tmp_path):
    """sse.robustness, lifecycle.orphan: one shared session object, or a child a stream; here each stream is its own."""
    fx = scripted(tmp_path)
    async with serve(fx.path, use=local, maxSessions=3) as served, connect(served.base) as steady:
        await steady.initialize()
        for number in range(5):
            async with connect(served.base) as passing:
                await passing.initialize()
                assert (await passing.call("fx.do", {"n": number}))["structuredContent"] == {"got": {"n": number}}
            assert (await steady.call("fx.do", {"n": -1}))["structuredContent"] == {"got": {"n": -1}}
    assert len(fx.starts) == 1


async def test_a_bridge_without_plugins_is_a_valid_one(serve):
    """sse.robustness: with no backend clients loop; here the list is empty and the stream stays open."""
    async with serve() as served, connect(served.base) as client:
        await client.initialize()
        assert (await client.request("tools/list"))["tools"] == []
        assert await client.request("ping") == {}
        assert not client.ended


async def test_no_text_breaks_the_lines_of_a_stream(serve, local, tmp_path):
    """sse.robustness: a separator in a text ends the event for readers that split as Python does; here none can."""
    words = "a\u2028b\u2029c\x85d\r\ne\vf\x1cg"
    fx = scripted(tmp_path)
    async with serve(fx.path, use=local) as served, connect(served.base) as client:
        await client.initialize()
        result = await client.call("fx.do", {"s": words})
        assert result["structuredContent"] == {"got": {"s": words}}
        assert all(data.isascii() for name, data in client.events if name == "message")


async def test_an_answer_for_a_client_that_left_hurts_no_one(serve, local, tmp_path, until):
    """resilience.isolation: an exception leaves a connection's task; here the answer is dropped."""
    code = "def call(*_):\n    while not os.path.exists('go'): time.sleep(0.02)\n    return text('late')"
    fx = scripted(tmp_path, code)
    async with serve(fx.path, use=local, maxSessions=2) as served:
        async with connect(served.base) as leaving:
            await leaving.initialize()
            call = asyncio.create_task(leaving.call("fx.do"))
            await until(lambda: bool(fx.received("tools/call")), 30)
            call.cancel()
        (fx.path / "go").touch()
        async with connect(served.base) as client:
            await client.initialize()
            assert (await client.call("fx.do"))["content"][0]["text"] == "late"
        assert served.bridge.plugins.get("fx").state == "ready"


async def test_the_bridge_ends_while_clients_are_connected(serve, echo):
    """sse.shutdown: the server waits for its clients for ever; here every stream is ended and the server leaves."""
    async with AsyncExitStack() as stack:
        async with serve(echo, maxSessions=5) as served:
            clients = [await stack.enter_async_context(connect(served.base)) for _ in range(5)]
            for client in clients:
                await client.initialize()
        for client in clients:
            await client.until_ended(60)


async def test_a_replaced_stream_ends_and_the_child_lives(serve, local, tmp_path):
    """sse.robustness: a second GET kills the child; here the older stream gives way and the server does not notice."""
    fx = scripted(tmp_path)
    async with serve(fx.path, use=local) as served, connect(served.base) as first:
        await first.initialize()
        async with connect(served.base) as second:
            await first.until_ended(60)
            await second.initialize()
            assert not (await second.call("fx.do")).get("isError")
    assert (len(fx.starts), len(fx.received("initialize"))) == (1, 1)


async def test_a_result_over_rest_keeps_its_blocks_and_its_structure(settings, http_server, local, tmp_path):
    """content.lossy: a REST bridge flattens results into text; here blocks stay blocks beside the structured output."""
    blocks = [{"type": "image", "data": "AAAA", "mimeType": "image/png"}, {"type": "text", "text": "seen"}]
    fx = scripted(tmp_path, f"def call(*_): return {{'content': {blocks!r}, 'structuredContent': {{'n': 1}}}}")
    async with serve_rest(local, http_server, fx.path) as api:
        shown = (await api.call("fx.do")).json()
        assert (shown["output"], shown["content"], shown["failed"]) == ({"n": 1}, blocks, False)


async def test_a_problem_document_tells_no_secret(settings, http_server, local, tmp_path):
    """security.secret_leak: an error carries credentials; here it is taken out of every problem."""
    code = "def call(*_): return text('login failed with ' + os.environ['API_TOKEN'], isError=True)"
    fx = scripted(tmp_path, code, env={"API_TOKEN": "planted-0a1b2c3d4e5f"})
    async with serve_rest(local, http_server, fx.path) as api:
        answer = await api.call("fx.do")
        assert answer.status_code == 502
        assert "login failed with [redacted]" in json.dumps(answer.json())
        assert "planted" not in answer.text
        for path in ("/api/plugins/fx", "/api/status", "/api/runs", f"/api/traces/{answer.headers['bascule-trace']}"):
            assert "planted" not in (await api.http.get(path)).text
