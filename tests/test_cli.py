"""The command line as its users have it: a process, its streams, its exit code and what it leaves behind."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from scripted import scripted, tool

from bascule.core.cli import exits
from bascule.core.traces import reader

COMMANDS = ("demo", "check", "tools", "call", "serve", "traces", "hooks")

ECHO = ("call", "mcp-fixture.echo", '{"message": "hello"}')
SLEEP = ("call", "mcp-fixture.sleep", '{"seconds": 60}')
QUIET = (
    "--no-hook-plugin",
    "sse_server",
    "--no-hook-plugin",
    "quart_api",
)  # no port is taken that something else may hold

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
def dev(echo: Path) -> tuple[str | Path, ...]:
    """The fixture, hosted for a trial."""
    return ("--dev", "--plugin", echo)


def gone(pids: list[int]) -> bool:
    """Whether none of the processes runs any more."""

    def ended(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return all(map(ended, pids))


def children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


# --- each command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_each_command_explains_itself(bascule, name, flag):
    shown = bascule(name, flag)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: bascule {name} ")
    for option in ("--config FILE", "--state DIR", "--json"):
        assert option in shown.out


@pytest.mark.fresh
def test_bascule_alone_and_with_help_lists_the_commands(bascule):
    shown = bascule("--help")
    assert (shown.code, shown.err) == (0, "")
    assert all(f"\n  {name} " in shown.out for name in COMMANDS)
    assert "Start with: bascule demo" in shown.out
    alone = bascule()
    assert alone.code == 2
    assert "Commands:" in alone.out + alone.err


@pytest.mark.fresh
def test_the_version_is_the_installed_one(bascule):
    from importlib.metadata import version

    assert bascule("--version").out == f"bascule {version('bascule')}\n"


@pytest.mark.fresh
def test_demo_shows_the_whole_chain(bascule):
    shown = bascule("demo")
    assert shown.code == 0
    places = [shown.out.index(words) for words in ("1. Host", "2. Its tools", "3. Call", "4. What the trace says")]
    assert places == sorted(places)
    assert "allow: notes.read is granted (grants)" in shown.out
    _told_how_it_was_kept(shown.err)


def test_demo_for_programs_is_one_document(bascule):
    shown = bascule("demo", "--json")
    assert set(shown.json) == {"tools", "result", "trace"}
    assert shown.json["result"]["output"]["message"].startswith("Hello")
    _told_how_it_was_kept(shown.err)


def _told_how_it_was_kept(err: str) -> None:
    """In a sandbox, or without one and then as with --dev."""
    first, *more = err.splitlines()
    if "isolation" in first:
        assert first.startswith("demo: mcp-fixture is Bascule's own: approved for you, isolation ")
        assert more == []
    else:
        assert first.startswith("demo: no sandbox here: ")
        assert [line[:7] for line in more] == ["--dev: "]


def test_demo_without_a_sandbox_says_so_and_runs_as_a_trial(bascule):
    bascule.settings("launcher: local\n")
    shown = bascule("demo")
    assert shown.code == 0
    assert shown.err.startswith("demo: no sandbox here: the launcher 'local' isolates nothing\n--dev: ")


@pytest.mark.fresh
@pytest.mark.req("N3.5")
def test_check_shows_the_complete_command_and_starts_nothing(bascule, echo, plugin_copy):
    def edit(manifest: dict[str, Any]) -> None:
        manifest["backend"].update(args=["-c", "open('started', 'w')"], pass_env=["TOKEN"], env={"A": "b"})

    folder = plugin_copy(echo, edit)
    shown = bascule("check", folder, "--json")
    assert shown.code == 0
    assert set(shown.json) == {
        *("id", "name", "version", "manifest", "digest", "transport", "permissions", "tools"),
        *("command", "launcher", "isolation", "sandbox", "launchers", "warnings"),
    }
    assert shown.json["command"]["argv"] == [shown.json["command"]["executable"], "-c", "open('started', 'w')"]
    assert shown.json["command"]["declared_environment"] == {"A": "b"}
    assert shown.json["command"]["passed_from_host"] == ["TOKEN"]
    words = bascule("check", folder, "--config", bascule.settings("launcher: local\n")).out
    assert "argv[2]   \"open('started', 'w')\"" in words
    assert "passes    TOKEN from your environment" in words
    assert "would run with all your rights" in words
    assert not (folder / "started").exists()
    assert not bascule.state.exists()


@pytest.mark.fresh
def test_tools_lists_what_stands_in_the_registry(bascule, dev):
    shown = bascule("tools", *dev)
    assert shown.code == 0
    assert "mcp-fixture.echo" in shown.out
    assert "notes.read" in shown.out
    listed = bascule("tools", *dev, "--json").json
    assert listed["failures"] == {}
    assert [tool["name"] for tool in listed["tools"]] == sorted(tool["name"] for tool in listed["tools"])
    for each in listed["tools"]:
        assert {"name", "description", "parameters", "permission", "source", "plugin_id", "alias"} <= set(each)


def test_tools_of_one_group_alone(bascule, echo, plugin_copy):
    def edit(manifest: dict[str, Any]) -> None:
        tools = manifest["contributes"]["tools"]
        tools[tools.index("mcp-fixture.fail")] = {"id": "mcp-fixture.fail", "groups": ["sad"]}

    folder = plugin_copy(echo, edit)
    listed = bascule("tools", "--dev", "--plugin", folder, "--group", "sad", "--json").json
    assert [tool["name"] for tool in listed["tools"]] == ["mcp-fixture.fail"]
    assert bascule("tools", "--dev", "--plugin", folder, "--group", "none").out == "no tools\n"


def test_tools_tells_which_plugin_is_not_up_and_lists_the_others(bascule, dev, variant):
    both = (*dev, "--plugin", variant("no-tools-capability"))
    shown = bascule("tools", *both)
    assert shown.code == exits.PLUGIN
    assert "mcp-fixture.echo" in shown.out
    assert "MCP_CAPABILITY_MISSING" in shown.err
    listed = bascule("tools", *both, "--json")
    assert listed.code == exits.PLUGIN
    assert listed.json["failures"]["fx-no-tools-capability"]["code"] == "MCP_CAPABILITY_MISSING"
    assert len(listed.json["tools"]) == 6


@pytest.mark.fresh
def test_call_prints_the_result_and_nothing_else_on_stdout(bascule, dev):
    shown = bascule(*ECHO, *dev)
    assert shown.code == 0
    assert json.loads(shown.out)["message"] == "hello"
    assert shown.err.startswith("--dev: ")
    for_programs = bascule(*ECHO, *dev, "--json")
    assert set(for_programs.json) == {"output", "content", "failed", "trace", "trace_id", "failures"}
    assert for_programs.json["failed"] is False
    assert for_programs.err == shown.err
    assert "hello" in bascule("call", "mcp-fixture__echo", '{"message": "hello"}', *dev).out


@pytest.mark.fresh
def test_call_takes_its_arguments_from_stdin_or_goes_without(bascule, dev):
    assert "řeka" in bascule("call", "mcp-fixture.echo", "-", *dev, input='{"message": "řeka"}').out
    assert bascule("call", "mcp-fixture.environment", *dev).code == 0


def test_a_text_result_is_printed_as_text(bascule, dev):
    assert bascule("call", "mcp-fixture.large", '{"bytes": 20}', *dev).out.strip() == "x" * 20


def test_structured_output_is_printed_whatever_its_kind(bascule, tmp_path):
    fx = scripted(tmp_path, "def call(*_): return {'content': [], 'structuredContent': [1, {'a': 2}]}", [tool("do")])
    shown = bascule("call", "fx.do", "--dev", "--plugin", str(fx.path))
    assert (shown.code, json.loads(shown.out)) == (0, [1, {"a": 2}])


@pytest.mark.fresh
def test_traces_tell_what_was_called(bascule, dev):
    assert bascule("traces").out == "nothing was called yet\n"
    assert bascule("traces", "--json").json == {"runs": []}
    trace = bascule(*ECHO, *dev, "--json").json["trace"]
    (run,) = bascule("traces", "--json").json["runs"]
    assert (run["id"], run["agent"], run["purpose"]) == (trace, "command line", "call mcp-fixture.echo")
    assert (run["state"], run["steps"]) == ("finished", 1)
    shown = bascule("traces", trace, "--json").json
    assert shown["run"] == run
    assert shown["steps"][0]["outcome"] == "ok"
    words = bascule("traces", trace).out
    assert "└─ mcp-fixture.echo  ok" in words
    assert "allow: notes.read is granted" in words
    assert trace in bascule("traces", "--limit", "1").out


@pytest.mark.req("N4.2.1")
def test_serve_says_what_happens_a_document_a_line(bascule, dev):
    serving = bascule.start("serve", *dev, *QUIET, "--json")
    lines = [json.loads(serving.line())]
    while lines[-1]["event"] != "serving":
        lines.append(json.loads(serving.line()))
    assert [line["plugin_state"] for line in lines if line["event"] == "HostChanged"] == ["enabling", "ready"]
    assert set(lines[-1]) == {"event", "transports", "urls", "plugins", "failures"}
    (plugin,) = lines[-1]["plugins"]
    assert plugin["state"] == "ready"
    assert len(plugin["tools"]) == 6
    ended = serving.ended(signal.SIGTERM)
    assert ended.code == 0
    assert json.loads(ended.out.splitlines()[-1]) == {"event": "stopped"}
    assert ended.err.startswith("--dev: ")


def test_serve_in_words(bascule, dev):
    serving = bascule.start("serve", *dev, *QUIET)
    assert serving.line() == "mcp-fixture is enabling\n"
    assert serving.line() == "mcp-fixture is ready\n"
    assert serving.line().startswith("serving 6 tools of 1 plugin; ways in: none")
    assert serving.line() == "Ctrl-C stops\n"
    ended = serving.ended(signal.SIGINT)
    assert (ended.code, ended.out) == (0, "stopped\n")


# --- what goes wrong --------------------------------------------------------------------------------------


def _edited(**backend: Any) -> Edit:
    return lambda manifest: manifest["backend"].update(backend)


def _confirmed(manifest: dict[str, Any]) -> None:
    tools = manifest["contributes"]["tools"]
    tools[tools.index("mcp-fixture.echo")] = {"id": "mcp-fixture.echo", "confirm": True}


FAULTS = {
    "an unknown tool": (("call", "mcp-fixture.nothing"), None, exits.NOT_FOUND, "TOOL_NOT_FOUND"),
    "arguments that do not fit": (("call", "mcp-fixture.echo"), None, exits.USAGE, "TOOL_ARGUMENTS_INVALID"),
    "a tool that fails": (("call", "mcp-fixture.fail"), None, exits.FAILED, "MCP_TOOL_CALL_FAILED"),
    "a result too large": (
        ("call", "mcp-fixture.large", '{"bytes": 300000}'), None, exits.FAILED, "MCP_TOOL_RESULT_TOO_LARGE",
    ),
    "a tool that takes too long": (SLEEP, _edited(tool_timeout_seconds=0.3), exits.TIMED_OUT, "TOOL_CALL_TIMEOUT"),
    "a server that leaves": (("call", "mcp-fixture.exit"), None, exits.PLUGIN, "PLUGIN_HOST_UNAVAILABLE"),
    "a server that is no server": (ECHO, _edited(args=["-c", "pass"]), exits.PLUGIN, "PLUGIN_HOST_START_FAILED"),
    "a program that is not there": (ECHO, _edited(command="no-such"), exits.PLUGIN, "EXTENSION_PACKAGE_NOT_FOUND"),
    "a manifest that is wrong": (ECHO, _edited(comand="x"), exits.PLUGIN, "EXTENSION_MANIFEST_INVALID"),
    "a confirmation that no one can give": (ECHO, _confirmed, exits.REFUSED, "TOOL_CONFIRMATION_UNAVAILABLE"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_goes_wrong_says_so_by_code_words_and_one_document(bascule, echo, plugin_copy, fault):
    arguments, edit, code, name = FAULTS[fault]
    folder = plugin_copy(echo, edit)
    told = bascule(*arguments, "--dev", "--plugin", folder)
    assert (told.code, told.out) == (code, "")
    assert f"{name}:" in told.err
    document = bascule(*arguments, "--dev", "--plugin", folder, "--json")
    assert document.code == code
    assert document.json["error"]["code"] == name
    assert document.json["error"]["message"]
    assert document.json["trace"]


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (("call", "x", "{"), exits.USAGE, "TOOL_ARGUMENTS_INVALID"),
        (("call", "x", "[]"), exits.USAGE, "TOOL_ARGUMENTS_INVALID"),
        (("call", "x", '{"a": NaN}'), exits.USAGE, "TOOL_ARGUMENTS_INVALID"),
        (("call", "x", "[" * 100_000), exits.USAGE, "TOOL_ARGUMENTS_INVALID"),
        (("call", "x"), exits.UNREACHABLE, "BRIDGE_UNREACHABLE"),
        (("call", "x", "--dev"), exits.USAGE, "USAGE_ERROR"),
        (("call",), exits.USAGE, "USAGE_ERROR"),
        (("tools",), exits.UNREACHABLE, "BRIDGE_UNREACHABLE"),
        (("tools", "--colour"), exits.USAGE, "USAGE_ERROR"),
        (("traces", "--limit", "0"), exits.USAGE, "USAGE_ERROR"),
        (("nothing",), exits.USAGE, "USAGE_ERROR"),
        (("traces", "nothing"), exits.NOT_FOUND, "TRACE_NOT_FOUND"),
        (("check", "no/such/folder"), exits.PLUGIN, "EXTENSION_PACKAGE_NOT_FOUND"),
        (("check", "home"), exits.PLUGIN, "EXTENSION_MANIFEST_NOT_FOUND"),
        (("tools", "--config", "nowhere.yaml", "--plugin", "x"), exits.USAGE, "SETTINGS_INVALID"),
        (("serve", "--state", "/proc/nothing"), exits.STATE, "STATE_UNAVAILABLE"),
        (("traces", "--state", "/proc/nothing"), exits.STATE, "STATE_UNAVAILABLE"),
    ],
)
def test_a_command_that_goes_wrong_says_so_by_code_words_and_one_document(bascule, arguments, code, name):
    told = bascule(*arguments)
    assert (told.code, told.out) == (code, "")
    assert told.err.startswith(("Usage:", f"{name}:"))
    document = bascule(*arguments, "--json")
    assert document.code == code
    assert document.json["error"]["code"] == name
    assert document.err == ""


def test_stdin_that_is_no_text_is_an_error_in_words(bascule):
    shown = subprocess.run(
        [*bascule.program, "call", "x", "-"], env=bascule.env, input=b'{"a": "\xff"}', capture_output=True, check=False
    )
    assert shown.returncode == exits.USAGE
    assert shown.stderr.startswith(b"TOOL_ARGUMENTS_INVALID: the arguments are no JSON: 'utf-8'")


@pytest.mark.fresh
@pytest.mark.req("N3.1")
def test_an_invalid_manifest_is_told_with_file_and_line(bascule, tmp_path):
    path = tmp_path / "plugin.yaml"
    path.write_text(
        "id: some-plugin\nname: Some\nversion: 1.0.0\npermissions: [notes.raed]\ncontributes: {tools: []}\n"
        "backend:\n  type: mcp\n  transport: carrier-pigeon\n"
    )
    for arguments in (("check", tmp_path), ("tools", "--dev", "--plugin", tmp_path)):
        shown = bascule(*arguments)
        assert shown.code == exits.PLUGIN
        assert f"{path}:4" in shown.err
        assert "notes.read" in shown.err
        assert "carrier-pigeon" in shown.err
    assert bascule("check", tmp_path, "--json").json["error"]["problems"][0]["line"] == 4


@pytest.mark.req("N6.9")
def test_in_production_nothing_runs_unsandboxed_and_nothing_is_started(bascule, echo, plugin_copy):
    bascule.settings("launcher: local\n")
    folder = plugin_copy(echo, _edited(args=["-c", "open('started', 'w')"]))
    refused = bascule(*ECHO, "--plugin", folder)
    assert (refused.code, refused.out) == (exits.REFUSED, "")
    assert refused.err.startswith("MCP_TRUST_APPROVAL_REQUIRED: ")
    assert "--dev" in refused.err
    assert bascule(*ECHO, "--plugin", folder, "--json").json["error"]["code"] == "MCP_TRUST_APPROVAL_REQUIRED"
    listed = bascule("tools", "--plugin", folder)
    assert (listed.code, listed.out) == (exits.REFUSED, "no tools\n")
    serving = bascule.start("serve", "--plugin", folder, *QUIET, "--json")
    (failure,) = json.loads(serving.until("serving"))["failures"].values()
    assert failure["code"] == "MCP_TRUST_APPROVAL_REQUIRED"
    assert serving.ended(signal.SIGTERM).code == 0
    assert not (folder / "started").exists()


@pytest.mark.req("N6.4")
def test_a_server_that_ends_at_once_is_told_with_its_last_words(bascule, variant):
    shown = bascule("tools", "--dev", "--plugin", variant("exit-at-start"))
    assert shown.code == exits.PLUGIN
    assert "PLUGIN_HOST_START_FAILED" in shown.err
    assert "the server's last words on stderr:\n  │ Traceback (most recent call last):" in shown.err
    assert "ghp_" not in shown.err, "a secret in a server's stderr is masked, for the owner as well"


def test_a_state_directory_that_a_bridge_holds_is_shared_with_one_shot_commands_alone(bascule, dev):
    serving = bascule.start("serve", *QUIET, "--json")
    serving.until("serving")
    second = bascule("serve", *QUIET, "--json")
    assert (second.code, second.json["error"]["code"]) == (exits.STATE, "STATE_LOCKED")
    assert f"process {serving.process.pid}" in second.json["error"]["message"]
    told = bascule("serve", *QUIET)
    assert told.err.startswith("STATE_LOCKED: ")
    assert "--state" in told.err
    assert bascule(*ECHO, *dev).code == 0
    assert len(bascule("traces", "--json").json["runs"]) == 1
    assert bascule("hooks").code == 0
    assert serving.ended(signal.SIGTERM).code == 0
    third = bascule.start("serve", *QUIET, "--json")
    third.until("serving")
    assert third.ended(signal.SIGTERM).code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere: only a user can be kept out")
def test_a_state_directory_that_can_not_be_written_is_told_in_words(bascule, dev):
    bascule.state.mkdir(parents=True)
    bascule.state.chmod(0o500)
    try:
        for arguments in (("traces",), ("serve", *QUIET), (*ECHO, *dev)):
            shown = bascule(*arguments)
            assert shown.code == exits.STATE
            assert "STATE_UNAVAILABLE:" in shown.err
            assert "--state" in shown.err
        assert bascule("hooks").code == 0
        assert bascule("demo", "--state", bascule.folder / "elsewhere").code == 0
    finally:
        bascule.state.chmod(0o700)


# --- signals ----------------------------------------------------------------------------------------------


async def in_flight(state: Path) -> None:
    """Wait until a call is on its way to its server."""
    database = state / "bascule.db"
    async with asyncio.timeout(30):
        while not database.exists() or not reader.look(database, reader.steps, 1, None):
            await asyncio.sleep(0.02)


@pytest.mark.req("N6.8", "N4.2.1")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, exits.INTERRUPTED),
        (signal.SIGTERM, exits.TERMINATED),
        (signal.SIGHUP, exits.HUNG_UP),
    ],
)
async def test_a_signal_cancels_the_call_and_leaves_no_process(bascule, dev, until, number, code):
    calling = bascule.start(*SLEEP, *dev, "--json")
    await in_flight(bascule.state)
    pids = children(calling.process.pid)
    assert pids
    ended = await asyncio.to_thread(calling.ended, number)
    assert ended.code == code
    assert ended.json == {"error": {"code": "INTERRUPTED", "message": f"stopped by {number.name}"}}
    await until(lambda: gone(pids))
    (run,) = bascule("traces", "--json").json["runs"]
    assert run["state"] == "failed"
    (step,) = bascule("traces", run["id"], "--json").json["steps"]
    assert (step["outcome"], step["code"]) == ("error", "TOOL_CALL_CANCELLED")


async def test_a_call_that_is_interrupted_says_so_in_one_line(bascule, dev):
    calling = bascule.start(*SLEEP, *dev)
    await in_flight(bascule.state)
    ended = await asyncio.to_thread(calling.ended, signal.SIGINT)
    assert (ended.code, ended.out) == (exits.INTERRUPTED, "")
    assert ended.err.splitlines()[1:] == ["stopped by SIGINT"]


@pytest.mark.req("N4.2.1")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_call_whose_server_will_not_leave_ends_all_the_same(bascule, variant, until, number):
    folder = variant("ignore-eof-and-sigterm")
    bascule.settings("limits: {shutdown_grace_seconds: 0.2}\n")
    serving = bascule.start("serve", "--dev", "--plugin", folder, *QUIET, "--json")
    await asyncio.to_thread(serving.until, '"serving"')
    pids = children(serving.process.pid)
    assert pids
    serving.process.send_signal(number)
    ended = await asyncio.to_thread(serving.ended, number)  # whoever presses it twice changes nothing
    assert ended.code == 0
    await until(lambda: gone(pids))


@pytest.mark.req("N4.2.1")
@pytest.mark.parametrize("command", ["serve", "tools"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_while_a_plugin_still_starts_ends_it_and_leaves_no_process(
    bascule, variant, plugin_copy, until, command, number
):
    slow = variant("slow-start")

    def slower(manifest):  # so slow that whoever waits for it fails
        manifest["backend"] |= {
            "args": [str(slow.parent / "hostile.py"), "slow-start", "200"],
            "startup_timeout_seconds": 300,
        }

    starting = bascule.start(command, "--dev", "--plugin", plugin_copy(slow, slower), *QUIET)
    await until(lambda: bool(children(starting.process.pid)))
    pids = children(starting.process.pid)
    ended = await asyncio.to_thread(starting.ended, number)
    assert ended.code == (0 if command == "serve" else {2: exits.INTERRUPTED, 15: exits.TERMINATED}[number])
    await until(lambda: gone(pids))


async def test_a_signal_that_was_turned_off_stays_off(bascule, dev):
    bascule.settings("limits: {tool_seconds_max: 600}\n")
    program = ["nohup", *bascule.program]
    bascule.program = program
    calling = bascule.start(*SLEEP[:2], '{"seconds": 2}', *dev, "--json")
    await in_flight(bascule.state)
    ended = await asyncio.to_thread(calling.ended, signal.SIGHUP)
    assert ended.code == 0
    assert ended.json["failed"] is False


# --- streams ----------------------------------------------------------------------------------------------


@pytest.fixture
def unread() -> Iterator[int]:
    """The writing end of a pipe that no one reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.fresh
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("call", "--help"),
        ("demo",),
        ("demo", "--json"),
        ("check", "ECHO"),
        ("tools", "--dev", "--plugin", "ECHO"),
        (*ECHO, "--dev", "--plugin", "ECHO"),
        ("traces",),
        ("hooks",),
        ("hooks", "--json"),
        ("serve", *QUIET, "--dev", "--plugin", "ECHO"),
        ("serve", *QUIET, "--json"),
    ],
    ids=" ".join,
)
def test_a_reader_that_left_is_no_error(bascule, echo, unread, arguments):
    shown = bascule(*(echo if word == "ECHO" else word for word in arguments), stdout=unread)
    assert shown.code == 0
    assert all(line.startswith(("--dev: ", "demo: ")) for line in shown.err.splitlines())


def test_the_first_line_is_all_that_head_wants(bascule, dev):
    for arguments in (("tools", *dev, "--json"), ("--help",), ("hooks",)):
        words = [*bascule.program, *map(str, arguments)]
        line = ["sh", "-c", '"$@" | head -1', "sh", *words]
        piped = subprocess.run(line, env=bascule.env, cwd=bascule.folder, capture_output=True, text=True, check=False)
        assert len(piped.stdout.splitlines()) == 1
        assert "Traceback" not in piped.stderr


@pytest.mark.fresh
def test_an_error_whose_reader_left_keeps_its_exit_code(bascule, unread):
    assert bascule("check", "nowhere", stderr=unread).code == exits.PLUGIN
    assert bascule("check", "nowhere", "--json", stdout=unread).code == exits.PLUGIN


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_from_the_start_are_no_error_and_no_ones_file(bascule, dev, closed):
    words = [*bascule.program, *map(str, (*ECHO, *dev))]
    line = ["sh", "-c", f'"$@" {closed}', "sh", *words]
    shown = subprocess.run(line, env=bascule.env, cwd=bascule.folder, capture_output=True, text=True, check=False)
    assert shown.returncode == 0
    assert "Traceback" not in shown.stderr
    (run,) = bascule("traces", "--json").json["runs"]
    assert (run["state"], run["steps"]) == ("finished", 1)


@pytest.mark.req("N4.2.1")
async def test_a_reader_that_pauses_holds_serve_up_in_nothing(bascule, until):
    reading, writing = os.pipe()
    try:
        room = fcntl.fcntl(writing, 1032) if sys.platform == "linux" else 65_536  # F_GETPIPE_SZ
        missing = [f"--plugin=/{'x' * 200}/{number}" for number in range(room // 200)]  # each fails, and is told
        serving = bascule.start("serve", *QUIET, "--json", *missing, stdout=writing)
        await until(lambda: struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, b"\0" * 4))[0] > room // 2, 30)
        ended = await asyncio.to_thread(serving.ended, signal.SIGTERM)
        assert ended.code == 0
        assert ended.err == ""
    finally:
        os.close(reading)
        os.close(writing)


ASCII = {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "LANG": None}, ASCII, {**ASCII, "PYTHONIOENCODING": "latin-1"}])
def test_a_locale_without_unicode_shows_what_it_can(bascule, dev, env):
    message = "řeka 日本 🎉 \u2028"
    arguments = ("call", "mcp-fixture.echo", json.dumps({"message": message}), *dev)
    document = bascule(*arguments, "--json", env=env)
    assert document.json["output"]["message"] == message
    assert json.loads(bascule(*arguments, env=env).out)["message"] == message
    for words in (("demo",), ("traces",), ("hooks",), ("traces", document.json["trace"])):
        assert bascule(*words, env=env).code == 0


def test_text_that_is_no_text_comes_through(bascule, dev):
    arguments = ("call", "mcp-fixture.echo", '{"message": "\\ud800 lone"}', *dev)
    for more in ((), ("--json",)):
        shown = bascule(*arguments, *more)
        assert shown.code in (0, exits.USAGE)
        assert "INTERNAL_ERROR" not in shown.out + shown.err


def test_without_a_home_the_state_goes_where_it_is_told_to(bascule, dev):
    shown = bascule("traces", env={"HOME": ""})
    assert shown.code == exits.STATE
    assert shown.err.startswith("STATE_UNAVAILABLE: this user has no home directory")
    assert "--state" in shown.err
    assert bascule("traces", "--state", "here", env={"HOME": ""}).code == 0
    assert (bascule.folder / "here" / "bascule.db").exists()
    assert bascule("traces", env={"HOME": "", "XDG_STATE_HOME": str(bascule.folder / "xdg")}).code == 0
    assert bascule("traces", "--state", "here", env={"HOME": None}).code == 0


# --- what a terminal sees ---------------------------------------------------------------------------------

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2066\x7f\r\x08"
HARMFUL = "\x1b\x07\x9b\u202e\u2066\x7f\x08"


def test_what_a_stranger_wrote_steers_no_terminal(bascule, echo):
    dev = ("--dev", "--plugin", echo)
    message = json.dumps({"message": f"text {EVIL}"})
    for arguments in (
        ("check", echo),
        ("tools", *dev),
        ("call", "mcp-fixture.echo", message, *dev),
        ("call", "mcp-fixture.fail", message, *dev),
        ("traces",),
    ):
        for more in ((), ("--json",)):
            shown = bascule(*arguments, *more)
            assert not set(HARMFUL) & set(shown.out + shown.err), arguments
    for run in bascule("traces", "--json").json["runs"]:
        assert not set(HARMFUL) & set(bascule("traces", run["id"]).out)
    answer = bascule("call", "mcp-fixture.echo", message, *dev, "--json")
    assert answer.json["output"]["message"] == f"text {EVIL}"  # escaped, not lost


def test_a_definition_that_steers_terminals_is_refused_in_words_that_do_not(bascule, echo, plugin_copy):
    folder = plugin_copy(echo)
    server = folder / "server.py"
    words = "Returns the message, and all arguments exactly as they arrived."
    text = server.read_text(encoding="utf-8")
    assert words in text
    server.write_text(text.replace(words, words + ascii(EVIL)[1:-1]), encoding="utf-8")
    for more in ((), ("--json",)):
        shown = bascule("tools", "--dev", "--plugin", folder, *more)
        assert shown.code != 0
        assert "MCP_TOOL_INVALID" in shown.out + shown.err
        assert not set(HARMFUL) & set(shown.out + shown.err)


class Terminal:
    """A terminal with a program in it."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.seen = ""

    def until(self, words: str, seconds: float = 30.0) -> str:
        """Read until ``words`` are on the screen."""
        end = time.monotonic() + seconds
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            self._read(0.2)
        return self.seen

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self.master, 65_536)
        except OSError as error:
            if error.errno == errno.EIO:  # no one holds the other end any more
                return False
            raise
        self.seen += chunk.decode()
        return bool(chunk)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def all(self) -> str:
        """Everything, once the program has ended."""
        with suppress(OSError):
            os.close(self.slave)
        while self._read(0.2):
            pass
        return self.seen

    def close(self) -> None:
        for number in (self.master, self.slave):
            with suppress(OSError):
                os.close(number)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


def on(terminal: Terminal) -> dict[str, Any]:
    return {"stdin": terminal.slave, "stdout": terminal.slave, "stderr": terminal.slave, "env": {"TERM": "xterm"}}


@pytest.mark.parametrize("arguments", [("check", "ECHO"), ("hooks",), ("check", "nowhere"), ("demo",)], ids=" ".join)
def test_colours_are_for_terminals_whose_owner_wants_them(bascule, echo, terminal, arguments):
    words = [echo if word == "ECHO" else word for word in arguments]
    options = on(terminal)
    bascule.start(*words, **options).process.wait(30)
    assert "\x1b[" in terminal.all()
    plain = Terminal()
    try:
        bascule.start(*words, **{**on(plain), "env": {"TERM": "xterm", "NO_COLOR": "1"}}).process.wait(30)
        seen = plain.all()
        assert seen
        assert not [part for part in seen.split("\x1b[")[1:] if part.split("m")[0] not in ("0", "1", "")]
    finally:
        plain.close()
    assert "\x1b" not in bascule(*words).out


@pytest.fixture
def asking(echo: Path, plugin_copy: Callable[..., Path]) -> tuple[str | Path, ...]:
    """The fixture with an echo that wants each call confirmed."""
    return ("--dev", "--plugin", plugin_copy(echo, _confirmed))


@pytest.mark.req("A5")
@pytest.mark.parametrize(
    ("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 3), ("\n", 3), ("maybe\n", 3), ("\x04", 3)]
)
def test_whoever_sits_at_the_terminal_is_asked(bascule, asking, terminal, answer, code):
    calling = bascule.start(*ECHO, *asking, **on(terminal))
    seen = terminal.until("[y/N]: ")
    assert '"message": "hello"' in seen
    assert "Its owner wants each call confirmed." in seen
    terminal.type(answer)
    assert calling.process.wait(30) == code
    assert ("TOOL_CONFIRMATION_DECLINED" in terminal.all()) == (code == 3)


def test_a_question_that_no_one_answers_ends_in_time_and_by_a_signal(bascule, asking, terminal):
    bascule.settings("limits: {confirm_seconds: 1}\n")
    calling = bascule.start(*ECHO, *asking, **on(terminal))
    assert calling.process.wait(30) == exits.REFUSED
    assert "no one answered" in terminal.all()
    bascule.settings("")
    other = Terminal()
    try:
        calling = bascule.start(*ECHO, *asking, **on(other))
        other.until("[y/N]: ")
        assert calling.ended(signal.SIGINT).code == exits.INTERRUPTED
    finally:
        other.close()


def test_yes_answers_for_the_person(bascule, asking):
    assert bascule(*ECHO, *asking, "--yes").code == 0
    assert bascule(*ECHO, *asking, input="y\n").code == exits.REFUSED  # stdin is no person


def test_progress_is_one_line_on_a_terminal_and_gone_at_the_end(bascule, dev, terminal):
    arguments = ("call", "mcp-fixture.sleep", '{"seconds": 0.6, "progress": 3}', *dev)
    assert bascule.start(*arguments, **on(terminal)).process.wait(30) == 0
    seen = terminal.all()
    assert "… 1/3" in seen
    assert seen.rindex("\r\x1b[K") > seen.rindex("…")
    assert "…" not in bascule(*arguments).err
