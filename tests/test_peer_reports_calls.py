"""Faults that users reported of other gateways and bridges, as tests of ours: what becomes of a call.

Each test's docstring begins with the class of the report and says what happens here.
"""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from memory_channel import attended
from scripted import scripted, tool

from bascule.hookspecs import ToolArgumentsInvalid, ToolBusy, ToolCallFailed, ToolNotFound, ToolResultInvalid

PIXEL = base64.b64encode(bytes(67)).decode()
NULLABLE = {
    "type": "object",
    "properties": {"note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}},
}


@pytest.fixture
def local(settings):
    """Unsandboxed, so that the server can record what reached it."""
    return settings.with_(launcher="local")


async def test_arguments_inside_a_string_key_are_refused_with_the_place(host, local, tmp_path):
    """args.encoding: a model wraps all arguments into one key; the caller learns which argument is wrong."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    fx = scripted(tmp_path, tools=[tool("do", schema)])
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        result = await client.call("fx.do", {'"json_data": {"n": 1}': ""})
        assert result["isError"]
        assert "json_data" in result["content"][0]["text"]
        assert result["_meta"]["bascule/code"] == "TOOL_ARGUMENTS_INVALID"
    assert not fx.received("tools/call")


async def test_nested_arguments_arrive_as_they_were_sent(host, local, tmp_path):
    """args.encoding: a proxy serialises objects twice; here they pass through untouched."""
    fx = scripted(tmp_path)
    sent = {"spec": {"a": [{"k": "v"}], "n": 7200, "deep": [[[{"x": None}]]]}, "text": '{"not": "decoded"}'}
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        await run.call("fx.do", sent)
    assert fx.received("tools/call")[0]["params"]["arguments"] == sent


@pytest.mark.parametrize("arguments", [{}, {"note": None}, {"note": "x"}], ids=["omitted", "null", "value"])
async def test_an_omitted_argument_a_null_and_a_value_are_three_things(host, local, tmp_path, arguments):
    """args.null: optional arguments are refused, or a default is put in; here nothing is added and nothing refused."""
    fx = scripted(tmp_path, tools=[tool("do", NULLABLE)])
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        await run.call("fx.do", arguments)
    assert fx.received("tools/call")[0]["params"]["arguments"] == arguments


async def test_text_and_structured_content_both_reach_the_client(host, local, tmp_path):
    """content.lossy: a bridge keeps the text and drops the structure; here both arrive."""
    fx = scripted(tmp_path, "def call(*_): return text('ok', structuredContent={'n': 3})")
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        result = await client.call("fx.do")
        assert result["content"] == [{"type": "text", "text": "ok"}]
        assert result["structuredContent"] == {"n": 3}


async def test_an_image_stays_an_image_in_its_place(host, local, tmp_path):
    """content.lossy: images become JSON text, a hundred thousand tokens of it; here types and order survive."""
    blocks = [
        {"type": "text", "text": "before"},
        {"type": "image", "data": PIXEL, "mimeType": "image/png", "annotations": {"priority": 0.5}},
        {"type": "resource_link", "uri": "file:///x", "name": "x"},
        {"type": "text", "text": "after"},
    ]
    fx = scripted(tmp_path, f"def call(*_): return {{'content': {blocks!r}}}")
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        assert (await client.call("fx.do"))["content"] == blocks


async def test_every_field_of_a_tool_reaches_the_client(host, local, tmp_path):
    """contract.lossy: a gateway strips outputSchema, annotations, title, icons; here a tool is relayed whole."""
    whole = tool(
        "do",
        NULLABLE,
        title="Do it",
        outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}},
        annotations={"readOnlyHint": True, "title": "Do it"},
        icons=[{"src": "data:image/png;base64," + PIXEL, "mimeType": "image/png"}],
        _meta={"vendor/x": [1, None]},
    )
    fx = scripted(tmp_path, tools=[whole])
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        (listed,) = (await client.request("tools/list"))["result"]["tools"]
        assert listed == {**whole, "name": "fx.do"}


async def test_the_output_schema_is_not_held_against_an_error(host, local, tmp_path):
    """contract.output: a failed call is reported as breaking its outputSchema; here the tool's own words arrive."""
    code = "def call(*_): return text('the disk is full', isError=True)"
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    fx = scripted(tmp_path, code, [tool("do", outputSchema=schema)])
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        with pytest.raises(ToolCallFailed, match="the disk is full"):
            await run.call("fx.do")


async def test_text_of_all_scripts_comes_back_equal(host, local, tmp_path):
    """encoding: text is mangled on the way through pipes; here it is UTF-8 both ways, whatever the locale."""
    fx = scripted(tmp_path, env={"LC_ALL": "C", "LANG": "C"})
    sent = {"s": "řemeslník 日本 🎉 \u2028 \u0000 \x85", "ключ": "значение"}
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        assert (await run.call("fx.do", sent)).output == {"got": sent}


async def test_a_result_that_does_not_say_that_it_failed_is_relayed_as_it_is(host, local, tmp_path):
    """errors.iserror: servers report bad arguments as success; ours are checked before, and words pass."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    fx = scripted(
        tmp_path, "def call(*_): return text('missing required parameter', isError=False)", [tool("do", schema)]
    )
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        with pytest.raises(ToolArgumentsInvalid):
            await run.call("fx.do", {})
        assert not fx.received("tools/call")
        assert (await run.call("fx.do", {"q": "x"})).text == "missing required parameter"


async def test_a_busy_tool_is_busy_and_not_unknown(host, local, tmp_path):
    """errors.misleading: with its pool exhausted a proxy says "Unknown tool"; here a busy tool says so."""
    use = local.with_(limits={"calls_per_caller": 1})
    fx = scripted(tmp_path, "def call(*_): return None")
    async with host(fx.path, use=use) as bridge, bridge.run("agent") as run:
        first = asyncio.create_task(run.call("fx.do"))
        async with asyncio.timeout(30):
            while not fx.received("tools/call"):
                await asyncio.sleep(0.02)
        with pytest.raises(ToolBusy, match="in flight"):
            await run.call("fx.do")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_plugin_that_is_gone_says_so_in_words(host, local, tmp_path):
    """errors.misleading: a dead server's tools answer a bare KeyError; here the call, and the owner, are told why."""
    fx = scripted(tmp_path, "def call(*_): sys.exit(3)")
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        result = await client.call("fx.do")
        assert result["_meta"]["bascule/code"] == "PLUGIN_HOST_UNAVAILABLE"
        assert "fx is not available" in result["content"][0]["text"]
        view = bridge.plugins.get("fx")
        assert (view.state, view.host.status) == ("error", "unhealthy")
        assert "restart" in str(view.reason)


async def test_equal_ids_of_two_clients_do_not_meet(host, local, tmp_path):
    """concurrency.id: two clients use the id 1 and get each other's answers; here every hop has ids of its own."""
    code = "waiting = []\ndef call(name, arguments, id, meta):\n    waiting.append((id, arguments))\n"
    code += "    if len(waiting) == 2:\n        for id, sent in reversed(waiting): answer(id, text(sent['who']))\n"
    fx = scripted(tmp_path, code)
    async with host(fx.path, use=local) as bridge, attended(bridge) as ann, attended(bridge) as bob:
        for client, who in ((ann, "ann"), (bob, "bob")):
            await client.initialize()
            client.begin_call("fx.do", {"who": who}, id=7)
        assert (await ann.answer(7))["result"]["content"][0]["text"] == "ann"
        assert (await bob.answer(7))["result"]["content"][0]["text"] == "bob"
    assert len({message["id"] for message in fx.received("tools/call")}) == 2


async def test_one_id_used_twice_at_once_swaps_no_answers(host, local, tmp_path):
    """concurrency.id: an id that is in flight twice swaps replies; here the second request is refused at once."""
    fx = scripted(
        tmp_path, "def call(name, arguments, id, meta):\n    if arguments.get('who') != 'ann': return text('bob')"
    )
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        client.begin_call("fx.do", {"who": "ann"}, id="twice")
        client.begin_call("fx.do", {"who": "bob"}, id="twice")
        answer = await client.answer("twice")
        assert "error" in answer or answer["result"].get("isError")
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "twice"}})
        assert (await client.call("fx.do", {"who": "bob"}))["content"][0]["text"] == "bob"


async def test_progress_goes_to_the_client_whose_call_it_is(host, local, tmp_path):
    """concurrency.progress: both clients chose the token 1 and one hears the other's progress; here tokens are ours."""
    code = """
def call(name, arguments, id, meta):
    say({"jsonrpc": "2.0", "method": "notifications/progress",
         "params": {"progressToken": meta["progressToken"], "progress": 1, "message": arguments["who"]}})
    return text("done")
"""
    fx = scripted(tmp_path, code)
    async with host(fx.path, use=local) as bridge, attended(bridge) as ann, attended(bridge) as bob:
        for client, who in ((ann, "ann"), (bob, "bob")):
            await client.initialize()
            params = {"name": "fx.do", "arguments": {"who": who}, "_meta": {"progressToken": 1}}
            client.begin("tools/call", params, id=5)
        for client, who in ((ann, "ann"), (bob, "bob")):
            await client.answer(5)
            heard = [each["params"] for each in client.sent if each.get("method") == "notifications/progress"]
            assert [(each["progressToken"], each["message"]) for each in heard] == [(1, who)]
    tokens = [message["params"]["_meta"]["progressToken"] for message in fx.received("tools/call")]
    assert len(set(tokens)) == 2


async def test_a_cancel_reaches_the_server_under_its_own_id(host, local, tmp_path):
    """cancel: a proxy keeps the cancel to itself and the tool runs on; here the server is told, by the id it knows."""
    fx = scripted(tmp_path, "def call(*_): return None")
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        client.begin_call("fx.do", id="mine")
        async with asyncio.timeout(30):
            while not fx.received("tools/call"):
                await asyncio.sleep(0.02)
            client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}})
            while not fx.received("notifications/cancelled"):
                await asyncio.sleep(0.02)
    (called,), (cancelled,) = fx.received("tools/call"), fx.received("notifications/cancelled")
    assert cancelled["params"]["requestId"] == called["id"] != "mine"


async def test_a_server_that_dies_of_a_cancel_is_noticed_at_once(host, local, tmp_path, until):
    """cancel: a server exits on the cancel, and the next calls time out; here it is seen to be dead and can restart."""
    code = "def call(name, arguments, id, meta):\n    if not arguments.get('wait'): return text('done')\n"
    code += "def noticed(method, params):\n    if 'cancelled' in method: sys.exit('cannot handle ' + method)\n"
    fx = scripted(tmp_path, code)
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        call = asyncio.create_task(run.call("fx.do", {"wait": True}))
        await until(lambda: bool(fx.received("tools/call")), 30)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: bridge.plugins.get("fx").state == "error", 30)
        with pytest.raises(ToolNotFound):
            await run.call("fx.do", {})
        await bridge.plugins.restart("fx")
        assert (await run.call("fx.do", {})).text == "done"


async def test_what_is_listed_can_be_called_and_what_is_not_can_not(host, echo, settings):
    """authz.consistency: a tool is granted and invisible, or listed and refused; here one decision serves both."""
    use = settings.with_(limits={"tools_per_plugin": 100})
    async with host(echo, use=use) as bridge, attended(bridge) as client:
        await client.initialize()
        listed = [each["name"] for each in (await client.request("tools/list"))["result"]["tools"]]
        assert "mcp-fixture.echo" in listed
        assert not (await client.call("mcp-fixture.echo", {"message": "x"})).get("isError")
        missing = await client.call("mcp-fixture.hidden")
        assert (missing["isError"], missing["_meta"]["bascule/code"]) == (True, "TOOL_NOT_FOUND")


async def test_sixty_tools_are_all_there(host, local, tmp_path):
    """exposure.bloat: a client caps at 40 tools and says nothing; here the whole list comes, in pages if need be."""
    fx = scripted(tmp_path, tools=[f"tool-{number:02}" for number in range(60)])
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        names, cursor = [], None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            page = (await client.request("tools/list", params))["result"]
            names += [each["name"] for each in page["tools"]]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert names == [f"fx.tool-{number:02}" for number in range(60)]


async def test_progress_keeps_a_long_call_alive(host, local, tmp_path):
    """timeout.progress: a call is killed while it reports progress; here a token is always sent and progress counts."""
    code = """
def call(name, arguments, id, meta):
    for step in range(8):
        say({"jsonrpc": "2.0", "method": "notifications/progress",
             "params": {"progressToken": meta["progressToken"], "progress": step}})
        time.sleep(0.25)
    return text("done")
"""
    fx = scripted(tmp_path, code, tool_timeout_seconds=60, progress_idle_seconds=30)
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        assert (await run.call("fx.do")).text == "done"
    assert "progressToken" in fx.received("tools/call")[0]["params"]["_meta"]


@pytest.mark.parametrize("kilobytes", [70, 200])
async def test_an_answer_of_one_long_line_arrives(host, local, tmp_path, kilobytes):
    """stdio.framing: a reply over 64 KiB kills the bridge; here a line may be as long as a message may."""
    fx = scripted(tmp_path, f"def call(*_): return text('x' * {kilobytes * 1024})")
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        assert len((await run.call("fx.do")).text) == kilobytes * 1024


async def test_frames_that_are_split_or_joined_are_read_as_lines(host, local, tmp_path):
    """stdio.framing: one chunk is taken for one message; here bytes are cut at newlines and nowhere else."""
    code = """
waiting = []
def call(name, arguments, id, meta):
    waiting.append(id)
    if len(waiting) < 2: return None
    answers = [{"jsonrpc": "2.0", "id": id, "result": text("done")} for id in waiting]
    lines = b"".join(json.dumps(each).encode() + b"\\n" for each in answers)
    for at in range(0, 60, 10):
        os.write(1, lines[at:at + 10])
        time.sleep(0.01)
    os.write(1, lines[60:])
"""
    fx = scripted(tmp_path, code)
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        results = await asyncio.gather(run.call("fx.do"), run.call("fx.do"))
        assert [result.text for result in results] == ["done", "done"]


async def test_a_quarter_of_a_megabyte_on_stderr_blocks_no_one(host, local, tmp_path):
    """stdio.stderr: nobody reads stderr and the server blocks for ever; here it is drained, and its end is kept."""
    fx = scripted(tmp_path, "def call(*_):\n    sys.stderr.write('y' * 262144 + 'the end')\n    return text('done')")
    async with host(fx.path, use=local) as bridge, bridge.run("agent") as run:
        assert (await run.call("fx.do")).text == "done"
        async with asyncio.timeout(30):
            while "the end" not in bridge.plugins.logs("fx"):
                await asyncio.sleep(0.02)
        assert len(bridge.plugins.logs("fx")) < 70_000


async def test_a_denial_tells_no_secret_of_the_plugin(host, local, tmp_path, strangers):
    """security.secret_leak: a 403 prints the configuration with its tokens; here neither answer nor trace does."""
    strangers.install("deny-all-check")
    fx = scripted(tmp_path, env={"API_TOKEN": "planted-0a1b2c3d4e5f"})
    async with host(fx.path, use=local) as bridge, attended(bridge) as client:
        await client.initialize()
        denied = await client.call("fx.do", {"a": 1})
        assert denied["_meta"]["bascule/code"] == "TOOL_PERMISSION_DENIED"
        steps = await bridge.traces.steps()
        assert "planted" not in json.dumps(denied) + repr(steps) + repr(bridge.plugins.list())


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "text"}, "text block without a text"),
        ({"type": "text", "text": None}, "text block without a text"),
        ({"type": "text", "text": 5}, "text block without a text"),
        ({"type": "resource_link", "name": "n", "uri": "\x01java\nscript:alert(1)"}, "runs code"),
    ],
)
@pytest.mark.parametrize("failed", [False, True])
async def test_a_block_that_is_none_is_the_servers_fault(host, local, tmp_path, block, words, failed):
    """errors.misleading: a malformed block breaks its readers, far from its cause; here the result is refused."""
    code = f"def call(*_): return {{'content': [{block!r}], 'isError': {failed}}}"
    async with host(scripted(tmp_path, code).path, use=local) as bridge, bridge.run("agent") as run:
        with pytest.raises(ToolResultInvalid, match=words):
            await run.call("fx.do")
