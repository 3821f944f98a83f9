"""The conformance kit catches what is wrong with converters, permission checks and exposure policies, and names it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from bascule.builtin_plugins.mcp_converter import McpConverter
from bascule.hookspecs import Allow, Caller, Deny, Exposure, ToolDefinition, ToolResult
from bascule.hookspecs.kit import ConverterSuite, ExposurePolicySuite, PermissionCheckSuite, faults
from bascule.hookspecs.kit.suite import run

pytestmark = [pytest.mark.slow, pytest.mark.req("D3", "D5")]


class Base(McpConverter):
    dialect = "mcp"


class LosesFailure(Base):
    def write_result(self, result: ToolResult) -> Any:
        return super().write_result(ToolResult(result.output, result.content, False, result.origin))


class LosesText(Base):
    def write_result(self, result: ToolResult) -> Any:
        return {**super().write_result(result), "content": []}


class LosesTheOrigin(Base):
    def read_result(self, foreign: Any) -> ToolResult:
        read = super().read_result(foreign)
        return ToolResult(read.output, read.content, read.failed)


class AlikeNames(Base):
    def write_tool(self, tool: ToolDefinition) -> Any:
        return {"name": "tool", "description": "", "inputSchema": {}}


class LosesSchemas(Base):
    def write_tool(self, tool: ToolDefinition) -> Any:
        return {**super().write_tool(tool), "inputSchema": {"type": "object"}}


class ChangesArguments(Base):
    def read_call(self, foreign: Any) -> Any:
        name, arguments = super().read_call(foreign)
        return name, {key: value for key, value in arguments.items() if value is not None}


class ChangesWhatItGets(Base):
    def write_tool(self, tool: ToolDefinition) -> Any:
        tool.parameters["title"] = "mine"  # type: ignore[index]
        return super().write_tool(tool)


class BreaksOnGarbage(Base):
    def read_call(self, foreign: Any) -> Any:
        return foreign["name"], foreign["arguments"]


class IsAsynchronous(Base):
    async def read_result(self, foreign: Any) -> Any:  # type: ignore[override]
        return super().read_result(foreign)


class NoJson(Base):
    def write_result(self, result: ToolResult) -> Any:
        return {"result": result}


TOOL = "a_tool_that_was_written_reads_as_what_it_was"
NAME = "a_tool_is_written_as_json_under_a_name_of_its_own"
RESULT = "a_result_that_was_written_reads_as_what_it_was"
FAILED = "a_result_that_failed_does_not_look_as_one_that_did_not"


@pytest.mark.parametrize(
    ("kind", "check", "told"),
    [
        (LosesFailure, RESULT, "whether the tool failed is lost"),
        (LosesFailure, FAILED, "one that did not alike"),
        (LosesText, RESULT, "text is lost"),
        (LosesText, "a_result_is_written_as_json", "loses text"),
        (LosesTheOrigin, RESULT, "does not keep what came"),
        (AlikeNames, NAME, "neither the name nor the alias"),
        (AlikeNames, TOOL, "is read as tool"),
        (LosesSchemas, TOOL, "parameters is lost"),
        (ChangesArguments, "a_call_reads_as_what_was_called", "alters the arguments"),
        (ChangesWhatItGets, NAME, "changes what it is given"),
        (BreaksOnGarbage, "garbage_is_refused_in_words", "raises KeyError"),
        (IsAsynchronous, "what_came_in_this_dialect_goes_out_as_it_came", "is a coroutine"),
        (NoJson, FAILED, "no JSON"),
    ],
)
def test_a_wrong_converter_is_caught(kind: type, check: str, told: str) -> None:
    class Suite(ConverterSuite):
        converter = kind()

        def write_call(self, name: str, arguments: Any) -> Any:
            return {"name": name, "arguments": arguments}

    with pytest.raises(AssertionError, match=told):
        run(Suite(), getattr(Suite, f"test_{check}").scenario)


# --- permission checks ------------------------------------------------------------------------------------


def case(name: str = "a.b") -> Any:
    from bascule.hookspecs import CallFacts, ToolCall

    tool = ToolDefinition(name, "", {"type": "object"}, plugin_id="a", remote_name="b")
    return ToolCall(name, {}, Caller("mcp", "u", "s", "sse")), tool, CallFacts(frozenset(), "production", Exposure())


def checking(answer: Any) -> Any:
    class Check:
        name = "check"

        async def __call__(self, call: Any, tool: Any, facts: Any) -> Any:
            return await answer(call) if asyncio.iscoroutinefunction(answer) else answer(call)

    return Check()


async def never(call: Any) -> None:
    await asyncio.Event().wait()


async def deaf(call: Any) -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def fails(call: Any) -> None:
    raise LookupError("no list")


class Synchronous:
    name = "check"

    def __call__(self, call: Any, tool: Any, facts: Any) -> Any:
        return Allow()


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        (checking(lambda call: True), "answers with a bool"),
        (checking(lambda call: Deny("")), "denies without a reason"),
        (checking(never), "does not answer"),
        (checking(deaf), "ignores cancellation"),
        (checking(fails), "raises LookupError"),
        (checking(lambda call: call.arguments.update(x=1)), "changes the call"),
        (checking(lambda call: time.sleep(0.001)), "blocks the event loop"),
        (checking(lambda call: Allow()), "does not deny case 1"),
        (Synchronous(), "make it async"),
    ],
)
def test_a_wrong_permission_check_is_caught(subject: Any, told: str) -> None:
    class Suite(PermissionCheckSuite):
        permission_check = subject
        denies = (case(),)
        seconds = 0.5 if told in ("does not answer", "ignores cancellation") else 20.0  # they never will
        examples = 3

    found = faults(Suite)
    assert any(told in fault for fault in found.values()), found


def test_a_check_that_fails_open_is_caught() -> None:
    class Suite(PermissionCheckSuite):
        permission_check = checking(lambda call: Deny("no"))
        broken = checking(lambda call: Allow("there is no list"))

    (found,) = faults(Suite).values()
    assert "fails open" in found


# --- exposure policies ------------------------------------------------------------------------------------


def policy(answer: Any) -> Any:
    class Policy:
        name = "policy"
        count = 0

        def __call__(self, tool: Any, caller: Any, exposure: Any) -> Any:
            self.count += 1
            return answer(self, tool)

    return Policy()


class Waits:
    name = "policy"

    async def __call__(self, tool: Any, caller: Any, exposure: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("subject", "told"),
    [
        (policy(lambda self, tool: 1), "only a plain True"),
        (policy(lambda self, tool: None), "only a plain True"),
        (policy(lambda self, tool: self.count % 2 == 0), "not pure"),
        (policy(lambda self, tool: bool(Path(__file__).read_text(encoding="utf-8"))), "does I/O: open"),
        (policy(lambda self, tool: tool.groups.pop()), "raises AttributeError"),
        (policy(lambda self, tool: True), "shows case 1 of hides"),
        (Waits(), "is a coroutine"),
    ],
)
def test_a_wrong_policy_is_caught(subject: Any, told: str) -> None:
    class Suite(ExposurePolicySuite):
        policy = subject
        hides = ((case()[1], Caller("mcp", "u", "s", "sse"), Exposure()),)

    found = faults(Suite)
    assert any(told in fault for fault in found.values()), found


# --- as its users run it ----------------------------------------------------------------------------------

THREE_LINES = """
from bascule.hookspecs.kit import ClientTransportSuite, LinesOverTcp
from kit_mutants import MUTANTS, tcp
pytest_plugins = ["bascule.hookspecs.kit"]

class TestRight(ClientTransportSuite):
    transport, peer = tcp.TcpTransport(), LinesOverTcp

class TestWrong(ClientTransportSuite):
    transport, peer, seconds = MUTANTS["Truncates"][0](), LinesOverTcp, 3.0
"""


@pytest.mark.timeout(300)
def test_three_lines_run_the_suite_and_a_fault_is_one_line(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    (tmp_path / "test_mine.py").write_text(THREE_LINES, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = run.stdout.splitlines()
    assert run.returncode == 1, run.stdout
    assert not [line for line in lines if line.startswith("FAILED") and "TestRight" in line], run.stdout
    assert any("client transport 'tcp': it truncates a message: of " in line for line in lines), run.stdout
    assert "Traceback" not in run.stdout
    assert "the kit's suites ran: client transport 'tcp'" in run.stdout


# --- for those who ask for it, and no one else --------------------------------------------------------------


def test_pytest_never_loads_the_kit_by_itself() -> None:
    import importlib.metadata

    points = importlib.metadata.distribution("bascule").entry_points
    assert not points.select(group="pytest11")


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
def test_without_what_it_needs_the_kit_says_how_to_get_it(missing: str) -> None:
    import subprocess
    import sys

    code = f"import sys; sys.modules[{missing!r}] = None\nimport bascule.hookspecs\nimport bascule.hookspecs.kit"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert f"the conformance kit needs {missing}: pip install 'bascule[kit]'" in run.stderr
