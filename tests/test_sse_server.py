"""The SSE server as a client meets it: a real HTTP client at a real server, on every HTTP server that runs our apps."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import shlex
import socket
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import yaml
from http_front import front
from sse_client import LATEST, Refused, SseClient, connect

from bascule.builtin_plugins.sse_server import SseServer, SseSettings
from bascule.builtin_plugins.sse_server.app import SseApp
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.core.view import View
from bascule.hookspecs import Exposure, Limits, SettingsInvalid

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
JSON = {"content-type": "application/json"}
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


async def seen(client: SseClient) -> dict[str, Any]:
    """What reached the server of the plugin `witness`."""
    return (await client.call("fx-witness.seen"))["structuredContent"]


async def reached(client: SseClient, tool: str, times: int = 1) -> list[dict[str, Any]]:
    """Wait until that tool of `witness` was called so often; the calls."""
    async with asyncio.timeout(20):
        while True:
            calls = [call for call in (await seen(client))["calls"] if call["tool"] == tool]
            if len(calls) >= times:
                return calls


async def cancelled(client: SseClient) -> list[int]:
    """Wait until a cancel reached `witness`; the ids."""
    async with asyncio.timeout(20):
        while not (cancels := (await seen(client))["cancels"]):
            pass
    return cancels


# --- the two addresses ------------------------------------------------------------------------------------


@pytest.mark.req("A1")
async def test_the_stream_begins_with_the_address_to_post_to(serve):
    async with serve(maxSessions=2) as served, httpx.AsyncClient() as http:
        ids = set()
        for _ in range(2):
            headers = {"accept": "text/event-stream", "accept-encoding": "gzip, br"}
            async with http.stream("GET", f"{served.base}/sse", headers=headers) as answer:
                assert answer.status_code == 200
                assert answer.headers["content-type"].split(";")[0] == "text/event-stream"
                assert "no-store" in answer.headers["cache-control"]
                assert answer.headers["x-accel-buffering"] == "no"
                assert "content-encoding" not in answer.headers
                lines = answer.aiter_lines()
                assert await anext(lines) == "event: endpoint"
                path, _, session_id = (await anext(lines)).removeprefix("data: ").partition("?session_id=")
                assert path == "/messages"
                assert len(session_id) >= 43  # 256 bits, six to a character
                ids.add(session_id)
        assert len(ids) == 2


@pytest.mark.req("A1")
async def test_a_post_is_taken_with_202_and_answered_on_the_stream(serve):
    async with serve() as served, connect(served.base) as client:
        answer = await client.post(PING, headers={"mcp-protocol-version": LATEST})
        assert (answer.status_code, answer.text) == (202, "Accepted")
        assert await client.answer("p") == {"jsonrpc": "2.0", "id": "p", "result": {}}


BODIES = (b"", b"nul", b"{", b'"\xff', b"[" * 200_000, b'{"a":' * 50_000, b"{} {}", b"NaN", b"\xef\xbb\xbf{}")


@pytest.mark.req("A3")
async def test_posts_are_refused_in_a_fixed_order(serve):
    async with serve() as served, httpx.AsyncClient(base_url=served.base, headers=JSON) as http:

        async def post(query: str, body: bytes = b"{}") -> int:
            return (await http.post(f"/messages{query}", content=body)).status_code

        for query, body in itertools.product(("", "?session_id=", "?session_id=x", "?other=1"), (b"{}", b"nul")):
            assert await post(query, body) == 409  # no stream at all: whatever else is wrong
        async with connect(served.base) as client:
            for body in (b"{}", b"nul"):
                assert await post("", body) == 400
                assert await post("?session=x", body) == 400
                assert await post("?session_id=x", body) == 404
                assert await post(f"?session_id={client.session_id}x", body) == 404
            for body in BODIES:
                assert await post(f"?session_id={client.session_id}", body) == 400
            assert await post(f"?session_id={client.session_id}&x=%20") == 202
            await client.initialize()
        assert await post(f"?session_id={client.session_id}") == 409


@pytest.mark.req("A1")
@pytest.mark.parametrize(
    ("path", "methods", "allowed"),
    [
        ("/sse", ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"), "GET"),
        ("/messages", ("GET", "PUT", "DELETE", "HEAD", "OPTIONS"), "POST"),
    ],
)
async def test_other_methods_are_told_which_one_is_right(serve, path, methods, allowed):
    async with serve() as served, httpx.AsyncClient(base_url=served.base, headers=JSON) as http:
        for method in methods:
            answer = await http.request(method, path, content=b"{}" if method in ("POST", "PUT", "PATCH") else None)
            assert (method, answer.status_code, answer.headers["allow"]) == (method, 405, allowed)


async def test_any_other_path_is_plainly_not_there(serve):
    nowhere = ["/", "/sse/", "/messages/", "/mcp", "/SSE", "//sse", "/sse%2F"]
    known = ["oauth-protected-resource", "oauth-protected-resource/sse", "oauth-authorization-server", "x"]
    async with serve() as served, httpx.AsyncClient(base_url=served.base) as http:
        for path in (*nowhere, *(f"/.well-known/{name}" for name in known)):
            answer = await http.get(path)
            assert (path, answer.status_code) == (path, 404)
            assert answer.headers["content-type"].startswith("text/plain")


async def test_an_unknown_way_to_name_tools_opens_no_stream(serve):
    async with serve() as served, httpx.AsyncClient(base_url=served.base) as http:
        assert (await http.get("/sse?names=french")).status_code == 400


# --- the handshake ----------------------------------------------------------------------------------------


@pytest.mark.req("A1")
@pytest.mark.parametrize("asked", [*REVISIONS, "2024-10-07", "2026-07-28", "1999-01-01", ""])
async def test_a_known_revision_is_echoed_and_an_unknown_one_answered_with_the_latest(serve, echo, asked):
    async with serve(echo) as served, connect(served.base) as client:
        result = await client.initialize(asked)
        assert result["protocolVersion"] == (asked if asked in REVISIONS else LATEST)
        assert result["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}
        assert result["serverInfo"]["name"] == "bascule"
        assert (await client.call("mcp-fixture.echo", {"message": "x"}))["structuredContent"]["message"] == "x"


async def test_an_early_discover_is_refused_at_once_and_hurts_nothing(serve):
    async with serve() as served, connect(served.base) as client:
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        with pytest.raises(Refused) as refusal:
            await client.request("server/discover", {"_meta": meta})
        assert refusal.value.code == -32601
        await client.initialize()


async def test_pings_are_answered_at_any_time(serve):
    async with serve() as served, connect(served.base) as client:
        assert await client.request("ping") == {}
        await client.initialize()
        assert await client.request("ping") == {}


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_nothing_is_listed_or_called_before_the_handshake(serve, method):
    async with serve() as served, connect(served.base) as client:
        with pytest.raises(Refused) as refusal:
            await client.request(method, {"name": "mcp-fixture.echo"})
        assert refusal.value.code == -32600


async def test_log_levels_are_taken_and_unknown_ones_refused(serve):
    async with serve() as served, connect(served.base) as client:
        await client.initialize()
        assert await client.request("logging/setLevel", {"level": "warning"}) == {}
        for params in ({"level": "loud"}, {"level": ["info"]}, {}, None):
            with pytest.raises(Refused) as refusal:
                await client.request("logging/setLevel", params)
            assert refusal.value.code == -32602


# --- batches ----------------------------------------------------------------------------------------------


async def test_a_batch_is_answered_where_the_revision_has_batches(serve, echo):
    async with serve(echo) as served, connect(served.base) as client:
        await client.initialize("2025-03-26")
        call = {"name": "mcp-fixture.echo", "arguments": {"message": "x"}}
        batch = [
            {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": call},
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}},
            {"jsonrpc": "2.0", "id": "b", "method": "ping"},
            {"jsonrpc": "2.0", "id": "c", "method": "nothing"},
        ]
        assert (await client.post(batch)).status_code == 202
        assert client.result_of(await client.answer("a"))["structuredContent"]["message"] == "x"
        assert client.result_of(await client.answer("b")) == {}
        assert (await client.answer("c"))["error"]["code"] == -32601
        assert (await client.post([{**PING, "id": "d"}, 1, {**PING, "id": "e"}])).status_code == 202
        assert (await client.answer(None))["error"]["code"] == -32600
        for one in ("d", "e"):
            assert client.result_of(await client.answer(one)) == {}


@pytest.mark.parametrize("revision", [None, "2024-11-05", "2025-06-18", "2025-11-25"])
async def test_a_batch_is_refused_where_the_revision_has_none(serve, revision):
    async with serve() as served, connect(served.base) as client:
        if revision is not None:
            await client.initialize(revision)
        assert (await client.post([PING])).status_code == 202
        assert (await client.answer(None))["error"]["code"] == -32600
        assert await client.request("ping") == {}


@pytest.mark.parametrize(
    "message",
    [
        {},
        [],
        7,
        "ping",
        None,
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 7},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
    ],
)
async def test_json_that_is_no_message_is_answered_and_hurts_nothing(serve, message):
    async with serve() as served, connect(served.base) as client:
        await client.initialize()
        assert (await client.post(message)).status_code == 202
        assert (await client.answer(None))["error"]["code"] == -32600
        assert await client.request("ping") == {}


# --- the list of tools ------------------------------------------------------------------------------------


async def listed(client: SseClient) -> list[list[dict[str, Any]]]:
    """All pages of tools/list."""
    pages: list[list[dict[str, Any]]] = []
    params: dict[str, Any] = {}
    while True:
        result = await client.request("tools/list", params)
        pages.append(result["tools"])
        if "nextCursor" not in result:
            return pages
        params = {"cursor": result["nextCursor"]}


def declare_many(manifest: dict[str, Any]) -> None:
    """Makes the manifest of `too-many-tools` true, and has it run the fixtures' own program."""
    tools = manifest["contributes"]["tools"]
    tools += [f"{manifest['id']}.tool-{number:04}" for number in range(1, 2001)]


@pytest.fixture
def many(settings, plugin_copy, variant):
    """A plugin with 2,001 tools, and settings that let them in."""

    def edit(manifest: dict[str, Any]) -> None:
        declare_many(manifest)
        manifest["backend"]["args"] = ["server.py", "too-many-tools"]

    folder = plugin_copy(variant("too-many-tools"), edit)
    program = variant("hostile.py")
    (folder / "server.py").write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(program.parent)!r})\n"
        f"sys.argv[0] = {str(program)!r}\nrunpy.run_path({str(program)!r}, run_name='__main__')\n"
    )
    return folder, settings.with_(limits={"tools_per_plugin": 3000})


@pytest.mark.req("A4")
async def test_a_long_list_comes_in_pages_in_the_order_of_ids_and_loses_nothing(serve, many):
    folder, use = many
    async with serve(folder, use=use) as served, connect(served.base) as client:
        await client.initialize()
        pages = await listed(client)
        names = [tool["name"] for page in pages for tool in page]
        assert len(pages) > 3
        assert len(names) == 2001
        assert names == sorted(names)
        assert names == [tool["name"] for page in await listed(client) for tool in page]
        with pytest.raises(Refused) as refusal:
            await client.request("tools/list", {"cursor": "of nobody"})
        assert refusal.value.code == -32602


async def test_a_page_goes_on_where_the_last_one_ended_though_tools_came_and_went(serve, many, echo):
    folder, use = many
    async with serve(folder, echo, use=use) as served, connect(served.base) as client:
        await client.initialize()
        first = await client.request("tools/list")
        await served.bridge.plugins.disable("mcp-fixture")
        rest = await client.request("tools/list", {"cursor": first["nextCursor"]})
        names = [tool["name"] for tool in (*first["tools"], *rest["tools"])]
        assert names == sorted(set(names))
        assert first["tools"][-1]["name"] < rest["tools"][0]["name"]


async def test_tools_are_listed_as_their_server_wrote_them(serve, variant):
    async with serve(variant("content")) as served, connect(served.base) as client:
        await client.initialize()
        ((*_, rich, _unknown),) = await listed(client)
        assert rich["name"] == "fx-content.rich"
        assert rich["outputSchema"]["$defs"]["count"] == {"type": "integer", "minimum": 0}
        assert rich["annotations"] == {"title": "Rich", "readOnlyHint": True}
        assert rich["icons"][0]["mimeType"] == "image/png"
        assert rich["_meta"] == {"example.org/origin": "fixture"}


@pytest.mark.parametrize("how", [{"names": "flat"}, "?names=flat"])
async def test_flat_names_are_what_every_model_takes_and_can_be_called(serve, variant, how):
    section, query = (how, "") if isinstance(how, dict) else ({}, how)
    async with serve(variant("odd-names"), **section) as served, connect(served.base, f"/sse{query}") as client:
        await client.initialize()
        (tools,) = await listed(client)
        names = [tool["name"] for tool in tools]
        assert len(set(names)) == len(names) == 6
        for name in names:
            assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
            assert len(name) <= 64
            assert not (await client.call(name)).get("isError")


async def test_changes_of_the_tools_are_told_once_for_many(serve, echo, variant):
    async with (
        serve(echo, variant("content"), maxSessions=2) as served,
        connect(served.base) as client,
        connect(served.base) as early,
    ):
        await client.initialize()
        plugins = served.bridge.plugins
        await asyncio.gather(plugins.disable("mcp-fixture"), plugins.disable("fx-content"))
        await client.message(lambda m: m.get("method") == "notifications/tools/list_changed")
        assert await listed(client) == [[]]
        await plugins.enable("mcp-fixture")
        await client.until(lambda: len(client.notifications("notifications/tools/list_changed")) >= 2)
        assert len((await listed(client))[0]) == 6
        assert len(client.notifications("notifications/tools/list_changed")) < 4
        await early.request("ping")
        assert early.messages == [{"jsonrpc": "2.0", "id": 1, "result": {}}]  # it has not introduced itself


# --- calls ------------------------------------------------------------------------------------------------


@pytest.mark.req("A7")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_content_passes_unchanged_but_for_what_the_revision_does_not_know(serve, variant, revision):
    async with serve(variant("content")) as served, connect(served.base) as client:
        await client.initialize(revision)
        rich = await client.call("fx-content.rich")
        assert rich["structuredContent"] == {"count": 5, "note": None}
        assert rich["_meta"] == {"example.org/trace": {"id": 7, "none": None}}
        assert rich["example.org/unknown"] == ["kept", None]
        kinds = [block["type"] for block in rich["content"]]
        audio = "audio" if revision >= "2025-03-26" else "text"
        link = "resource_link" if revision >= "2025-06-18" else "text"
        assert kinds == ["text", "image", audio, "resource", "resource", link]
        if audio == "text":
            assert rich["content"][2]["text"] == f"[left out: audio (audio/wav), which MCP {revision} does not know]"
        if link == "text":
            assert "note://3" in rich["content"][5]["text"]


@pytest.mark.req("A7", "N5.7")
async def test_a_tool_that_fails_says_so_in_its_own_words(serve, echo):
    async with serve(echo) as served, connect(served.base) as client:
        await client.initialize()
        result = await client.call("mcp-fixture.fail", {"message": "the cellar is flooded"})
        assert result["isError"] is True
        assert texts(result) == ["the cellar is flooded"]


async def test_arguments_that_do_not_fit_are_a_result_that_the_model_can_read(serve, echo):
    async with serve(echo) as served, connect(served.base) as client:
        await client.initialize()
        result = await client.call("mcp-fixture.echo", {"massage": 1})
        assert result["isError"] is True
        assert result["_meta"]["bascule/code"] == "TOOL_ARGUMENTS_INVALID"
        assert "/message" in texts(result)[0]


@pytest.mark.parametrize(
    "params",
    [None, {}, [], "x", {"name": 1}, {"name": "mcp-fixture.echo", "arguments": []}, {"name": "n" * 2000}],
)
async def test_malformed_params_are_an_error_of_the_protocol(serve, echo, params):
    async with serve(echo) as served, connect(served.base) as client:
        await client.initialize()
        with pytest.raises(Refused) as refusal:
            await client.request("tools/call", params)
        assert refusal.value.code == -32602


@pytest.mark.req("A5")
async def test_calls_carry_the_documents_names(serve, echo, monkeypatch):
    async with serve(echo) as served, connect(served.base) as client:
        calls = []
        call = served.bridge.gateway.call
        monkeypatch.setattr(served.bridge.gateway, "call", lambda c, *a, **k: calls.append(c) or call(c, *a, **k))
        await client.initialize()
        await client.call("mcp-fixture.echo", {"message": "x"})
        (caller,) = {call.caller for call in calls}
        assert (caller.platform, caller.user, caller.session) == ("mcp", "mcp-client", "mcp-server")
        assert caller.transport == "sse"
        assert caller.client == "tester 1.2.3"
        assert caller.address.startswith("127.0.0.1:")


@pytest.mark.req("N6.8")
async def test_a_cancel_reaches_the_server_under_the_id_that_it_knows(serve, variant):
    async with serve(variant("witness")) as served, connect(served.base) as client:
        await client.initialize()
        params = {"name": "fx-witness.wait", "arguments": {"seconds": 600}}
        await client.send("tools/call", params, id="mine")
        (call,) = await reached(client, "wait")
        assert call["id"] != "mine"
        await client.notify("notifications/cancelled", {"requestId": "mine", "reason": "enough"})
        assert await cancelled(client) == [call["id"]]
        await client.notify("notifications/cancelled", {"requestId": "nobody's"})
        await client.notify("notifications/cancelled", {})
        await client.request("ping")
        assert not [message for message in client.messages if message.get("id") == "mine"]


@pytest.mark.parametrize("token", ["mine", 7])
async def test_progress_comes_under_the_clients_token_and_never_after_the_result(serve, variant, token):
    async with serve(variant("progress")) as served, connect(served.base) as client:
        await client.initialize()
        await client.call("fx-progress.progress", {"seconds": 0.5}, _meta={"progressToken": token})
        steps = client.notifications("notifications/progress")
        assert [step["progress"] for step in steps] == [1, 2, 3, 4, 5]
        assert {(step["progressToken"], step["total"]) for step in steps} == {(token, 5)}
        assert steps[0]["message"] == "step 1"
        await client.call("fx-progress.afterwards", _meta={"progressToken": token})
        await client.call("fx-progress.ping")
        assert len(client.notifications("notifications/progress")) == 5


async def test_progress_holds_no_words_where_the_revision_has_none(serve, variant):
    async with serve(variant("progress")) as served, connect(served.base) as client:
        await client.initialize("2024-11-05")
        await client.call("fx-progress.progress", {"seconds": 0.1}, _meta={"progressToken": 1})
        (step,) = client.notifications("notifications/progress")
        assert "message" not in step


async def test_who_wants_no_progress_hears_none(serve, variant):
    async with serve(variant("progress")) as served, connect(served.base) as client:
        await client.initialize()
        await client.call("fx-progress.progress", {"seconds": 0.2})
        assert not client.notifications("notifications/progress")


# --- what a server logs -----------------------------------------------------------------------------------


async def test_a_servers_log_is_relayed_to_the_one_session_that_calls_it(serve, variant):
    async with serve(variant("witness"), maxSessions=2) as served:
        async with connect(served.base) as client, connect(served.base) as other:
            await client.initialize()
            await other.initialize()
            await client.call("fx-witness.say", {"level": "info", "text": "to one"})
            (log,) = client.notifications("notifications/message")
            assert log == {"level": "info", "logger": "witness", "data": {"said": "to one"}}
            await other.send("tools/call", {"name": "fx-witness.wait", "arguments": {"seconds": 600}})
            await reached(client, "wait")
            await client.call("fx-witness.say", {"level": "info", "text": "to no one"})
        assert len(client.notifications("notifications/message")) == 1
        assert not other.notifications("notifications/message")


async def test_logs_below_the_level_that_a_client_asked_for_are_kept_back(serve, variant):
    async with serve(variant("witness")) as served, connect(served.base) as client:
        await client.initialize()
        await client.request("logging/setLevel", {"level": "warning"})
        for level in ("info", "warning", "loud", "emergency"):
            await client.call("fx-witness.say", {"level": level, "text": level})
        logs = client.notifications("notifications/message")
        assert [log["level"] for log in logs] == ["warning", "emergency"]


# --- sessions ---------------------------------------------------------------------------------------------


@pytest.mark.req("A3")
async def test_a_new_connection_takes_the_place_of_the_old_one(serve, variant):
    async with serve(variant("witness")) as served, connect(served.base) as old:
        await old.initialize()
        await old.send("tools/call", {"name": "fx-witness.wait", "arguments": {"seconds": 600}})
        (call,) = await reached(old, "wait")
        async with connect(served.base) as new:
            await old.until_ended()
            await new.initialize()
            assert await cancelled(new) == [call["id"]]
            assert (await old.post(PING)).status_code == 404
            assert await new.request("ping") == {}
        assert (await old.post(PING)).status_code == 409


@pytest.mark.req("A3", "A7")
async def test_several_clients_are_served_at_once_and_told_apart(serve, echo):
    async def chat(client: SseClient, word: str) -> list[str]:
        answers = [await client.call("mcp-fixture.echo", {"message": f"{word} {number}"}) for number in range(20)]
        return [answer["structuredContent"]["message"] for answer in answers]

    async with (
        serve(echo, maxSessions=3) as served,
        connect(served.base) as a,
        connect(served.base) as b,
        connect(served.base) as c,
    ):
        clients = (a, b, c)
        for client in clients:
            await client.initialize()
        chats = await asyncio.gather(*(chat(client, word) for client, word in zip(clients, "abc", strict=True)))
        assert chats == [[f"{word} {number}" for number in range(20)] for word in "abc"]
        async with connect(served.base) as d:
            await a.until_ended()
            assert not b.ended
            assert not c.ended
            await d.initialize()
            assert await b.request("ping") == await d.request("ping") == {}


async def test_sessions_of_several_clients_have_names_of_their_own(serve, echo, monkeypatch):
    async with serve(echo, maxSessions=2) as served:
        calls = []
        call = served.bridge.gateway.call
        monkeypatch.setattr(served.bridge.gateway, "call", lambda c, *a, **k: calls.append(c) or call(c, *a, **k))
        async with connect(served.base) as a, connect(served.base) as b:
            for client in (a, b):
                await client.initialize()
                await client.call("mcp-fixture.echo", {"message": "x"})
        assert [call.caller.session for call in calls] == ["mcp-server-1", "mcp-server-2"]
        assert not [call for call in calls if a.session_id[:8] in repr(call.caller)]


async def test_the_calls_of_a_client_that_left_are_cancelled(serve, variant):
    async with serve(variant("witness"), maxSessions=2) as served, connect(served.base) as stays:
        await stays.initialize()
        async with connect(served.base) as leaves:
            await leaves.initialize()
            await leaves.send("tools/call", {"name": "fx-witness.wait", "arguments": {"seconds": 600}})
            (call,) = await reached(stays, "wait")
        assert await cancelled(stays) == [call["id"]]


async def test_half_a_message_is_no_message(serve, echo):
    async with serve(echo) as served, connect(served.base) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        body = json.dumps(PING).encode()
        head = f"POST {client.endpoint} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + b"Content-Length: 1000\r\n\r\n" + body)
        writer.write_eof()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        assert await client.request("ping") == {}
        assert not [message for message in client.messages if message.get("id") == "p"]


# --- streams ----------------------------------------------------------------------------------------------


async def test_the_stream_is_kept_alive_by_comments(host, http_server):
    async with host() as bridge:
        view = View(bridge, SseServer(SseSettings(), Limits()))
        app = SseApp(view, Limits(), keep_alive_seconds=0.05)
        async with front(app, http_server, identities=view.identities) as port:
            async with connect(f"http://127.0.0.1:{port}") as client:
                await client.until(lambda: len([name for name, _ in client.events if not name]) >= 3)
                await client.initialize()
                assert {data for name, data in client.events if not name} == {": keep-alive"}
            await app.close()


@pytest.mark.req("A1")
@pytest.mark.parametrize("root_path", ["/tools", "/a/b/"])
async def test_behind_a_prefix_the_endpoint_carries_it(serve, root_path):
    prefix = root_path.rstrip("/")
    async with serve(rootPath=root_path) as served:
        for path in ("/sse", f"{prefix}/sse"):  # proxies differ in whether they take the prefix off
            async with connect(served.base, path) as client:
                assert client.endpoint.startswith(f"{prefix}/messages?session_id=")
                await client.initialize()


async def test_an_app_that_is_mounted_knows_its_prefix(host, http_server):
    async with host() as bridge:
        view = View(bridge, SseServer(SseSettings(), Limits()))
        app = SseApp(view, Limits())

        async def mounted(scope, receive, send):
            await app({**scope, "root_path": "/s"}, receive, send)

        async with front(mounted, http_server, identities=view.identities) as port:
            for path in ("/s/sse", "/sse"):
                async with connect(f"http://127.0.0.1:{port}", path) as client:
                    assert client.endpoint.startswith("/s/messages?session_id=")
                    await client.initialize()
            await app.close()


async def test_no_event_is_longer_than_its_bound(serve, settings, echo, variant):
    use = settings.with_(limits={"sse_event_bytes": 4096})
    async with serve(echo, variant("content"), use=use) as served, connect(served.base) as client:
        await client.initialize()
        pages = await listed(client)
        assert len(pages) > 1
        assert len([tool for page in pages for tool in page]) == 12
        whole = await client.call("mcp-fixture.large", {"bytes": 3000})
        assert len(texts(whole)[0]) == 3000
        cut = await client.call("mcp-fixture.large", {"bytes": 4096})
        assert cut["isError"] is True
        assert cut["_meta"]["bascule/code"] == "MCP_TOOL_RESULT_TOO_LARGE"
        assert "4,096" in texts(cut)[0]
        await client.send("ping", id="i" * 5000)  # its answer would be too long
        assert await client.request("ping") == {}
        assert max(len(data.encode()) for _, data in client.events) <= 4096


@pytest.mark.req("A3")
async def test_a_client_that_does_not_read_is_dropped_and_harms_no_one(host, echo, http_server, until):
    async with host(echo) as bridge:
        view = View(bridge, SseServer(SseSettings(), Limits()))
        app = SseApp(view, Limits(), max_sessions=2, keep_alive_seconds=0.2)
        async with front(app, http_server, identities=view.identities, send_seconds=0.5) as port:
            stalled = socket.socket()
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with stalled:
                await asyncio.to_thread(stalled.connect, ("127.0.0.1", port))
                stalled.sendall(f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
                head = await asyncio.to_thread(_read_until, stalled, b"session_id=")
                session_id = (head + await asyncio.to_thread(_read_until, stalled, b"\n")).split()[-1].decode()
                async with connect(f"http://127.0.0.1:{port}") as reads, httpx.AsyncClient() as http:
                    await reads.initialize()
                    url = f"http://127.0.0.1:{port}/messages?session_id={session_id.partition('session_id=')[2]}"
                    status = 202
                    for message in _large_calls():
                        status = (await http.post(url, json=message)).status_code
                        if status != 202:
                            break
                        assert (await reads.call("mcp-fixture.echo", {"message": "x"}))["isError"] is False
                    assert status in (404, 429)  # no session any more; or it takes nothing before it goes
                    async with asyncio.timeout(60):
                        while (await http.post(url, json=PING)).status_code != 404:
                            await asyncio.sleep(0.05)
                    assert await reads.request("ping") == {}
            await app.close()


def _read_until(sock: socket.socket, end: bytes) -> bytes:
    sock.settimeout(10)
    taken = b""
    while not taken.endswith(end):
        taken += sock.recv(1)
    return taken


def _large_calls():
    params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "stalls", "version": "1"}}
    yield {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    call = {"name": "mcp-fixture.large", "arguments": {"bytes": 200_000}}
    for number in range(1, 2000):
        yield {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}


async def test_when_the_server_stops_every_stream_ends_in_order(serve, variant):
    async with AsyncExitStack() as stack:
        async with serve(variant("witness"), maxSessions=3) as served:
            clients = [await stack.enter_async_context(connect(served.base)) for _ in range(3)]
            for client in clients:
                await client.initialize()
            await clients[0].send("tools/call", {"name": "fx-witness.wait", "arguments": {"seconds": 600}})
            await reached(clients[1], "wait")
        for client in clients:
            await client.until_ended()
            assert client.broke is None  # HTTP servers that give up waiting cut the stream


async def test_the_log_says_who_came_was_replaced_left_and_was_refused(serve, caplog):
    caplog.set_level(logging.INFO, logger="bascule")
    async with serve() as served, connect(served.base) as old:
        await old.initialize()
        async with connect(served.base):
            await old.until_ended()
            await old.post(PING)
        await old.http.get(f"{served.base}/sse", headers={"host": "evil.example"})
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert re.search(r"mcp-server of 127\.0\.0\.1:\d+ begins, as mcp-client", told)
    assert "mcp-server: tester 1.2.3 speaks MCP 2025-11-25" in told
    assert re.search(r"ended: a newer connection took its place", told)
    assert re.search(r"ended: (the client left|the server is stopping)", told)
    assert re.search(r"of 127\.0\.0\.1:\d+ was refused, 404: there is no such session", told)
    assert re.search(r"'GET /sse' of 127\.0\.0\.1:\d+ was refused, 421: this host is not served here", told)
    assert old.session_id not in told


# --- what may be set --------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path):
    """Writes a `bascule.yaml` with the given section, and reads it."""

    def write(**section: object) -> Settings:
        path = tmp_path / "bascule.yaml"
        path.write_text(yaml.safe_dump({"state": str(tmp_path / "state"), "plugins": {"sse_server": section}}))
        return Settings.load(path)

    return write


@pytest.mark.req("A2")
def test_everything_has_the_documents_default():
    settings = SseSettings()
    assert (settings.port, settings.bind) == (7861, "127.0.0.1")
    assert (settings.tool_groups, settings.allow_restricted) == (frozenset(), False)
    assert (settings.max_sessions, settings.names, settings.tokens) == (1, "canonical", False)


@pytest.mark.req("A2")
def test_the_documents_names_and_snake_case_are_both_taken():
    camel = {"toolGroups": ["a"], "allowRestricted": True, "maxSessions": 3, "rootPath": "/x"}
    more = {"allowedHosts": ["bridge:1"], "allowedOrigins": ["https://a"]}
    snake = {"tool_groups": ["a"], "allow_restricted": True, "max_sessions": 3, "root_path": "/x"}
    others = {"allowed_hosts": ["bridge:1"], "allowed_origins": ["https://a"]}
    read = [Settings(plugins={"sse_server": {**section}}) for section in ({**camel, **more}, {**snake, **others})]
    one, other = (settings.section("sse_server", SseSettings) for settings in read)
    assert one == other
    assert one.tool_groups == {"a"}
    assert SseServer(one, Limits()).exposure == Exposure(frozenset({"a"}), allow_restricted=True)


@pytest.mark.req("A2")
@pytest.mark.parametrize("port", [0, -1, 65_536, 70_000, "x", "7861", 7861.0, 1.5, True, None, [7861]])
async def test_an_invalid_port_is_an_error_and_nothing_opens(written, port):
    async with Bridge(written(port=port), remember=False) as bridge:
        with pytest.raises(SettingsInvalid, match=r"plugins\.sse_server\.port"):
            async with bridge.serve():
                pytest.fail("it served")


@pytest.mark.parametrize(
    "section",
    [
        {"tolGroups": []},
        {"toolGroups": "a"},
        {"toolGroups": ["a"], "tool_groups": ["b"]},
        {"allowRestricted": "yes"},
        {"allowRestricted": 1},
        {"maxSessions": 0},
        {"bind": ""},
        {"names": "french"},
        {"rootPath": "tools"},
    ],
)
async def test_any_other_fault_of_the_section_keeps_everything_closed(written, section):
    async with Bridge(written(**section), remember=False) as bridge:
        with pytest.raises(SettingsInvalid, match=r"plugins\.sse_server\."):
            async with bridge.serve():
                pytest.fail("it served")


@pytest.mark.req("A2")
async def test_a_taken_address_is_told_in_words(settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        section = {"port": taken.getsockname()[1]}
        use = settings.with_(plugins={"sse_server": section}, disabled_hook_plugins=("quart_api",))
        async with Bridge(use, remember=False) as bridge, bridge.serve() as opened:
            assert opened == []
            failure = bridge.failures["sse"]
            assert failure.code == "SETTINGS_INVALID"
            assert "in use" in failure.message


@pytest.mark.parametrize(
    ("section", "url", "token"),
    [
        ({}, "http://127.0.0.1:7861/sse", False),
        ({"port": 9000, "tokens": True}, "http://127.0.0.1:9000/sse", True),
        ({"bind": "::1"}, "http://[::1]:7861/sse", False),
        ({"bind": "192.0.2.7"}, "http://192.0.2.7:7861/sse", True),
        ({"bind": "0.0.0.0", "allowedHosts": ["bridge:7861"]}, "http://bridge:7861/sse", True),
        ({"rootPath": "/tools/"}, "http://127.0.0.1:7861/tools/sse", False),
    ],
)
def test_the_directions_are_ready_to_paste(section, url, token):
    settings = Settings(plugins={"sse_server": section}).section("sse_server", SseSettings)
    directions = SseServer(settings, Limits()).directions
    assert directions.url == url
    entry = json.loads(directions.paste["MCP clients"])["mcpServers"]["bascule"]
    assert (entry["type"], entry["url"]) == ("sse", url)
    assert ("headers" in entry) == token
    command = shlex.split(directions.paste["Claude Code"])
    assert command[:7] == ["claude", "mcp", "add", "--transport", "sse", "bascule", url]
    assert ("--header" in command) == token


async def test_the_calls_of_a_session_are_a_run_that_the_owner_can_look_at(serve, echo):
    async with serve(echo) as served:
        async with connect(served.base) as client:
            await client.initialize()
            await client.call("mcp-fixture.echo", {"message": "traced"})
        (run, *_) = await served.bridge.traces.runs()
        _, steps = await served.bridge.traces.run(run.id)
        assert (run.agent, run.purpose) == ("mcp-client", "mcp session over sse")
        assert [step.tool for step in steps] == ["mcp-fixture.echo"]
