"""Tools over HTTP: listed, described, called, streamed and cancelled, by a real client."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from rest_server import events, patient, problem, serve_rest

ECHO = {"message": "x"}


def _confirmed(manifest):
    """Every call of `echo` wants a person's yes."""
    tools = [tool["id"] if isinstance(tool, dict) else tool for tool in manifest["contributes"]["tools"]]
    manifest["contributes"]["tools"] = [
        {"id": tool, "confirm": True} if tool.endswith(".echo") else {"id": tool} for tool in tools
    ]


# --- listing ----------------------------------------------------------------------------------------------


@pytest.mark.req("D5", "N5.1", "N1.1")
async def test_tools_are_listed_as_they_are_and_never_as_raw_mcp(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        tools = (await api.ask("GET", "/api/tools"))["tools"]
        assert [tool["name"] for tool in tools] == sorted(tool["name"] for tool in tools)
        (shown,) = [tool for tool in tools if tool["name"] == "mcp-fixture.echo"]
        assert (shown["alias"], shown["permission"], shown["source"]) == ("mcp-fixture__echo", "notes.read", "plugin")
        assert not {"inputSchema", "outputSchema", "_meta", "origin"} & set(shown)
        for name in ("mcp-fixture.echo", "mcp-fixture__echo"):
            assert await api.ask("GET", f"/api/tools/{name}") == shown
        problem(await api.http.get("/api/tools/mcp-fixture.none"), 404, "TOOL_NOT_FOUND")


async def test_a_dialect_is_asked_for_by_its_name(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        foreign = (await api.ask("GET", "/api/tools?format=mcp"))["tools"]
        assert all({"name", "inputSchema"} <= set(tool) for tool in foreign)
        for dialect in api.bridge.lineup.converters:
            assert len((await api.ask("GET", f"/api/tools?format={dialect}"))["tools"]) == 6
        (named,) = [
            parameter["schema"]["enum"]
            for parameter in (await api.ask("GET", "/openapi.json"))["paths"]["/api/tools"]["get"]["parameters"]
            if parameter["name"] == "format"
        ]
        assert named == sorted(api.bridge.lineup.converters)
        shown = problem(await api.http.get("/api/tools?format=klingon"), 422, "REQUEST_INVALID")
        assert "mcp" in shown["errors"][0]["detail"]
        assert shown["errors"][0]["pointer"] == "?format"


NOTED = """
from bascule.hookspecs import ConversionUnsupported, hookimpl

class Noted:
    dialect = "noted"
    def write_tool(self, tool): return {"called": tool.name}
    def notes(self, tool): return ["its end is left out"] if tool.name.endswith("echo") else []
    read_tool = read_result = write_result = read_call = write_tool

@hookimpl
def bascule_tool_converters(): return [Noted()]
"""


async def test_a_dialect_for_models_is_told_with_what_it_can_not_say(settings, http_server, echo, strangers):
    strangers.write("noted", NOTED)
    async with serve_rest(settings, http_server, echo) as api:
        told = await api.ask("GET", "/api/tools?format=noted")
        assert {"called": "mcp-fixture.echo"} in told["tools"]
        assert told["notes"] == {"mcp-fixture.echo": ["its end is left out"]}
        openai = await api.ask("GET", "/api/tools?format=openai")
        assert "mcp-fixture__echo" in [tool["function"]["name"] for tool in openai["tools"]]
        assert openai["notes"]["mcp-fixture.echo"][0] == "/: patternProperties is left out"
        assert "notes" not in await api.ask("GET", "/api/tools")


@pytest.mark.req("A2", "A4")
async def test_the_owners_exposure_is_one_decision_for_listing_and_calling(settings, http_server, plugin_copy, echo):
    def grouped(manifest):
        tools = [tool["id"] if isinstance(tool, dict) else tool for tool in manifest["contributes"]["tools"]]
        more = {
            "mcp-fixture.echo": {"groups": ["a"]},
            "mcp-fixture.fail": {"groups": ["a"], "visibility": "restricted"},
        }
        manifest["contributes"]["tools"] = [{"id": tool, **more.get(tool, {})} for tool in tools]

    folder = plugin_copy(echo, grouped)
    for section, wanted in (
        ({}, 6),
        ({"toolGroups": ["a"]}, 2),
        ({"toolGroups": ["a"], "allowRestricted": False}, 1),
        ({"allow_restricted": False}, 5),
    ):
        async with serve_rest(settings, http_server, folder, **section) as api:
            listed = {tool["name"] for tool in (await api.ask("GET", "/api/tools"))["tools"]}
            assert len(listed) == wanted
            paths = (await api.ask("GET", "/api/tools/openapi.json"))["paths"]
            assert len(paths) == wanted
            for name in ("mcp-fixture.echo", "mcp-fixture.fail", "mcp-fixture.environment"):
                answer = await api.call(name, ECHO)
                assert (answer.status_code != 404) == (name in listed)
                hidden = await api.http.post(f"/tools/{name.replace('.', '__')}", json=ECHO)
                assert (hidden.status_code != 404) == (name in listed)
            in_group = (await api.ask("GET", "/api/tools?group=a"))["tools"]
            assert {tool["name"] for tool in in_group} == listed & {"mcp-fixture.echo", "mcp-fixture.fail"}


# --- calling ----------------------------------------------------------------------------------------------


@pytest.mark.req("D5", "N5.5", "N5.6", "N9")
async def test_a_call_answers_its_result_and_its_trace(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        arguments = {"message": "ä\u2028\U0001f600", "note": None, "x-1": 7}
        answer = await api.call("mcp-fixture.echo", arguments)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        result = answer.json()
        assert set(result) == {"output", "content", "failed", "trace_id"}
        assert result["output"]["arguments"] == arguments
        assert result["failed"] is False
        assert answer.headers["bascule-trace"] == result["trace_id"]
        step = await api.ask("GET", f"/api/traces/{result['trace_id']}")
        assert (step["tool"], step["outcome"], step["code"], step["run"]) == ("mcp-fixture.echo", "ok", None, None)
        assert (step["caller"]["platform"], step["caller"]["identity"]) == ("rest", "tester")

        bare = await api.http.post("/tools/mcp-fixture__echo", json=arguments)
        assert bare.json() == result["output"]
        assert len(bare.headers["bascule-trace"]) == 16


@pytest.mark.req("N5.3", "N5.7", "N5.8")
async def test_a_call_that_fails_is_a_problem_with_its_trace(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:

        async def failed(tool, arguments, status, code):
            shown = problem(await api.call(f"mcp-fixture.{tool}", arguments), status, code)
            bare = problem(await api.http.post(f"/tools/mcp-fixture__{tool}", json=arguments), status, code)
            assert bare["detail"].replace("__", ".") == shown["detail"]
            step = await api.ask("GET", f"/api/traces/{shown['trace_id']}")
            assert (step["outcome"], step["code"]) == ("error", code)
            return shown

        shown = await failed("fail", {}, 502, "MCP_TOOL_CALL_FAILED")
        assert shown["failed"] is True
        assert shown["content"][0]["text"] == shown["detail"]
        shown = await failed("echo", {"message": 1, "x-a": "b"}, 422, "TOOL_ARGUMENTS_INVALID")
        assert {error["pointer"] for error in shown["errors"]} == {"/message", "/x-a"}
        await failed("none", {}, 404, "TOOL_NOT_FOUND")
        await failed("large", {"bytes": 300 * 1024}, 502, "MCP_TOOL_RESULT_TOO_LARGE")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "REQUEST_REFUSED"),
        (b"nul", 400, "REQUEST_REFUSED"),
        (b'{"a": NaN}', 400, "REQUEST_REFUSED"),
        (b'{"a": "\xff"}', 400, "REQUEST_REFUSED"),
        (b"[" * 100_000, 400, "REQUEST_REFUSED"),
        (b'{"message": "a"} {}', 400, "REQUEST_REFUSED"),
        (b"[]", 422, "TOOL_ARGUMENTS_INVALID"),
        (b"null", 422, "TOOL_ARGUMENTS_INVALID"),
        (b'"x"', 422, "TOOL_ARGUMENTS_INVALID"),
        (b"", 422, "TOOL_ARGUMENTS_INVALID"),  # no arguments, and `message` is required
    ],
)
async def test_a_body_that_is_no_object_is_refused_in_words(settings, http_server, echo, body, status, code):
    async with serve_rest(settings, http_server, echo) as api:
        headers = {"content-type": "application/json"}
        for path in ("/api/tools/mcp-fixture.echo/call", "/tools/mcp-fixture__echo"):
            problem(await api.http.post(path, content=body, headers=headers), status, code)


async def test_a_tool_without_arguments_is_called_without_a_body(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        assert (await api.http.post("/tools/mcp-fixture__environment")).status_code == 200
        assert (await api.http.post("/api/tools/mcp-fixture.environment/call")).status_code == 200


@pytest.mark.req("A5")
async def test_a_tool_that_wants_a_yes_answers_409(settings, http_server, plugin_copy, echo):
    async with serve_rest(settings, http_server, plugin_copy(echo, _confirmed)) as api:
        problem(await api.call("mcp-fixture.echo", ECHO), 409, "TOOL_CONFIRMATION_UNAVAILABLE")
        problem(await api.http.post("/tools/mcp-fixture__echo", json=ECHO), 409, "TOOL_CONFIRMATION_UNAVAILABLE")
        asked = await api.call("mcp-fixture.echo", ECHO, headers={"accept": "text/event-stream"})
        problem(asked, 409, "TOOL_CONFIRMATION_UNAVAILABLE")


@pytest.mark.req("N5.1")
async def test_odd_names_are_called_by_id_and_by_alias(settings, http_server, variant):
    async with serve_rest(settings, http_server, variant("odd-names")) as api:
        tools = (await api.ask("GET", "/api/tools"))["tools"]
        assert any("%" in tool["name"] for tool in tools)
        for tool in tools:
            path = httpx.URL("http://x").copy_with(path=f"/api/tools/{tool['name']}").raw_path.decode()
            escaped = "/api/tools/" + "".join(f"%{byte:02X}" for byte in tool["name"].encode())
            assert await api.ask("GET", escaped) == tool, path
            assert await api.ask("GET", f"/api/tools/{tool['alias']}") == tool


# --- streaming and leaving --------------------------------------------------------------------------------


async def test_progress_comes_as_it_is_and_then_the_result(settings, http_server, variant, plugin_copy):
    async with serve_rest(settings, http_server, plugin_copy(variant("progress"), patient)) as api:
        headers = {"accept": "text/event-stream"}
        path = "/api/tools/fx-progress.progress/call"
        async with api.http.stream("POST", path, json={"seconds": 1}, headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].split(";")[0] == "text/event-stream"
            said = [event async for event in events(answer.aiter_lines())]
        kinds = [kind for kind, _ in said]
        assert "progress" in kinds
        assert kinds[-1] == "result"
        assert kinds.count("result") == 1
        signs = [data["progress"] for kind, data in said if kind == "progress"]
        assert signs == sorted(signs)
        assert set(said[-1][1]) == {"output", "content", "failed", "trace_id"}


async def test_what_fails_before_anything_was_said_is_answered_plainly(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        headers = {"accept": "text/event-stream"}
        problem(await api.call("mcp-fixture.none", headers=headers), 404, "TOOL_NOT_FOUND")
        problem(await api.call("mcp-fixture.fail", headers=headers), 502, "MCP_TOOL_CALL_FAILED")
        answer = await api.call("mcp-fixture.echo", ECHO, headers=headers)
        assert answer.text.startswith("event: result\ndata: {")


@pytest.mark.req("N6.8", "N9")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_closing_the_request_cancels_the_call_at_the_tools_server(
    settings, http_server, variant, plugin_copy, accept
):
    async with serve_rest(settings, http_server, plugin_copy(variant("witness"), patient)) as api:
        waits = "fx-witness.wait"

        calling = asyncio.create_task(api.call(waits, {"seconds": 600}, headers={"accept": accept}))
        async with asyncio.timeout(60):
            while not any(call["tool"] == "wait" for call in (await seen(api))["calls"]):
                pass
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            while not (await seen(api))["cancels"]:
                pass
            while not (
                left := [
                    step for step in await api.bridge.traces.steps(limit=1_000) if step.tool == waits and step.outcome
                ]
            ):
                pass
        assert [(step.outcome, step.code) for step in left] == [("error", "TOOL_CALL_CANCELLED")]


# --- live events ------------------------------------------------------------------------------------------


async def test_events_tell_of_hosts_tools_and_calls(settings, http_server, echo):
    async with (
        serve_rest(settings, http_server, echo) as api,
        asyncio.timeout(60),
        api.http.stream("GET", "/api/events") as answer,
    ):
        said = events(answer.aiter_lines())
        assert await anext(said) == ("", "listening")
        trace = (await api.call("mcp-fixture.echo", ECHO)).json()["trace_id"]
        name, data = await anext(said)
        assert (name, data["tool"], data["step"], data["code"]) == ("call_ended", "mcp-fixture.echo", trace, None)
        await api.ask("POST", "/api/plugins/mcp-fixture/disable")
        name, data = await anext(said)
        assert (name, data) == ("tools_changed", {"plugin_id": "mcp-fixture", "tools": []})
        name, data = await anext(said)
        assert (name, data["plugin_state"]) == ("host_changed", "disabling")


async def test_streams_end_in_order_when_the_bridge_does(settings, http_server, echo):
    lines: list[str] = []
    listening = asyncio.Event()

    async def listen(api):
        headers = api.token("ear", "read")
        async with (
            httpx.AsyncClient(timeout=60, headers=headers) as http,
            http.stream("GET", api.base + "/api/events") as answer,
        ):
            async for line in answer.aiter_lines():  # raises where the stream is broken off
                lines.append(line)
                listening.set()

    async with serve_rest(settings, http_server, echo) as api:
        ear = asyncio.create_task(listen(api))
        async with asyncio.timeout(60):
            await listening.wait()
    async with asyncio.timeout(60):
        await ear
    assert lines[0] == ": listening"


async def test_a_reader_that_left_is_forgotten(settings, http_server, echo, until):
    async with serve_rest(settings, http_server, echo) as api:
        for _ in range(3):
            async with api.http.stream("GET", "/api/events") as answer:
                assert await anext(aiter(answer.aiter_lines())) == ": listening"
        await until(lambda: not api.bridge._events._readers, 30)


async def test_past_the_bound_no_more_readers_are_taken(settings, http_server, monkeypatch):
    monkeypatch.setattr("bascule.builtin_plugins.quart_api.front._MOST_LISTENERS", 1)
    async with serve_rest(settings, http_server) as api, api.http.stream("GET", "/api/events") as answer:
        assert await anext(aiter(answer.aiter_lines())) == ": listening"
        problem(await api.http.get("/api/events"), 429, "REQUEST_REFUSED")


async def test_calls_past_the_bound_of_one_token_are_turned_away(settings, http_server, variant, plugin_copy):
    use = settings.with_(limits={"calls_per_caller": 2})
    async with serve_rest(use, http_server, plugin_copy(variant("witness"), patient)) as api:
        other = api.token("other", "call")
        waiting = [asyncio.create_task(api.call("fx-witness.wait", {"seconds": 600})) for _ in range(2)]
        async with asyncio.timeout(60):
            while sum(call["tool"] == "wait" for call in (await seen(api, other))["calls"]) < 2:
                pass
        problem(await api.call("fx-witness.ping"), 429, "TOOL_BUSY")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with asyncio.timeout(60):
            while (await api.call("fx-witness.ping")).status_code == 429:
                pass


async def seen(api, headers=None):
    """What reached the server of the plugin `witness`."""
    return (await api.call("fx-witness.seen", headers=headers)).json()["output"]
