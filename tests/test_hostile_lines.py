"""Every hostile line of the corpus, written by a real server to a real bridge: what must happen, happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bascule.core.bridge import Bridge
from bascule.hookspecs import BasculeError, HostStatus, PluginHostUnavailable, PluginState, Run

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
EXPECTED: dict[str, dict[str, object]] = json.loads((FIXTURES / "hostile-lines" / "expected.json").read_text())
LISTINGS = {"101", "102", "104"}
KILLED_OR_TAKEN = {"052-dup-key.bin", "053-dup-id.bin", "055-dup-key-nested.bin"}
"""Of two equal keys we take the last and encode anew what goes on: nobody downstream reads another one."""


def of(verdict: str) -> list[str]:
    return [
        name
        for name, case in EXPECTED.items()
        if case["verdict"] == verdict and name[:3] not in LISTINGS and name not in KILLED_OR_TAKEN
    ]


async def write(run: Run, case: str, *, answer: bool = False) -> str | None:
    """Have the server write the case in the place of its answer; the code of the error that came of it."""
    try:
        if EXPECTED[case].get("generated"):
            await run.call("fx-generated-lines.generate", {"case": case, "answer": answer})
        else:
            await run.call("fx-lines.replay", {"file": case, "answer": answer})
    except BasculeError as error:
        return error.code
    return None


def plugin_of(case: str) -> str:
    return "generated-lines" if EXPECTED[case].get("generated") else "lines"


def stands(bridge: Bridge, case: str) -> bool:
    return bridge.plugins.get(f"fx-{plugin_of(case)}").state is PluginState.READY


@pytest.mark.req("N4.2.2", "N6.5", "N9")
@pytest.mark.parametrize("case", of("kill"))
async def test_a_fault_takes_the_host_down_and_fails_what_waits(host, variant, until, case: str):
    async with host(variant(plugin_of(case))) as bridge, bridge.run("test") as run:
        code = await write(run, case)
        await until(lambda: not stands(bridge, case), 30)
        view = bridge.plugins.get(f"fx-{plugin_of(case)}")
        assert (view.state, view.host.status, view.tools) == (PluginState.ERROR, HostStatus.UNHEALTHY, ())
        if case != "086-answer-twice.bin":  # there the first answer is delivered
            assert code == PluginHostUnavailable.code


@pytest.mark.parametrize("case", of("drop"))
async def test_what_means_nothing_is_dropped_and_the_answer_behind_it_arrives(host, variant, case: str):
    async with host(variant(plugin_of(case))) as bridge, bridge.run("test") as run:
        assert await write(run, case, answer=True) is None
        assert stands(bridge, case)


@pytest.mark.req("N6.6")
@pytest.mark.parametrize("case", of("error_result"))
async def test_a_bad_answer_fails_its_call_and_nothing_else(host, variant, case: str):
    async with host(variant(plugin_of(case))) as bridge, bridge.run("test") as run:
        assert await write(run, case) in {"MCP_PROTOCOL_ERROR", "MCP_TOOL_RESULT_TOO_LARGE", "MCP_TOOL_CALL_FAILED"}
        await run.call(f"fx-{plugin_of(case)}.ping")
        assert stands(bridge, case)


@pytest.mark.parametrize("case", of("accept"))
async def test_a_legal_line_is_taken_whatever_it_looks_like(host, variant, case: str):
    """Some cases are answers with a result that is no tool's: the line is taken, the call alone fails."""
    async with host(variant(plugin_of(case))) as bridge, bridge.run("test") as run:
        assert await write(run, case) in {None, "MCP_PROTOCOL_ERROR"}
        await run.call(f"fx-{plugin_of(case)}.ping")
        assert stands(bridge, case)


@pytest.mark.parametrize("case", sorted(KILLED_OR_TAKEN))
async def test_of_two_equal_keys_the_last_is_taken_whole_or_the_line_is_a_fault(host, variant, case: str):
    async with host(variant(plugin_of(case))) as bridge, bridge.run("test") as run:
        code = await write(run, case)
        if stands(bridge, case):
            assert code == "MCP_PROTOCOL_ERROR"  # the last result is a number, or none of a tool's
        else:
            assert code == PluginHostUnavailable.code


@pytest.mark.req("N4.1.8", "N9")
@pytest.mark.parametrize("number", sorted(LISTINGS))
async def test_a_bad_listing_keeps_the_plugin_out(host, variant, number: str):
    async with host(variant(f"replay-at-list-{number}")) as bridge:
        (error,) = bridge.failures.values()
        assert error.code in {"MCP_TOOL_INVALID", "MCP_PROTOCOL_ERROR"}


async def test_numbers_keep_every_digit(host, variant):
    """The corpus's 30 digits are no tool result; the same number inside one must survive exactly."""
    digits = 123456789012345678901234567890
    async with host(FIXTURES / "mcp-echo") as bridge, bridge.run("test") as run:
        result = await run.call("mcp-fixture.echo", {"message": "m", "x-big": digits})
        assert result.output["arguments"]["x-big"] == digits
