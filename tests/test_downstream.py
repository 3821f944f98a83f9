"""A session with one MCP client, over a channel in memory: the real gateway and real servers behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from memory_channel import CALLER, LATEST, Json, Memory, attended

from bascule.core.downstream import Downstream
from bascule.hookspecs import EVERYTHING, SessionOptions

ELICITS = {"elicitation": {}}


def code(answer: Json) -> int:
    return int(answer["error"]["code"])


# --- requests ---------------------------------------------------------------------------------------------


async def test_an_id_that_is_in_flight_is_taken_once_and_free_again_afterwards(host, variant):
    async with host(variant("witness")) as bridge, attended(bridge) as client:
        await client.initialize()
        client.begin_call("fx-witness.wait", {"seconds": 600}, id="same")
        client.begin_call("fx-witness.ping", id="same")
        assert code(await client.answer("same")) == -32600
        client.sent.clear()
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "same"}})
        while "result" not in (await client.request("ping")):
            pass
        client.begin_call("fx-witness.ping", id="same")
        assert (await client.answer("same"))["result"]["content"][0]["text"] == "pong"


async def test_the_same_digits_as_number_and_as_text_are_two_ids(host, echo):
    async with host(echo) as bridge, attended(bridge) as client:
        await client.initialize()
        client.begin_call("mcp-fixture.echo", {"message": "number"}, id=70)
        client.begin_call("mcp-fixture.echo", {"message": "text"}, id="70")
        assert (await client.answer(70))["result"]["structuredContent"]["message"] == "number"
        assert (await client.answer("70"))["result"]["structuredContent"]["message"] == "text"


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_tools_wait_for_the_handshake(host, method):
    async with host() as bridge, attended(bridge) as client:
        assert code(await client.request(method, {"name": "x"})) == -32600
        await client.initialize()
        assert "result" in await client.request("tools/list")


@pytest.mark.parametrize("params", [None, [], "x", {}, {"protocolVersion": 20251125}, {"protocolVersion": None}])
async def test_a_malformed_initialize_is_refused_and_may_be_tried_again(host, params):
    async with host() as bridge, attended(bridge) as client:
        assert code(await client.request("initialize", params)) == -32602
        assert (await client.initialize())["result"]["protocolVersion"] == LATEST


async def test_a_client_may_introduce_itself_badly_and_is_served_all_the_same(host, echo):
    async with host(echo) as bridge, attended(bridge) as client:
        info = {"name": "x" * 5000 + "\x1b[31m", "version": 7}
        await client.request("initialize", {"protocolVersion": LATEST, "capabilities": [], "clientInfo": info})
        assert not (await client.call("mcp-fixture.echo", {"message": "x"}))["isError"]


@pytest.mark.parametrize("cursor", ["", "2", "nobody's", 1, ["after x"], {}])
async def test_a_cursor_that_we_never_gave_is_refused(host, cursor):
    async with host() as bridge, attended(bridge) as client:
        await client.initialize()
        assert code(await client.request("tools/list", {"cursor": cursor})) == -32602
        assert (await client.request("tools/list", {"cursor": None}))["result"] == {"tools": []}


@pytest.mark.parametrize(
    "method", ["server/discover", "prompts/list", "resources/list", "completion/complete", "tasks/list", "", "\n" * 500]
)
async def test_methods_that_we_do_not_have_are_refused_at_once(host, method):
    async with host() as bridge, attended(bridge) as client:
        for _ in range(2):
            assert code(await client.request(method, {})) == -32601
            await client.initialize()


@pytest.mark.parametrize(
    ("line", "error"),
    [(b"nul", -32700), (b"\xff", -32700), (b"[]", -32600), (b"7", -32600), (b'{"jsonrpc": "2.0"}', -32600)],
)
async def test_what_is_no_message_is_answered_without_an_id(host, line, error):
    async with host() as bridge, attended(bridge) as client:
        client.write(line)
        assert code(await client.answer(None)) == error


async def test_answers_to_nothing_and_unknown_notifications_are_ignored(host):
    async with host() as bridge, attended(bridge) as client:
        client.write({"jsonrpc": "2.0", "id": 99, "result": {}})
        client.write({"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "no"}})
        client.write({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]})
        await client.request("ping")
        assert len(client.sent) == 1


# --- results ----------------------------------------------------------------------------------------------


@pytest.mark.req("A7")
@pytest.mark.parametrize(
    ("revision", "kinds"),
    [
        ("2024-11-05", ["text", "image", "text", "resource", "resource", "text"]),
        ("2025-03-26", ["text", "image", "audio", "resource", "resource", "text"]),
        ("2025-06-18", ["text", "image", "audio", "resource", "resource", "resource_link"]),
    ],
)
async def test_types_that_a_revision_does_not_know_become_words(host, variant, revision, kinds):
    async with host(variant("content")) as bridge, attended(bridge) as client:
        await client.initialize(revision)
        rich = await client.call("fx-content.rich")
        assert [block["type"] for block in rich["content"]] == kinds
        assert rich["content"][0]["annotations"]["priority"] == 0.5
        assert rich["content"][0]["_meta"] == {"example.org/item": 1}
        unknown = await client.call("fx-content.unknown-type")
        assert unknown["content"][0]["text"] == f"[left out: hologram, which MCP {revision} does not know]"
        assert unknown["content"][1] == {"type": "text", "text": "beside it"}


@pytest.mark.req("A7")
async def test_a_schema_for_the_output_and_the_structured_output_stay_a_pair(host, variant):
    async with host(variant("content")) as bridge, attended(bridge) as client:
        await client.initialize()
        tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["result"]["tools"]}
        for name, tool in tools.items():
            result = await client.call(name)
            if "outputSchema" in tool and name != "fx-content.missing-output":
                assert "structuredContent" in result or result["isError"]
            else:
                assert "structuredContent" not in result


@pytest.mark.req("A7")
async def test_a_failing_tool_passes_with_its_text_and_nothing_added(host, variant):
    async with host(variant("content")) as bridge, attended(bridge) as client:
        await client.initialize()
        failed = await client.call("fx-content.failing")
        assert failed == {
            "content": [{"type": "text", "text": "The fixture failed as it was asked to."}],
            "isError": True,
        }


async def test_a_call_that_the_bridge_refuses_is_a_result_with_its_code(host, echo):
    async with host(echo) as bridge, attended(bridge) as client:
        await client.initialize()
        for tool, arguments, expected in (
            ("mcp-fixture.nothing", {}, "TOOL_NOT_FOUND"),
            ("mcp-fixture.echo", {}, "TOOL_ARGUMENTS_INVALID"),
            ("mcp-fixture.large", {"bytes": 300_000}, "MCP_TOOL_RESULT_TOO_LARGE"),
            ("mcp-fixture.exit", {}, "PLUGIN_HOST_UNAVAILABLE"),
        ):
            result = await client.call(tool, arguments)
            assert (result["isError"], result["_meta"]["bascule/code"]) == (True, expected)
            assert result["content"][0]["text"]


async def test_a_result_that_the_channel_can_not_carry_is_replaced_by_one_that_says_so(host, echo):
    async with host(echo) as bridge, attended(bridge, SessionOptions(message_bytes=10_000)) as client:
        await client.initialize()
        assert not (await client.call("mcp-fixture.large", {"bytes": 9_000}))["isError"]
        result = await client.call("mcp-fixture.large", {"bytes": 10_000})
        assert (result["isError"], result["_meta"]["bascule/code"]) == (True, "MCP_TOOL_RESULT_TOO_LARGE")


async def test_a_tool_that_no_message_can_carry_is_not_listed_and_hides_no_other(host, echo):
    async with host(echo) as bridge, attended(bridge, SessionOptions(message_bytes=1_700)) as client:
        await client.initialize()
        names = []
        cursor = None
        while True:
            page = (await client.request("tools/list", {"cursor": cursor}))["result"]
            names += [tool["name"] for tool in page["tools"]]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert set(names) == {f"mcp-fixture.{name}" for name in ("exit", "fail", "large", "sleep")}


class Broken:
    """A converter with a fault."""

    dialect = "mcp"

    def write_tool(self, tool):
        raise RuntimeError("no tool can be written")

    def write_result(self, result):
        raise RuntimeError("no result can be written")


async def test_a_fault_of_a_converter_is_told_and_ends_nothing(host, echo, caplog):
    async with host(echo) as bridge:
        channel = Memory()
        road = bridge.gateway.through(EVERYTHING)
        session = Downstream(
            channel, CALLER, SessionOptions(), road=road, converter=Broken(), watchers=bridge.registry.watchers
        )
        running = asyncio.create_task(session.run())
        await channel.initialize()
        assert code(await channel.request("tools/list")) == -32603
        assert code(await channel.request("tools/call", {"name": "mcp-fixture.echo", "arguments": {"message": "x"}}))
        assert "result" in await channel.request("ping")
        channel.close()
        await running
    assert "no result can be written" in caplog.text


# --- a person's yes ---------------------------------------------------------------------------------------


@pytest.fixture
def confirming(plugin_copy, echo, variant):
    """The echo fixture, whose `echo` wants each call confirmed."""

    def edit(manifest: dict[str, Any]) -> None:
        tools = manifest["contributes"]["tools"]
        tools[tools.index("mcp-fixture.echo")] = {"id": "mcp-fixture.echo", "confirm": True}

    return plugin_copy(echo, edit)


@pytest.mark.req("A5")
async def test_a_confirmed_call_runs_and_the_person_saw_its_arguments(host, confirming):
    async with host(confirming) as bridge, attended(bridge) as client:
        await client.initialize(capabilities=ELICITS)
        calling = client.begin_call("mcp-fixture.echo", {"message": "delete everything"})
        question = await client.asked()
        assert question["params"]["mode"] == "form"
        assert question["params"]["requestedSchema"] == {"type": "object", "properties": {}}
        assert "mcp-fixture.echo" in question["params"]["message"]
        assert "delete everything" in question["params"]["message"]
        client.write({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}})
        result = (await client.answer(calling))["result"]
        assert result["structuredContent"]["message"] == "delete everything"


@pytest.mark.req("A5")
@pytest.mark.parametrize(
    "reply",
    [
        {"result": {"action": "decline"}},
        {"result": {"action": "cancel"}},
        {"result": {"action": True}},
        {"result": {}},
        {"result": "accept"},
        {"error": {"code": -32601, "message": "Method not found"}},
    ],
)
async def test_anything_but_a_yes_is_a_no(host, confirming, reply):
    async with host(confirming) as bridge, attended(bridge) as client:
        await client.initialize(capabilities=ELICITS)
        calling = client.begin_call("mcp-fixture.echo", {"message": "x"})
        question = await client.asked()
        client.write({"jsonrpc": "2.0", "id": question["id"], **reply})
        result = (await client.answer(calling))["result"]
        assert (result["isError"], result["_meta"]["bascule/code"]) == (True, "TOOL_CONFIRMATION_DECLINED")
        assert "was not confirmed" in result["content"][0]["text"]


@pytest.mark.req("A5")
async def test_a_question_that_no_one_answers_is_a_no_and_taken_back(host, confirming, settings):
    use = settings.with_(limits={"confirm_seconds": 1})
    async with host(confirming, use=use) as bridge, attended(bridge) as client:
        await client.initialize(capabilities=ELICITS)
        result = await client.call("mcp-fixture.echo", {"message": "x"})
        assert result["_meta"]["bascule/code"] == "TOOL_CONFIRMATION_DECLINED"
        assert "in time" in result["content"][0]["text"]
        taken_back = await client.message(lambda m: m.get("method") == "notifications/cancelled")
        assert taken_back["params"]["requestId"] == (await client.asked())["id"]


async def test_a_call_that_is_cancelled_takes_its_question_back(host, confirming):
    async with host(confirming) as bridge, attended(bridge) as client:
        await client.initialize(capabilities=ELICITS)
        calling = client.begin_call("mcp-fixture.echo", {"message": "x"})
        question = await client.asked()
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": calling}})
        taken_back = await client.message(lambda m: m.get("method") == "notifications/cancelled")
        assert taken_back["params"]["requestId"] == question["id"]
        client.write({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        await client.request("ping")
        assert not [message for message in client.sent if message.get("id") == calling and "result" in message]


async def test_two_questions_at_once_are_told_apart(host, confirming):
    async with host(confirming) as bridge, attended(bridge) as client:
        await client.initialize(capabilities=ELICITS)
        first = client.begin_call("mcp-fixture.echo", {"message": "first"})
        asked_first = await client.asked(1)
        second = client.begin_call("mcp-fixture.echo", {"message": "second"})
        asked_second = await client.asked(2)
        client.write({"jsonrpc": "2.0", "id": asked_second["id"], "result": {"action": "accept"}})
        client.write({"jsonrpc": "2.0", "id": asked_first["id"], "result": {"action": "decline"}})
        assert (await client.answer(second))["result"]["structuredContent"]["message"] == "second"
        assert (await client.answer(first))["result"]["isError"] is True


@pytest.mark.req("A5")
@pytest.mark.parametrize(
    ("revision", "capabilities"),
    [(LATEST, {}), (LATEST, {"elicitation": {"url": {}}}), (LATEST, {"elicitation": True}), ("2025-03-26", ELICITS)],
)
async def test_where_no_one_can_be_asked_the_call_is_called_off_in_words(host, confirming, revision, capabilities):
    async with host(confirming) as bridge, attended(bridge) as client:
        await client.initialize(revision, capabilities)
        result = await client.call("mcp-fixture.echo", {"message": "x"})
        assert (result["isError"], result["_meta"]["bascule/code"]) == (True, "TOOL_CONFIRMATION_UNAVAILABLE")
        assert "no one to ask" in result["content"][0]["text"]


@pytest.mark.parametrize("capabilities", [{"elicitation": {"form": {}}}, {"elicitation": {"form": {}, "url": {}}}])
async def test_a_client_that_names_forms_is_asked_by_one(host, confirming, capabilities):
    async with host(confirming) as bridge, attended(bridge) as client:
        await client.initialize(capabilities=capabilities)
        client.begin_call("mcp-fixture.echo", {"message": "x"})
        await client.asked()


async def test_before_forms_had_a_mode_none_is_named(host, confirming):
    async with host(confirming) as bridge, attended(bridge) as client:
        await client.initialize("2025-06-18", ELICITS)
        client.begin_call("mcp-fixture.echo", {"message": "x" * 5000})
        question = await client.asked()
        assert "mode" not in question["params"]
        assert len(question["params"]["message"]) < 3000


# --- a client that reads slowly or leaves -----------------------------------------------------------------


async def test_a_client_that_does_not_read_is_not_read_from(host, echo, until):
    async with host(echo) as bridge, attended(bridge) as client:
        await client.initialize()
        client.may_send.clear()
        for number in range(20):
            client.begin_call("mcp-fixture.large", {"bytes": 200_000}, id=f"large {number}")
        await until(lambda: not client.unread)
        call = {"name": "mcp-fixture.sleep", "arguments": {"seconds": 0.2, "progress": 5}}
        meta = {"_meta": {"progressToken": "p"}}
        client.begin("tools/call", {**call, **meta}, id="sleep")
        for number in range(500):
            client.begin("tools/list", id=f"list {number}")
        await until(lambda: 0 < client.unread < 500)
        client.may_send.set()
        for number in range(500):
            assert "result" in await client.answer(f"list {number}")
        for number in range(20):
            assert not (await client.answer(f"large {number}"))["result"]["isError"]
        assert "result" in await client.answer("sleep")


async def test_when_the_client_leaves_its_calls_are_cancelled_and_nothing_is_left(host, variant):
    async with host(variant("witness")) as bridge:
        async with attended(bridge) as stays:
            await stays.initialize()
            async with attended(bridge) as leaves:
                await leaves.initialize()
                leaves.begin_call("fx-witness.wait", {"seconds": 600})
                while len((await stays.call("fx-witness.seen"))["structuredContent"]["calls"]) < 2:
                    pass
                assert len(bridge.registry.watchers) == 2
            while not (await stays.call("fx-witness.seen"))["structuredContent"]["cancels"]:
                pass
        assert not bridge.registry.watchers
