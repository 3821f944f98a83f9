"""Runs that remote agents open: whose they are, how they end, and that they outlive a restart of the bridge."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bascule.core.bridge import Bridge
from bascule.core.runs import AgentRuns
from bascule.core.settings import Settings
from bascule.hookspecs import (
    EVERYTHING,
    Caller,
    Limits,
    RunEnded,
    RunLimitReached,
    RunNotFound,
    Runs,
    ToolArgumentsInvalid,
    ToolCall,
    ToolCallFailed,
    TraceNotFound,
)


def remote(bridge: Bridge) -> Runs:
    return AgentRuns(
        bridge.gateway.through(EVERYTHING), bridge.traces, bridge.open_runs, platform="remote", transport="test"
    )


@pytest.fixture
def hasty(settings: Settings) -> Settings:
    """A run is abandoned at once."""
    return settings.with_(limits=Limits(run_idle_seconds=0.05))


@pytest.mark.req("N5.5", "N9")
async def test_a_call_under_an_open_run_is_a_step_of_it_and_names_its_trace(host, echo):
    async with host(echo) as bridge:
        runs = remote(bridge)
        run = await runs.open("researcher", purpose="find out", owner="laptop")
        assert (run.agent, run.purpose, run.state, run.ended_at) == ("researcher", "find out", "running", None)
        runs.owned(run.id, "laptop")
        caller = Caller("remote", "laptop", "s", "test")
        road = bridge.gateway.through(EVERYTHING)
        result = await road.call(ToolCall("mcp-fixture.echo", {"message": "hello"}, caller, run.id))
        finished = await runs.finish(run.id, owner="laptop")
        assert (finished.state, finished.steps) == ("finished", 1)
        view, (step,) = await bridge.traces.run(run.id)
        assert view == finished
        assert step.id == result.trace_id
        assert await bridge.traces.trace(step.id) == step


@pytest.mark.req("N5.5")
async def test_a_call_that_fails_names_its_trace_too(host, echo):
    async with host(echo) as bridge, bridge.run("agent") as run:
        for tool, arguments, kind in (
            ("mcp-fixture.fail", {}, ToolCallFailed),
            ("mcp-fixture.echo", {}, ToolArgumentsInvalid),
        ):
            with pytest.raises(kind) as refused:
                await run.call(tool, arguments)
            assert refused.value.trace_id is not None
            step = await bridge.traces.trace(refused.value.trace_id)
            assert (step.tool, step.code) == (tool, kind.code)


async def test_a_run_of_someone_else_is_like_none(host):
    async with host() as bridge:
        runs = remote(bridge)
        run = await runs.open("agent", owner="laptop")
        async with bridge.run("in the process") as own:
            for run_id, owner in ((run.id, "phone"), (run.id, ""), ("nothing", "laptop"), (own.id, ""), ("", "")):
                with pytest.raises(RunNotFound) as refused:
                    runs.owned(run_id, owner)
                assert refused.value.message == f"no run {run_id!r} is open"
                with pytest.raises(RunNotFound):
                    await runs.finish(run_id, owner=owner)
        assert (await runs.finish(run.id)).state == "finished"  # whoever may do everything


async def test_a_run_ends_once(host):
    async with host() as bridge:
        runs = remote(bridge)
        run = await runs.open("agent", owner="laptop")
        assert (await runs.finish(run.id, state="failed", owner="laptop")).state == "failed"
        with pytest.raises(RunEnded, match="is failed"):
            await runs.finish(run.id, owner="laptop")
        with pytest.raises(RunEnded, match="is failed"):
            runs.owned(run.id, "laptop")
        with pytest.raises(RunNotFound):
            runs.owned(run.id, "phone")


async def test_a_run_without_calls_is_abandoned(hasty, host, until):
    async with host(use=hasty) as bridge:
        runs = remote(bridge)
        run = await runs.open("agent", owner="laptop")

        def refused() -> bool:
            try:
                bridge.open_runs._find(run.id, "laptop")  # a look that does not use it
            except RunEnded:
                return True
            return False

        await until(refused)
        with pytest.raises(RunEnded, match="abandoned"):
            runs.owned(run.id, "laptop")
        await runs.open("another", owner="laptop")  # lets go of those that are idle
        assert (await bridge.traces.run_view(run.id)).state == "abandoned"
        with pytest.raises(RunEnded, match="abandoned"):
            await runs.finish(run.id, owner="laptop")


async def test_a_reader_sees_an_abandoned_run_as_one_although_no_one_wrote_it_down(hasty, until):
    async with Bridge(hasty) as bridge:
        run = await remote(bridge).open("agent")
        states: list[str] = []
        while "abandoned" not in states:
            states.append((await bridge.traces.run_view(run.id)).state)
        assert set(states) <= {"running", "abandoned"}


async def test_no_owner_has_more_runs_open_than_the_limit(settings, host):
    async with host(use=settings.with_(limits=Limits(runs_per_owner=2))) as bridge:
        runs = remote(bridge)
        first = await runs.open("agent", owner="laptop")
        await runs.open("agent", owner="laptop")
        with pytest.raises(RunLimitReached):
            await runs.open("agent", owner="laptop")
        await runs.open("agent", owner="phone")
        await runs.finish(first.id, owner="laptop")
        await runs.open("agent", owner="laptop")


async def test_an_open_run_goes_on_after_a_restart(settings):
    async with Bridge(settings) as bridge:
        bridge.tokens.create("laptop", ["call"])
        run = await remote(bridge).open("agent", owner="laptop")
        ended = await remote(bridge).open("agent", owner="laptop")
        await remote(bridge).finish(ended.id, owner="laptop")
    async with Bridge(settings) as bridge:
        runs = remote(bridge)
        assert (await bridge.traces.run_view(run.id)).state == "running"
        runs.owned(run.id, "laptop")
        with pytest.raises(RunEnded):
            runs.owned(ended.id, "laptop")
        assert (await runs.finish(run.id, owner="laptop")).state == "finished"


async def test_an_open_run_whose_owner_has_no_token_any_more_has_crashed_at_the_next_start(settings):
    async with Bridge(settings) as bridge:
        bridge.tokens.create("laptop", ["call"])
        run = await remote(bridge).open("agent", owner="laptop")
        local = await remote(bridge).open("agent", owner="mcp-client")  # over loopback, without a token
        bridge.tokens.revoke("laptop")
    async with Bridge(settings) as bridge:
        assert (await bridge.traces.run_view(run.id)).state == "crashed"
        assert (await bridge.traces.run_view(local.id)).state == "running"


async def test_runs_are_listed_page_by_page(host):
    async with host() as bridge:
        runs = remote(bridge)
        ids = [(await runs.open(f"agent {number}")).id for number in range(5)]
        newest = await bridge.traces.runs(limit=2)
        assert [run.id for run in newest] == ids[:2:-1]
        older = await bridge.traces.runs(limit=10, before=newest[-1].id)
        assert [run.id for run in older] == ids[2::-1]
        assert await bridge.traces.runs(before="nothing") == []


@pytest.mark.parametrize("name", ["0123456789abcdef", "", "%", "_" * 16, "x' OR 1 --"])
async def test_a_step_that_is_not_kept_is_told_so(host, name):
    async with host() as bridge:
        with pytest.raises(TraceNotFound):
            await bridge.traces.trace(name)


_IDS_OF_TWO_WORKERS = """
import os
from bascule.core.traces.recorder import Traces
print(Traces.next_id(None), flush=True)
if worker := os.fork():
    os.waitpid(worker, 0)
print(Traces.next_id(None), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED HERE: for want of fork")
def test_forks_of_one_process_give_different_numbers() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _IDS_OF_TWO_WORKERS], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert len(set(run.stdout.split())) == 3
