"""A call's way, from an agent to a real server and back: find, check, permit, send, trace."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bascule.core.bridge import Bridge
from bascule.hookspecs import (
    EVERYTHING,
    Caller,
    PluginHostUnavailable,
    PluginState,
    ToolArgumentsInvalid,
    ToolBusy,
    ToolCall,
    ToolCallFailed,
    ToolCallTimeout,
    ToolConfirmationDeclined,
    ToolConfirmationUnavailable,
    ToolNotFound,
    ToolPermissionDenied,
    ToolResultTooLarge,
)

EVERYONE = 8


@pytest.mark.req("N1.1", "N5.5", "N5.6", "N9", "N1.2")
async def test_an_agent_calls_a_tool_and_the_run_leaves_a_trace(host, echo):
    async with host(echo) as bridge:
        async with bridge.run(agent="researcher", purpose="say hello") as run:
            result = await run.call("mcp-fixture.echo", {"message": "hello"})
            assert result.output["message"] == "hello"
            assert not result.failed
            (step,) = await run.trace()
        assert (step.tool, step.plugin, step.generation) == ("mcp-fixture.echo", "mcp-fixture", 1)
        assert (step.decision, step.decision_rule) == ("allow", "grants")
        assert step.decision_reason == "notes.read is granted"
        assert (step.outcome, step.code) == ("ok", None)
        assert json.loads(step.arguments) == {"message": "hello"}
        assert json.loads(step.result)["message"] == "hello"
        assert 0 <= step.validating <= step.queued <= step.total
        assert 0 < step.upstream <= step.total
        assert step.caller["platform"] == "agent"
        assert step.output_valid is True
        seen, steps = await bridge.traces.run(run.id)
        assert (seen.agent, seen.purpose, seen.state, seen.steps) == ("researcher", "say hello", "finished", 1)
        assert len(steps) == 1


@pytest.mark.req("N5.3", "N9")
@pytest.mark.parametrize(
    "arguments",
    [
        {"message": "m"},
        {"message": "m", "note": None},
        {"message": "m", "note": "n", "x-1": 1, "x-two": 2},
        {"message": "řemeslník 日本 🎉 \u2028 \x00"},
    ],
)
async def test_arguments_arrive_exactly_as_they_were_given(host, echo, arguments):
    async with host(echo) as bridge, bridge.run("test") as run:
        result = await run.call("mcp-fixture.echo", arguments)
        assert result.output["arguments"] == arguments


@pytest.mark.req("N5.5", "N9")
@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        ({}, "/message"),
        ({"message": 1}, "/message"),
        ({"message": "m", "mesage": 1}, "/mesage"),
        ({"message": "m", "x-1": "1"}, "/x-1"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_the_server_sees_them(host, echo, arguments, pointer):
    async with host(echo) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolArgumentsInvalid) as refusal:
            await run.call("mcp-fixture.echo", arguments)
        assert pointer in [problem["pointer"] for problem in refusal.value.problems]
        (step,) = await run.trace()
        assert (step.outcome, step.code, step.upstream) == ("error", "TOOL_ARGUMENTS_INVALID", None)


async def test_arguments_that_are_no_json_are_refused(host, echo):
    async with host(echo) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolArgumentsInvalid):
            await run.call("mcp-fixture.echo", {"message": "m", "note": object()})
        assert bridge.plugins.list()[0].state is PluginState.READY


@pytest.mark.req("N5.7", "N9")
async def test_a_tool_that_says_it_failed_is_an_error_with_its_own_text(host, echo):
    async with host(echo) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolCallFailed) as failure:
            await run.call("mcp-fixture.fail", {"message": "the cellar is flooded"})
        assert failure.value.code == "MCP_TOOL_CALL_FAILED"
        assert "the cellar is flooded" in failure.value.message
        assert failure.value.result.failed
        (step,) = await run.trace()
        assert (step.outcome, step.code) == ("error", "MCP_TOOL_CALL_FAILED")


@pytest.mark.req("N5.8", "N6.6", "N9")
async def test_a_result_over_the_bound_fails_its_call_and_the_server_stays(host, echo):
    async with host(echo) as bridge, bridge.run("test") as run:
        assert len((await run.call("mcp-fixture.large", {"bytes": 250_000})).text) == 250_000
        with pytest.raises(ToolResultTooLarge) as refusal:
            await run.call("mcp-fixture.large", {"bytes": 256 * 1024 + 1})
        assert refusal.value.code == "MCP_TOOL_RESULT_TOO_LARGE"
        assert (await run.call("mcp-fixture.echo", {"message": "on"})).output["message"] == "on"


@pytest.mark.req("N6.5")
async def test_a_message_over_the_bound_takes_the_host_down(host, echo):
    async with host(echo) as bridge, bridge.run("test") as run:
        with pytest.raises(PluginHostUnavailable):
            await run.call("mcp-fixture.large", {"bytes": 3 * 1024 * 1024})
        assert bridge.plugins.list()[0].state is PluginState.ERROR


@pytest.mark.req("N6.7", "N6.8", "N3.6", "N9")
async def test_a_call_that_takes_too_long_is_given_up_and_the_server_told(host, plugin_copy, echo):
    folder = plugin_copy(echo, lambda manifest: manifest["backend"].update(tool_timeout_seconds=0.3))
    async with host(folder) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolCallTimeout, match=r"0\.3 s"):
            await run.call("mcp-fixture.sleep", {"seconds": 60})
        assert (await run.call("mcp-fixture.echo", {"message": "on"})).output["message"] == "on"
        steps = await run.trace()
        assert [step.code for step in steps] == ["TOOL_CALL_TIMEOUT", None]


@pytest.mark.req("N6.8", "N9")
async def test_cancelling_frees_the_waiter_at_once_and_leaves_a_trace(host, echo):
    async with host(echo) as bridge, bridge.run("test") as run:
        call = asyncio.create_task(run.call("mcp-fixture.sleep", {"seconds": 60}))
        async with asyncio.timeout(60):
            while not [step for step in await run.trace() if step.outcome is None]:
                await asyncio.sleep(0.01)
        started = asyncio.get_running_loop().time()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert asyncio.get_running_loop().time() - started < 40  # of the sixty that the call would take
        (step,) = await run.trace()
        assert (step.outcome, step.code) == ("error", "TOOL_CALL_CANCELLED")
        await run.call("mcp-fixture.echo", {"message": "still there"})


async def test_progress_comes_in_order_never_after_the_result_and_gives_the_call_more_time(host, plugin_copy, echo):
    folder = plugin_copy(echo, lambda manifest: manifest["backend"].update(tool_timeout_seconds=0.6))
    async with host(folder) as bridge, bridge.run("test") as run:
        seen: list[float] = []
        await run.call(
            "mcp-fixture.sleep", {"seconds": 1.5, "progress": 6}, progress=lambda step: seen.append(step.progress)
        )
        after = list(seen)
        assert seen == sorted(seen)
        assert len(seen) >= 5
        await run.call("mcp-fixture.echo", {"message": "x"})
        assert seen == after


@pytest.mark.req("N5.5", "N6.7", "A4")
async def test_an_unknown_and_a_hidden_tool_are_told_apart_by_no_one(host, echo):
    async with host(echo) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolNotFound) as unknown:
            await run.call("mcp-fixture.nothing")
        assert "'mcp-fixture.nothing'" in unknown.value.message
        (step,) = await run.trace()
        assert (step.code, step.plugin) == ("TOOL_NOT_FOUND", None)


async def test_a_tool_is_called_by_its_alias_as_well(host, echo):
    async with host(echo) as bridge, bridge.run("test") as run:
        (tool,) = [tool for tool in await run.tools() if tool.name == "mcp-fixture.echo"]
        assert (await run.call(tool.alias, {"message": "x"})).output["message"] == "x"


def declare(**entry: object):
    """Edits a manifest so that its `echo` is declared by an object."""

    def edit(manifest: dict) -> None:
        tools = manifest["contributes"]["tools"]
        tools[tools.index("mcp-fixture.echo")] = {"id": "mcp-fixture.echo", **entry}

    return edit


@pytest.mark.req("A5", "N6.7")
@pytest.mark.parametrize("entry", [{"confirm": True}, {"visibility": "sensitive"}])
async def test_a_tool_that_needs_a_yes_runs_only_if_someone_says_yes(host, plugin_copy, echo, entry):
    folder = plugin_copy(echo, declare(**entry))
    asked: list[str] = []

    async def answer(question: str, call: ToolCall) -> bool:
        asked.append(question)
        return call.arguments["message"] == "good"

    async with host(folder) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolConfirmationUnavailable):
            await run.call("mcp-fixture.echo", {"message": "good"})
        with pytest.raises(ToolConfirmationDeclined):
            await run.call("mcp-fixture.echo", {"message": "bad"}, ask=answer)
        assert (await run.call("mcp-fixture.echo", {"message": "good"}, ask=answer)).output["message"] == "good"
        assert len(asked) == 2
        assert [step.decision for step in await run.trace()] == ["ask", "ask", "ask"]


@pytest.mark.req("N5.4")
async def test_the_manifest_states_a_permission_where_the_server_says_nothing(host, plugin_copy, echo):
    def edit(manifest: dict) -> None:
        tools = manifest["contributes"]["tools"]
        tools[tools.index("mcp-fixture.fail")] = {"id": "mcp-fixture.fail", "permission": "notes.read", "groups": ["x"]}

    async with host(plugin_copy(echo, edit)) as bridge, bridge.run("test") as run:
        tools = {tool.name: tool for tool in await run.tools()}
        assert tools["mcp-fixture.fail"].permission == "notes.read"
        assert tools["mcp-fixture.fail"].groups == {"x"}
        assert tools["mcp-fixture.echo"].permission == "notes.read"
        assert tools["mcp-fixture.sleep"].permission == "tools.call"


@pytest.mark.req("N5.4", "N9")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("permission-mismatch", "PLUGIN_CONTRIBUTION_INVALID"),
        ("permission-undeclared", "PLUGIN_PERMISSION_UNDECLARED"),
        ("permission-unknown", "EXTENSION_PERMISSION_INVALID"),
    ],
)
async def test_permissions_that_do_not_fit_the_manifest_keep_the_plugin_out(host, variant, name, code):
    async with host(variant(name)) as bridge:
        assert bridge.failures[f"fx-{name}"].code == code


@pytest.mark.req("N5.4")
async def test_our_own_key_in_meta_comes_before_the_older_one(host, variant):
    async with host(variant("permission-both")) as bridge, bridge.run("test") as run:
        assert bridge.failures == {}
        tools = {tool.name: tool for tool in await run.tools()}
        assert tools["fx-permission-both.read"].permission != "tools.call"


@pytest.mark.req("N6.3", "N6.2", "N8.1", "N9")
async def test_no_secret_and_no_path_of_the_host_reaches_the_child(host, echo, monkeypatch):
    planted = {
        "OPENAI_API_KEY": "sk-planted-1",
        "AWS_SECRET_ACCESS_KEY": "planted-2",
        "DATABASE_URL": "postgres://planted-3",
        "NOTES_VAULT": "/planted-4",
        "LD_PRELOAD_X": "planted-5",
        "PYTHONPATH": "/planted-6",
        "BASCULE_DEBUG": "planted-7",
    }
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    async with host(echo) as bridge, bridge.run("test") as run:
        output = (await run.call("mcp-fixture.environment")).output
    assert "planted" not in json.dumps(output)
    assert Path(output["cwd"]) == echo
    assert set(output["open_fds"]) <= {0, 1, 2} | {
        fd for fd in output["open_fds"] if fd > 2 and fd == max(output["open_fds"])
    }
    assert set(output["environment"]) <= {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("PYTHONUTF8", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"),
        *(name for name in os.environ if name.startswith("LC_")),
    }


@pytest.mark.req("N6.3")
async def test_the_manifest_sets_and_lets_through_variables_by_name(host, echo, plugin_copy, monkeypatch):
    monkeypatch.setenv("LET_THROUGH", "from the host")
    monkeypatch.setenv("KEPT_BACK", "secret")
    folder = plugin_copy(
        echo, lambda m: m["backend"].update(env={"LITERAL": "${HOME}"}, pass_env=["LET_THROUGH", "NOT_THERE"])
    )
    async with host(folder) as bridge, bridge.run("test") as run:
        environment = (await run.call("mcp-fixture.environment")).output["environment"]
    assert environment["LITERAL"] == "${HOME}"
    assert environment["LET_THROUGH"] == "from the host"
    assert "PATH" in environment
    assert not {"KEPT_BACK", "NOT_THERE"} & set(environment)


@pytest.mark.req("N5.1")
async def test_names_that_are_no_ids_are_escaped_and_called_by_their_own_name(host, variant):
    async with host(variant("odd-names")) as bridge, bridge.run("test") as run:
        tools = {tool.name: tool for tool in await run.tools()}
        odd = tools["fx-odd-names.weird%2Fname%20with%20space"]
        assert odd.remote_name == "weird/name with space"
        assert odd.remote_name in (await run.call(odd.name)).text
        assert len({tool.alias for tool in tools.values()}) == len(tools)
        for tool in tools.values():
            if not tool.name.endswith(".ping"):
                assert tool.remote_name in (await run.call(tool.alias)).text


@pytest.mark.req("N5.6", "A7")
async def test_content_of_every_kind_comes_back_whole(host, variant):
    async with host(variant("content")) as bridge, bridge.run("test") as run:
        rich = await run.call("fx-content.rich")
        assert {block["type"] for block in rich.content} == {"text", "image", "audio", "resource", "resource_link"}
        assert rich.output == rich.origin.value["structuredContent"]
        assert "_meta" in rich.origin.value
        unknown = await run.call("fx-content.unknown-type")
        assert unknown.output == unknown.origin.value["content"]
        with pytest.raises(ToolCallFailed):
            await run.call("fx-content.failing")
        broken = await run.call("fx-content.broken-output")
        assert broken.output == broken.origin.value["structuredContent"]
        steps = {step.tool: step for step in await run.trace()}
        assert steps["fx-content.broken-output"].output_valid is False
        assert steps["fx-content.failing"].output_valid is None


async def test_secrets_in_arguments_and_results_are_delivered_but_not_kept(host, variant, echo):
    async with host(variant("secrets-in-result"), echo) as bridge, bridge.run("test") as run:
        result = await run.call("fx-secrets-in-result.leak")
        assert "AKIA" in json.dumps(result.output)
        await run.call("mcp-fixture.echo", {"message": "ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})
        kept = "".join(f"{step.arguments}{step.result}" for step in await run.trace())
        assert "AKIAIOSFODNN7EXAMPLE" not in kept
        assert "ghp_aaaa" not in kept


@pytest.mark.slow
async def test_a_thousand_calls_in_flight_of_eight_callers_all_come_back_to_the_right_one(host, echo):
    async with host(echo) as bridge:
        road = bridge.gateway.through(EVERYTHING)

        async def one(caller: Caller, index: int) -> tuple[str, str]:
            nonce = f"{caller.session}/{index}"
            result = await road.call(ToolCall("mcp-fixture.echo", {"message": nonce}, caller))
            return nonce, result.output["message"]

        callers = [Caller("test", f"user-{n}", f"session-{n}", "in-process") for n in range(EVERYONE)]
        answers = await asyncio.gather(*(one(caller, index) for index in range(125) for caller in callers))
        assert len(answers) == 1_000
        assert all(sent == received for sent, received in answers)


async def test_a_caller_that_takes_all_places_is_told_to_wait_and_no_one_else_is(host, echo, settings):
    narrow = settings.with_(limits=replace(settings.limits, calls_per_caller=3))
    async with host(echo, use=narrow) as bridge, bridge.run("greedy") as greedy, bridge.run("modest") as modest:
        waiting = [asyncio.create_task(greedy.call("mcp-fixture.sleep", {"seconds": 30})) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ToolBusy):
            await greedy.call("mcp-fixture.echo", {"message": "one too many"})
        assert (await modest.call("mcp-fixture.echo", {"message": "hello"})).output["message"] == "hello"
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (await greedy.call("mcp-fixture.echo", {"message": "again"})).output["message"] == "again"


@pytest.mark.req("N5.5", "N6.7")
async def test_without_any_permission_check_nothing_runs(echo, settings):
    bare = settings.with_(disabled_hook_plugins=("grants",))
    async with Bridge(bare, plugins=[echo], grant=True, remember=False) as bridge, bridge.run("test") as run:
        assert await run.tools()
        with pytest.raises(ToolPermissionDenied):
            await run.call("mcp-fixture.echo", {"message": "x"})


async def test_without_any_exposure_policy_nothing_is_shown(echo, settings):
    bare = settings.with_(disabled_hook_plugins=("group_exposure",))
    async with Bridge(bare, plugins=[echo], grant=True, remember=False) as bridge, bridge.run("test") as run:
        assert await run.tools() == []
        with pytest.raises(ToolNotFound):
            await run.call("mcp-fixture.echo", {"message": "x"})


@pytest.mark.req("D4")
@pytest.mark.parametrize("name", ["mcp_converter", "local_launcher", "stdio_client"])
async def test_each_built_in_can_be_missing_and_the_bridge_still_stands(echo, settings, name):
    bare = settings.with_(disabled_hook_plugins=(name,), launcher="local")
    async with Bridge(bare, plugins=[echo], grant=True, remember=False) as bridge:
        await bridge.settled()
        (error,) = bridge.failures.values()
        assert error.hint


async def test_a_run_that_ends_by_an_exception_is_marked_as_failed(host, echo):
    async with host(echo) as bridge:

        async def stumble() -> str:
            async with bridge.run("clumsy") as run:
                await run.call("mcp-fixture.echo", {"message": "x"})
                return str(1 // (len(run.id) - len(run.id)))

        with pytest.raises(ZeroDivisionError):
            await stumble()
        (run, *_) = await bridge.traces.runs()
        seen, _ = await bridge.traces.run(run.id)
        assert seen.state == "failed"
