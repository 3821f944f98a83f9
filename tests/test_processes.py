"""The stdio client and the local launcher against servers that do not behave."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psutil
import pytest

from bascule.hookspecs import HostStatus, McpProtocolError, PluginHostUnavailable, PluginState, ToolCallTimeout

MIB = 1024 * 1024


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.req("N4.2.1")
async def test_a_server_that_ignores_eof_and_sigterm_is_killed(host, variant):
    async with host(variant("ignore-eof-and-sigterm")) as bridge, bridge.run("test") as run:
        pid = (await run.call("fx-ignore-eof-and-sigterm.pid")).output["pid"]
        await bridge.plugins.disable("fx-ignore-eof-and-sigterm")
        assert not psutil.pid_exists(pid)


@pytest.mark.req("N4.2.1")
async def test_a_grandchild_in_the_group_ends_with_the_server_that_left_by_itself(host, variant, until):
    async with host(variant("leave-grandchild")) as bridge, bridge.run("test") as run:
        output = (await run.call("fx-leave-grandchild.grandchild")).output
        await bridge.plugins.disable("fx-leave-grandchild")
        await until(lambda: gone(output["pid"]))
        await until(lambda: gone(output["grandchild"]))


@pytest.mark.req("N4.2.1")
async def test_a_server_gets_its_grace_to_write_down_what_it_has(host, variant, tmp_path):
    place = tmp_path / "kept"
    async with host(variant("slow-exit")) as bridge, bridge.run("test") as run:
        await run.call("fx-slow-exit.remember", {"path": str(place), "text": "last words"})
        await bridge.plugins.disable("fx-slow-exit")
        assert place.read_text() == "last words"


@pytest.mark.req("N6.4")
async def test_floods_on_stderr_hold_nothing_up_and_only_their_end_is_kept(host, variant):
    async with host(variant("flood-stderr")) as bridge, bridge.run("test") as run:
        await run.call("fx-flood-stderr.ping")
        await run.call("fx-flood-stderr.ping")
        assert 0 < len(bridge.plugins.logs("fx-flood-stderr")) <= 64 * 1024


@pytest.mark.req("N6.5", "N8.3", "N9")
async def test_a_gibibyte_without_a_newline_costs_no_memory(host, echo, variant, until):
    async with host(echo) as bridge, bridge.run("test") as run:
        await run.call("mcp-fixture.echo", {"message": "warm"})
        us = psutil.Process()
        before = us.memory_info().rss
        await bridge.plugins.install(variant("endless-line"), keep=False)
        await bridge.plugins.grant("fx-endless-line", ["tools.call"])
        with suppress(McpProtocolError):  # the line may begin while the tools are still being listed
            await bridge.plugins.enable("fx-endless-line")
        await until(lambda: bridge.plugins.get("fx-endless-line").state is PluginState.ERROR, 20)
        assert us.memory_info().rss - before < 16 * MIB
        assert (await run.call("mcp-fixture.echo", {"message": "still here"})).output["message"] == "still here"


async def test_a_server_that_never_reads_holds_up_no_one_else(host, echo, variant):
    async with host(echo, variant("never-reads-stdin")) as bridge, bridge.run("test") as run:
        stuck = [asyncio.create_task(run.call("fx-never-reads-stdin.ping")) for _ in range(50)]
        for index in range(20):
            output = (await run.call("mcp-fixture.echo", {"message": str(index)})).output
            assert output["message"] == str(index)
        errors = await asyncio.gather(*stuck, return_exceptions=True)
        assert {type(error) for error in errors} == {ToolCallTimeout}


async def test_a_banner_on_stdout_is_skipped_and_counted_where_the_manifest_tolerates_it(host, variant):
    async with host(variant("stdout-noise-tolerant")) as bridge, bridge.run("test") as run:
        await run.call("fx-stdout-noise-tolerant.ping")
        assert "lines on stdout were no JSON" in bridge.plugins.logs("fx-stdout-noise-tolerant")


@pytest.mark.req("N4.2.2", "N6.4")
async def test_the_owner_and_no_one_else_can_read_the_line_that_a_connection_ended_over(host, variant):
    async with host(variant("stdout-noise-strict")) as bridge:
        error = bridge.failures["fx-stdout-noise-strict"]
        assert "hostile fixture 1.0.0 ready" in bridge.plugins.logs("fx-stdout-noise-strict")
        assert "hostile fixture 1.0.0 ready" in error.diagnosis
        assert "hostile fixture" not in str(error)


@pytest.mark.req("N6.8")
async def test_a_late_answer_to_a_call_that_timed_out_is_dropped(host, variant):
    async with host(variant("late-answer")) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolCallTimeout):
            await run.call("fx-late-answer.wait", {"seconds": 1.3})
        for _ in range(30):
            await run.call("fx-late-answer.ping")
            await asyncio.sleep(0.02)
        assert bridge.plugins.list()[0].host.status is HostStatus.READY


@pytest.mark.parametrize(
    ("name", "tool", "arguments"),
    [
        ("answer-unknown-id", "stray", {}),
        ("notification-flood", "flood", {"count": 1_000_000, "method": "notifications/message"}),
        ("exit-mid-call", "exit", {}),
    ],
)
@pytest.mark.req("N4.2.2")
async def test_a_fault_in_the_protocol_takes_the_host_down(host, variant, name, tool, arguments):
    async with host(variant(name)) as bridge, bridge.run("test") as run:
        with pytest.raises(PluginHostUnavailable):
            await run.call(f"fx-{name}.{tool}", arguments)
        assert bridge.plugins.get(f"fx-{name}").host.status is HostStatus.UNHEALTHY


async def test_a_second_answer_is_a_fault_but_the_first_one_is_delivered(host, variant, until):
    async with host(variant("answer-twice")) as bridge, bridge.run("test") as run:
        await run.call("fx-answer-twice.twice")
        await until(lambda: bridge.plugins.get("fx-answer-twice").state is PluginState.ERROR, 20)


async def test_requests_of_the_server_are_answered_and_never_executed(host, variant):
    async with host(variant("server-requests")) as bridge, bridge.run("test") as run:
        async with asyncio.timeout(60):
            while len(answers := (await run.call("fx-server-requests.answers")).output) < 4:
                await asyncio.sleep(0.01)
    assert answers["ping"] == {"result": {}}
    assert {answer["error"]["code"] for method, answer in answers.items() if method != "ping"} == {-32601}


async def test_batches_are_read_where_the_revision_has_them(host, variant):
    async with host(variant("batch-2025-03-26")) as bridge, bridge.run("test") as run:
        first, second = await asyncio.gather(run.call("fx-batch-2025-03-26.pair"), run.call("fx-batch-2025-03-26.pair"))
        assert not first.failed
        assert not second.failed
