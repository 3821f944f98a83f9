"""The fixtures do what they are for, before anything else is judged by them.

Servers are spoken to over plain pipes, without Bascule. Every wait has a bound.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import yaml

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ECHO = FIXTURES / "mcp-echo"
VARIANTS = FIXTURES / "variants"
HOSTILE = VARIANTS / "hostile.py"

BOUND = 20  # seconds for anything that should happen at once, on a machine that does much else
LONGEST_LINE = 4 * 1024 * 1024
LATEST = "2025-11-25"

Json = dict[str, Any]


class Server:
    """A server process and its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.tree = psutil.Process(process.pid)
        self.passed: list[Json] = []  # messages that were read while another one was waited for
        self.left: list[psutil.Process] = []  # children that may outlive their parent
        self._lines: queue.Queue[bytes] = queue.Queue(maxsize=64)  # a server that never ends must not fill memory
        self._last_id = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        while line := self.process.stdout.readline(LONGEST_LINE):
            self._lines.put(line)
        self._lines.put(b"")

    def line(self) -> bytes:
        """Read a line; empty at the end of stdout."""
        line = self._lines.get(timeout=BOUND)
        if not line:
            self._lines.put(line)
        return line

    def message(self) -> Any:
        return json.loads(self.line())

    def rest(self) -> list[bytes]:
        """Read all that is still to come on stdout."""
        return list(iter(self.line, b""))

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        view = memoryview(data)
        while view:
            view = view[os.write(self.process.stdin.fileno(), view) :]

    def send(self, message: Json) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def notify(self, method: str, params: Json | None = None) -> None:
        self.send({"method": method, "params": params or {}})

    def begin(self, method: str, params: Json | None = None) -> int:
        """Send a request and return its id."""
        self._last_id += 1
        self.send({"id": self._last_id, "method": method, "params": params or {}})
        return self._last_id

    def begin_call(self, name: str, arguments: Json | None = None, **params: Any) -> int:
        return self.begin("tools/call", {"name": name, "arguments": arguments or {}, **params})

    def answer(self, request_id: int) -> Json:
        """Read up to the answer to that request."""
        while True:
            message = self.message()
            if message.get("id") == request_id and "method" not in message:
                return message
            self.passed.append(message)

    def request(self, method: str, params: Json | None = None) -> Json:
        return self.answer(self.begin(method, params))

    def call(self, name: str, arguments: Json | None = None, **params: Any) -> Json:
        """Call a tool and return its result."""
        return self.answer(self.begin_call(name, arguments, **params))["result"]

    def initialize(self, version: str = LATEST) -> Json:
        answer = self.answer(self.begin_initialize(version))
        self.notify("notifications/initialized")
        return answer["result"]

    def tools(self) -> list[Json]:
        """Read all pages of tools/list."""
        tools: list[Json] = []
        params: Json = {}
        while True:
            page = self.request("tools/list", params)["result"]
            tools += page["tools"]
            if "nextCursor" not in page:
                return tools
            params = {"cursor": page["nextCursor"]}

    def begin_initialize(self, version: str = LATEST) -> int:
        client = {"name": "test", "version": "0"}
        return self.begin("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client})

    def close_stdin(self) -> None:
        self.left = self.tree.children(recursive=True)
        assert self.process.stdin
        self.process.stdin.close()

    def end(self) -> int:
        """Close stdin and wait until the server has left by itself."""
        self.close_stdin()
        return self.process.wait(BOUND)

    def destroy(self) -> None:
        """Kill all that is left, inside the group and outside, and read stdout to its end."""
        if self.process.poll() is None:
            self.left = self.tree.children(recursive=True)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in self.left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        while self.line():
            pass
        self._reader.join(BOUND)


@contextmanager
def running(command: list[str], directory: Path, *, stderr: int = subprocess.DEVNULL, **more: Any) -> Iterator[Server]:
    """Run a server in a process group of its own, of which nothing is left afterwards."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=directory, stdin=pipe, stdout=pipe, stderr=stderr, start_new_session=True, **more
    ) as process:
        server = Server(process)
        try:
            yield server
        finally:
            server.destroy()


def until(holds: Callable[[], bool]) -> None:
    """Wait until something outside our pipes holds."""
    deadline = time.monotonic() + BOUND
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.005)


@pytest.fixture
def echo() -> Iterator[Server]:
    """Run mcp-echo without site-packages and without the user's environment, and initialize it."""
    with running([sys.executable, "-I", "-S", "server.py"], ECHO) as server:
        server.initialize()
        yield server


def manifest(directory: Path) -> Json:
    return yaml.safe_load((directory / "plugin.yaml").read_text(encoding="utf-8"))


# mcp-echo: the session


@pytest.mark.req("N8.1")
def test_echo_fixture_needs_nothing_but_the_standard_library(echo: Server) -> None:
    assert echo.request("ping")["result"] == {}


@pytest.mark.req("N8.1", "N3.4")
def test_echo_fixture_lists_what_its_manifest_declares(echo: Server) -> None:
    declared = manifest(ECHO)["contributes"]["tools"]
    assert sorted(declared) == sorted(f"mcp-fixture.{tool['name']}" for tool in echo.tools())


@pytest.mark.req("N8.2")
def test_tools_come_on_two_pages(echo: Server) -> None:
    first = echo.request("tools/list")["result"]
    second = echo.request("tools/list", {"cursor": first["nextCursor"]})["result"]
    assert [tool["name"] for tool in first["tools"]] == ["echo", "fail", "sleep"]
    assert [tool["name"] for tool in second["tools"]] == ["large", "environment", "exit"]
    assert "nextCursor" not in second


@pytest.mark.req("N8.2")
def test_a_cursor_of_nobody_is_refused(echo: Server) -> None:
    assert echo.request("tools/list", {"cursor": "page-3"})["error"]["code"] == -32602


@pytest.mark.req("N8.1")
def test_every_tool_is_described_and_has_an_object_schema(echo: Server) -> None:
    for tool in echo.tools():
        assert len(tool["description"]) > 20
        assert tool["inputSchema"]["type"] == "object"


@pytest.mark.req("N8.1")
@pytest.mark.parametrize(
    ("asked", "agreed"),
    [(each, each) for each in ("2024-11-05", "2025-03-26", "2025-06-18", LATEST)] + [("1999-01-01", LATEST)],
)
def test_a_known_version_is_echoed_and_an_unknown_one_answered_with_the_latest(asked: str, agreed: str) -> None:
    with running([sys.executable, "server.py"], ECHO) as server:
        result = server.initialize(asked)
    assert result["protocolVersion"] == agreed
    assert result["capabilities"] == {"tools": {}}
    assert result["serverInfo"] == {"name": "mcp-echo", "version": manifest(ECHO)["version"]}


@pytest.mark.req("N8.1")
@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_tools_are_refused_before_initialize(method: str) -> None:
    with running([sys.executable, "server.py"], ECHO) as server:
        assert server.request(method, {"name": "echo", "arguments": {"message": "hi"}})["error"]["code"] == -32602
        assert server.request("ping")["result"] == {}


@pytest.mark.req("N8.1")
def test_unknown_methods_tools_and_arguments_are_told_apart(echo: Server) -> None:
    assert echo.request("server/discover")["error"]["code"] == -32601
    assert echo.request("tools/call", {"name": "nothing"})["error"]["code"] == -32602
    assert echo.call("echo")["isError"] is True


@pytest.mark.req("N8.1")
@pytest.mark.parametrize(
    "line",
    [b"\n", b"garbage\n", b"[1]\n", b"\xff\xfe\n", b'{"id":NaN}\n', b'{"jsonrpc":"2.0","method":5}\n'],
)
def test_a_line_that_is_no_request_gets_no_answer(echo: Server, line: bytes) -> None:
    echo.write(line)
    echo.request("ping")
    assert echo.passed == []


@pytest.mark.req("N8.1")
def test_the_end_of_stdin_ends_the_server(echo: Server) -> None:
    assert echo.end() == 0
    assert echo.rest() == []


@pytest.mark.req("N8.1")
def test_the_end_of_stdin_ends_the_server_while_a_call_sleeps(echo: Server) -> None:
    echo.begin_call("sleep", {"seconds": 600})
    assert echo.end() == 0
    assert echo.rest() == []


# mcp-echo: the tools


@pytest.mark.req("N8.1", "N5.3")
@pytest.mark.parametrize(
    "arguments",
    [
        {"message": "hi"},
        {"message": "Grüße, 世界 🌉 \u2028 \x00", "note": None},
        {"message": "hi", "note": "text", "x-limit": 3},
        {"message": "\ud800", "x-big": 2**80},
    ],
)
def test_echo_returns_its_arguments_exactly_as_they_came(echo: Server, arguments: Json) -> None:
    result = echo.call("echo", arguments)
    assert result["structuredContent"] == {"message": arguments["message"], "arguments": arguments}
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert result["isError"] is False


@pytest.mark.req("N8.1", "N5.4")
def test_echo_alone_asks_for_a_permission_of_its_own(echo: Server) -> None:
    meta = {tool["name"]: tool["_meta"] for tool in echo.tools() if "_meta" in tool}
    assert meta == {"echo": {"notesagent/permission": "notes.read"}}


@pytest.mark.req("N8.1")
def test_fail_fails_as_a_tool_fails(echo: Server) -> None:
    assert echo.call("fail") == {
        "content": [{"type": "text", "text": "This tool fails, as it was asked to."}],
        "isError": True,
    }
    assert echo.call("fail", {"message": "mine"})["content"][0]["text"] == "mine"


@pytest.mark.req("N8.1")
def test_others_are_served_while_a_call_sleeps(echo: Server) -> None:
    sleeping = echo.begin_call("sleep", {"seconds": 600})
    assert echo.call("echo", {"message": "awake"})["isError"] is False
    short = echo.call("sleep", {"seconds": 0.01})
    assert short == {"content": [{"type": "text", "text": "Slept for 0.01 s."}], "isError": False}
    assert sleeping not in [message.get("id") for message in echo.passed]


@pytest.mark.req("N8.1")
def test_sleep_reports_progress_in_as_many_steps_as_asked(echo: Server) -> None:
    echo.call("sleep", {"seconds": 0.03, "progress": 3}, _meta={"progressToken": "t"})
    assert [message["method"] for message in echo.passed] == ["notifications/progress"] * 3
    params = [message["params"] for message in echo.passed]
    assert {each["progressToken"] for each in params} == {"t"}
    assert [(each["progress"], each["total"]) for each in params] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.req("N8.1")
def test_sleep_reports_nothing_to_a_caller_without_a_token(echo: Server) -> None:
    echo.call("sleep", {"seconds": 0.01, "progress": 3})
    assert echo.passed == []


@pytest.mark.req("N8.1")
def test_a_cancelled_sleep_really_stops_and_answers_nothing(echo: Server) -> None:
    sleeping = echo.begin_call("sleep", {"seconds": 600, "progress": 1000}, _meta={"progressToken": "t"})
    until(lambda: echo.tree.num_threads() == 2)
    echo.notify("notifications/cancelled", {"requestId": sleeping, "reason": "enough"})
    until(lambda: echo.tree.num_threads() == 1)
    assert echo.request("ping")["result"] == {}
    assert echo.end() == 0
    messages = [*echo.passed, *map(json.loads, echo.rest())]
    assert [message for message in messages if message.get("id") == sleeping] == []


@pytest.mark.req("N8.1")
@pytest.mark.parametrize("params", [{"requestId": 4711}, {}, {"requestId": []}])
def test_a_cancel_of_nothing_is_ignored(echo: Server, params: Json) -> None:
    echo.notify("notifications/cancelled", params)
    assert echo.request("ping")["result"] == {}


@pytest.mark.req("N8.1", "N5.8")
@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 3 * 1024 * 1024])
def test_large_returns_a_text_of_exactly_that_size(echo: Server, size: int) -> None:
    assert len(echo.call("large", {"bytes": size})["content"][0]["text"].encode()) == size


@pytest.mark.req("N8.1", "N6.3")
def test_environment_tells_all_that_the_process_was_given() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "server.py"]
    try:
        with running(command, ECHO, env={"ONLY": "this=that", "EMPTY": ""}, pass_fds=[reading]) as server:
            server.initialize()
            told = server.call("environment")["structuredContent"]
    finally:
        os.close(reading)
        os.close(writing)
    assert told["environment"] == {"ONLY": "this=that", "EMPTY": ""}
    assert Path(told["cwd"]) == ECHO
    assert told["argv"] == command
    assert told["open_fds"] == [0, 1, 2, reading]
    assert told["pid"] == server.process.pid


@pytest.mark.req("N8.1")
@pytest.mark.parametrize(("arguments", "code"), [({}, 1), ({"code": 0}, 0), ({"code": 42}, 42)])
def test_exit_ends_the_server_in_the_middle_of_the_call(echo: Server, arguments: Json, code: int) -> None:
    echo.begin_call("exit", arguments)
    assert echo.process.wait(BOUND) == code
    assert echo.rest() == []


# The variants: their manifests


def variants() -> list[str]:
    return sorted(path.parent.name for path in VARIANTS.glob("*/plugin.yaml"))


def modes() -> list[str]:
    listed = subprocess.run([sys.executable, HOSTILE, "--modes"], capture_output=True, timeout=BOUND, check=True)
    return listed.stdout.decode().split()


def arguments_of(name: str) -> list[str]:
    """Return what a variant's manifest says after the interpreter."""
    return manifest(VARIANTS / name)["backend"]["args"]


@contextmanager
def variant(name: str, *, initialize: bool = True, **more: Any) -> Iterator[Server]:
    """Run a variant as its manifest says."""
    with running([sys.executable, *arguments_of(name)], VARIANTS / name, **more) as server:
        if initialize:
            server.initialize()
        yield server


@pytest.mark.req("N8.3")
def test_every_mode_has_a_variant_and_every_variant_a_mode() -> None:
    assert {arguments_of(name)[1] for name in variants()} == set(modes())


@pytest.mark.req("N8.3", "N3.4")
@pytest.mark.parametrize("name", variants())
def test_variant_manifest_is_whole(name: str) -> None:
    read = manifest(VARIANTS / name)
    assert read["id"] == f"fx-{name}"
    assert read["backend"]["command"] == "python3"
    assert arguments_of(name)[0] == "../hostile.py"
    ids = [tool if isinstance(tool, str) else tool["id"] for tool in read["contributes"]["tools"]]
    assert all(tool.startswith(f"fx-{name}.") for tool in ids)


# What a variant's process ends with once its stdin is closed, where that is not 0; None: it does not end.
ENDS = {
    "exit-at-start": 3,
    "ignore-eof-and-sigterm": None,
    "endless-line": None,
    "endless-line-at-start": None,
}


@pytest.mark.req("N8.3")
@pytest.mark.parametrize("name", variants())
def test_variant_starts_and_ends(name: str) -> None:
    code = ENDS.get(name, 0)
    with variant(name, initialize=False) as server:
        if code != 3:
            server.begin_initialize()
        if name not in ("silent", "slow-start"):
            server.line()
        server.close_stdin()
        if code is None:
            server.process.kill()
            code = -signal.SIGKILL
        assert server.process.wait(BOUND) == code


# The variants: handshakes


@pytest.mark.req("N8.3", "N4.1.5")
@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("no-tools-capability", "capabilities", {}),
        ("unknown-version", "protocolVersion", "1999-01-01"),
        ("old-version", "protocolVersion", "2024-11-05"),
        ("invalid-initialize", "protocolVersion", None),
        ("invalid-initialize-number", "protocolVersion", 20251125),
        ("invalid-initialize-capabilities", "capabilities", None),
        ("batch-2025-03-26", "protocolVersion", "2025-03-26"),
    ],
)
def test_variant_initializes_in_its_own_way(name: str, key: str, value: object) -> None:
    with variant(name, initialize=False) as server:
        assert server.initialize().get(key) == value


@pytest.mark.req("N8.3")
def test_initialize_may_be_answered_with_a_text_an_error_or_not_at_all() -> None:
    with variant("invalid-initialize-text", initialize=False) as server:
        assert server.answer(server.begin_initialize())["result"] == "ready"
    with variant("refused-initialize", initialize=False) as server:
        assert server.answer(server.begin_initialize())["error"]["code"] == -32603
    with variant("silent", initialize=False) as server:
        server.begin_initialize()
        assert server.request("ping")["result"] == {}
        assert server.passed == []


def test_a_slow_start_answers_pings_until_its_time_has_come() -> None:
    with running([sys.executable, str(HOSTILE), "slow-start", "0.2"], VARIANTS) as server:
        start = time.monotonic()
        initializing = server.begin_initialize()
        assert server.request("ping")["result"] == {}
        assert server.passed == []
        assert server.answer(initializing)["result"]["protocolVersion"] == LATEST
        assert time.monotonic() - start >= 0.2


def test_exit_at_start_leaves_a_traceback_on_stderr() -> None:
    with variant("exit-at-start", initialize=False, stderr=subprocess.PIPE) as server:
        assert server.process.stderr
        assert server.process.stderr.read().startswith(b"Traceback")
        assert server.process.wait(BOUND) == 3


def test_never_reads_stdin_lets_the_pipe_fill_up() -> None:
    with variant("never-reads-stdin") as server:
        assert [tool["name"] for tool in server.tools()] == ["ping"]
        assert server.process.stdin
        os.set_blocking(server.process.stdin.fileno(), False)
        with pytest.raises(BlockingIOError):
            server.write(b"\n" * 10_000_000)


# The variants: listings


@pytest.mark.req("N8.3", "N4.1.9")
@pytest.mark.parametrize(
    ("name", "unlisted", "undeclared"),
    [
        ("invalid-schema", set(), set()),
        ("duplicate-tools", set(), set()),
        ("missing-tool", {"absent"}, set()),
        ("undeclared-tool", set(), {"extra"}),
        ("content", set(), set()),
        ("odd-names", set(), set()),
    ],
)
def test_variant_lists_what_it_declares_but_for_its_purpose(
    name: str, unlisted: set[str], undeclared: set[str]
) -> None:
    declared = {tool.removeprefix(f"fx-{name}.") for tool in manifest(VARIANTS / name)["contributes"]["tools"]}
    with variant(name) as server:
        listed = {quote(tool["name"], safe="") for tool in server.tools()}
    assert declared - listed == unlisted
    assert listed - declared == undeclared


@pytest.mark.req("N8.3", "N5.2")
def test_invalid_schema_holds_no_schema() -> None:
    with variant("invalid-schema") as server:
        schemas = {tool["name"]: tool["inputSchema"] for tool in server.tools()}
    assert schemas["broken"]["properties"]["number"] == {"type": "nonsense"}


def test_duplicate_tools_lists_a_name_twice() -> None:
    with variant("duplicate-tools") as server:
        assert [tool["name"] for tool in server.tools()] == ["ping", "twin", "twin"]


def test_too_many_tools_are_one_too_many() -> None:
    with variant("too-many-tools") as server:
        assert len({tool["name"] for tool in server.tools()}) == 2001


@pytest.mark.parametrize(("name", "cursors"), [("cursor-loop", ["same"] * 3), ("endless-pages", ["1", "2", "3"])])
def test_pages_without_an_end(name: str, cursors: list[str]) -> None:
    seen = []
    params: Json = {}
    with variant(name) as server:
        for _ in cursors:
            seen.append(server.request("tools/list", params)["result"]["nextCursor"])
            params = {"cursor": seen[-1]}
    assert seen == cursors


@pytest.mark.req("N5.1")
def test_odd_names_answer_with_themselves() -> None:
    with variant("odd-names") as server:
        for tool in server.tools()[1:]:
            assert server.call(tool["name"])["content"][0]["text"] == tool["name"]


@pytest.mark.req("N5.4")
@pytest.mark.parametrize(
    ("name", "meta"),
    [
        ("permission-mismatch", {"notesagent/permission": "notes.read"}),
        ("permission-undeclared", {"notesagent/permission": "notes.write"}),
        ("permission-unknown", {"notesagent/permission": "kitchen.burn"}),
        ("permission-both", {"notesagent/permission": "notes.read", "bascule/permission": "files.read"}),
    ],
)
def test_variant_asks_for_its_permission(name: str, meta: Json) -> None:
    with variant(name) as server:
        assert [tool["_meta"] for tool in server.tools() if tool["name"] == "read"] == [meta]
        assert server.call("read")["content"][0]["text"] == "read"


# The variants: answers


def test_exit_mid_call_exits() -> None:
    with variant("exit-mid-call") as server:
        server.begin_call("exit")
        assert server.process.wait(BOUND) == 7
        assert server.rest() == []


@pytest.mark.req("N6.8")
def test_late_answer_comes_after_the_cancel() -> None:
    with variant("late-answer") as server:
        waiting = server.begin_call("wait", {"seconds": 600}, _meta={"progressToken": 5})
        server.notify("notifications/cancelled", {"requestId": waiting})
        assert server.answer(waiting)["result"]["content"][0]["text"] == "late"
        assert [message["params"]["progressToken"] for message in server.passed] == [5]


def test_one_answer_too_many() -> None:
    with variant("answer-twice") as server:
        first = server.begin_call("twice")
        texts = [server.answer(first)["result"]["content"][0]["text"] for _ in range(2)]
        assert texts == ["first", "second"]
    with variant("answer-unknown-id") as server:
        server.call("stray")
        assert [message["id"] for message in server.passed] == [987654321]


@pytest.mark.parametrize(
    ("name", "arguments", "before", "after"),
    [
        ("progress", {"seconds": 0.3}, [("7", 1), ("7", 2), ("7", 3)], 0),
        ("strangers", {}, [("never-given", 1), (987654321, 1), (-1, 1)], 0),
        ("backwards", {}, [("7", 3), ("7", 2), ("7", 1)], 0),
        ("afterwards", {}, [], 3),
    ],
)
def test_progress_rightly_and_wrongly(name: str, arguments: Json, before: list[Any], after: int) -> None:
    with variant("progress") as server:
        server.call(name, arguments, _meta={"progressToken": "7"})
        params = [message["params"] for message in server.passed]
        assert [(each["progressToken"], each["progress"]) for each in params] == before
        assert [server.message()["params"]["progressToken"] for _ in range(after)] == ["7"] * after


def test_a_batch_answers_in_arrays() -> None:
    with variant("batch-2025-03-26") as server:
        pinging = server.begin_call("ping")
        log, pong = server.message()
        assert log["method"] == "notifications/message"
        assert pong["id"] == pinging
        pair = {server.begin_call("pair"), server.begin_call("pair")}
        assert {message["id"] for message in server.message()} == pair


@pytest.mark.req("N5.6", "N5.7")
def test_content_holds_every_type_and_breaks_every_promise() -> None:
    with variant("content") as server:
        rich = server.call("rich")
        kinds = [item["type"] for item in rich["content"]]
        assert kinds == ["text", "image", "audio", "resource", "resource", "resource_link"]
        assert rich["structuredContent"] == {"count": 5, "note": None}
        assert rich["_meta"]["example.org/trace"] == {"id": 7, "none": None}
        assert server.call("broken-output")["structuredContent"] == {"count": "many"}
        assert "structuredContent" not in server.call("missing-output")
        assert server.call("failing")["isError"] is True
        assert server.call("unknown-type")["content"][0]["type"] == "hologram"


def test_secrets_in_result_look_like_secrets() -> None:
    with variant("secrets-in-result") as server:
        assert server.call("leak")["structuredContent"]["github"].startswith("ghp_")


def test_witness_tells_what_reached_it_and_logs_what_it_is_told_to() -> None:
    with variant("witness") as server:
        waiting = server.begin_call("wait", {"seconds": 600}, _meta={"progressToken": "t"})
        server.notify("notifications/cancelled", {"requestId": waiting})
        assert server.call("say", {"level": "info", "text": "hello"})["content"][0]["text"] == "said"
        (log,) = server.passed
        assert log["params"] == {"level": "info", "logger": "witness", "data": {"said": "hello"}}
        seen = server.call("seen")["structuredContent"]
        assert seen["cancels"] == [waiting]
        assert seen["calls"][0] == {"id": waiting, "token": "t", "tool": "wait"}


# The variants: streams


@pytest.mark.req("N8.3", "N6.5")
@pytest.mark.parametrize("name", ["endless-line", "endless-line-at-start"])
def test_an_endless_line_has_no_end(name: str) -> None:
    with variant(name, initialize=name == "endless-line") as server:
        line = server.line()
        assert len(line) == LONGEST_LINE
        assert b"\n" not in line


@pytest.mark.req("N6.4")
def test_flood_stderr_floods_before_and_after_its_first_answer() -> None:
    with variant("flood-stderr", initialize=False, stderr=subprocess.PIPE) as server:
        assert server.process.stderr
        initializing = server.begin_initialize()
        assert len(server.process.stderr.read(300_000)) == 300_000
        server.answer(initializing)
        server.notify("notifications/initialized")
        assert len(server.process.stderr.read(5_000_000)) == 5_000_000
        assert server.call("ping")["isError"] is False


@pytest.mark.req("N4.2.2")
@pytest.mark.parametrize("manner", ["strict", "tolerant"])
def test_stdout_noise_stands_before_the_session_and_in_each_call(manner: str) -> None:
    name = f"stdout-noise-{manner}"
    assert manifest(VARIANTS / name)["backend"]["stdout"] == manner
    with variant(name, initialize=False) as server:
        assert server.line() == b"hostile fixture 1.0.0 ready\n"
        server.initialize()
        server.begin_call("ping")
        assert server.line() == b"INFO calling ping\n"
        assert server.message()["result"]["isError"] is False


@pytest.mark.req("N4.2.3")
@pytest.mark.parametrize(("arguments", "more"), [({}, []), ({"change": True}, ["newcomer"])])
def test_a_burst_of_list_changed_with_and_without_a_change(arguments: Json, more: list[str]) -> None:
    with variant("list-changed-burst") as server:
        assert [tool["name"] for tool in server.tools()] == ["announce", "ping"]
        server.call("announce", arguments)
        assert [each["method"] for each in server.passed] == ["notifications/tools/list_changed"] * 4
        assert [tool["name"] for tool in server.tools()] == sorted(["announce", "ping", *more])


@pytest.mark.req("N4.2.3")
def test_a_burst_of_list_changed_before_the_first_list() -> None:
    with variant("list-changed-early") as server:
        server.tools()
        assert [each["method"] for each in server.passed] == ["notifications/tools/list_changed"] * 4


@pytest.mark.req("N4.2.3")
def test_the_turncoat_lists_what_its_file_says_and_announces_it(tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    with variant("turncoat", env={"TURNCOAT": str(said)}) as server:
        tools = server.tools()
        assert [tool["name"] for tool in tools] == ["announce", "ping", "wait"]
        said.write_text(json.dumps({"tools": tools[:1]}))
        server.call("announce")
        assert [each["method"] for each in server.passed] == ["notifications/tools/list_changed"]
        assert server.tools() == tools[:1]
        assert server.call("wait", {"seconds": 0})["isError"] is False


def test_a_notification_flood_has_the_size_that_was_asked_for() -> None:
    with variant("notification-flood") as server:
        server.call("flood", {"count": 1234, "method": "notifications/message"})
        assert [each["method"] for each in server.passed] == ["notifications/message"] * 1234


def test_server_requests_tells_what_was_answered() -> None:
    with variant("server-requests") as server:
        asked = [server.message() for _ in range(4)]
        for request in asked:
            server.send({"id": request["id"], "error": {"code": -32601, "message": request["method"]}})
        told = server.call("answers")["structuredContent"]
    assert [request["id"] for request in asked] == [1, "1", "sampling", 2]
    assert set(told) == {"ping", "roots/list", "sampling/createMessage", "fixture/unknown"}
    assert all(answer["error"]["message"] == method for method, answer in told.items())


# The variants: hostile lines

CORPUS = FIXTURES / "hostile-lines"
EXPECTED: Json = json.loads((CORPUS / "expected.json").read_text(encoding="utf-8"))


def corpus_bytes(name: str, request_id: int) -> bytes:
    data = (CORPUS / name).read_bytes()
    for encoding in ("utf-8", "utf-16-le"):
        data = data.replace("@ID@".encode(encoding), str(request_id).encode(encoding))
    return data


def test_every_hostile_line_is_a_file_or_generated() -> None:
    files = {path.name for path in CORPUS.glob("*.bin")}
    assert files == {name for name, case in EXPECTED.items() if not case.get("generated")}


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.glob("*.bin") if "eof" not in path.name))
def test_replay_writes_exactly_the_bytes_of_the_file(name: str) -> None:
    with variant("lines") as server:
        request_id = server.begin_call("replay", {"file": name, "answer": True})
        data = b""
        while not data.endswith(b'"isError":false}}\n'):
            data += server.line()
    assert data.startswith(expected := corpus_bytes(name, request_id))
    assert json.loads(data.removeprefix(expected))["id"] == request_id


def test_replay_of_a_partial_line_ends_the_server() -> None:
    with variant("lines") as server:
        request_id = server.begin_call("replay", {"file": "020-partial-eof.bin"})
        assert server.rest() == [corpus_bytes("020-partial-eof.bin", request_id)]
        assert server.process.wait(BOUND) == 0


@pytest.mark.parametrize("name", ["101-tools-dup-names.bin", "102-tools-homoglyph.bin", "104-tools-cursor-loop.bin"])
def test_replay_at_list_answers_tools_list(name: str) -> None:
    with variant(f"replay-at-list-{name[:3]}") as server:
        request_id = server.begin("tools/list")
        assert server.line() == corpus_bytes(name, request_id)


def test_every_case_that_is_too_large_for_a_file_is_generated() -> None:
    with variant("generated-lines") as server:
        refusal = server.answer(server.begin_call("generate", {"case": "nothing"}))["error"]["message"]
    assert set(refusal.split("; there are ")[1].split(", ")) == {
        name for name, case in EXPECTED.items() if case.get("generated")
    }


@pytest.mark.parametrize(
    ("case", "size", "counted", "count"),
    [
        ("large-noline-1gib.bin", LONGEST_LINE, b"x", LONGEST_LINE),
        ("large-line-2mib-exact.bin", 2 * 1024 * 1024 + 1, b"\n", 1),
        ("large-line-2mib-plus-1.bin", 2 * 1024 * 1024 + 2, b"\n", 1),
        ("large-empty-arrays.bin", None, b"[]", 633_000),
        ("large-distinct-keys.bin", None, b":0", 190_000),
        ("large-depth-100k.bin", None, b"[", 100_001),
        ("large-blank-lines.bin", 1, b"\n", 1),
        ("large-notifications.bin", None, b"list_changed", 1),
        ("large-result-256kib-plus-1.bin", None, b"x", 256 * 1024 + 3),  # "text" stands there twice
    ],
)
def test_generated_line_is_as_large_as_described(case: str, size: int | None, counted: bytes, count: int) -> None:
    with variant("generated-lines") as server:
        server.begin_call("generate", {"case": case})
        line = server.line()
    assert size is None or len(line) == size
    assert line.count(counted) == count
    assert case == "large-noline-1gib.bin" or len(line) <= 2 * 1024 * 1024 + 2


# The variants: processes


@pytest.mark.req("N4.2.1")
def test_ignore_eof_and_sigterm_is_ended_by_sigkill_alone() -> None:
    with variant("ignore-eof-and-sigterm") as server:
        assert server.call("pid")["structuredContent"] == {"pid": server.process.pid}
        server.close_stdin()
        server.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.3)
        server.process.kill()
        assert server.process.wait(BOUND) == -signal.SIGKILL


@pytest.mark.req("N6.10")
@pytest.mark.parametrize(("name", "in_group"), [("leave-grandchild", True), ("setsid-grandchild", False)])
def test_a_grandchild_stays_when_the_server_leaves(name: str, in_group: bool) -> None:
    with variant(name) as server:
        told = server.call("grandchild")["structuredContent"]
        assert told["pid"] == server.process.pid
        assert server.end() == 0
        grandchild = psutil.Process(told["grandchild"])
        grandchild.terminate()
        assert grandchild.is_running()
        assert (os.getpgid(grandchild.pid) == server.process.pid) is in_group


@pytest.mark.req("N4.2.1")
def test_slow_exit_writes_its_file_after_the_end_of_stdin(tmp_path: Path) -> None:
    file = tmp_path / "store"
    with variant("slow-exit") as server:
        server.call("remember", {"path": str(file), "text": "kept"})
        start = time.monotonic()
        assert server.end() == 0
    assert time.monotonic() - start >= 1
    assert file.read_text() == "kept"


# The other inputs


def test_every_hostile_schema_says_what_is_expected_of_it() -> None:
    for path in (FIXTURES / "hostile-schemas").glob("*.json"):
        case = json.loads(path.read_text(encoding="utf-8"))
        assert "schema" in case, path.name
        assert case["expect"]["gate"] in ("accept", "reject"), path.name
        assert "instance" in case or "check" not in case["expect"], path.name


def test_every_tool_list_holds_tools() -> None:
    for path in (FIXTURES / "tool-lists").glob("*.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["tools_list_result"]["tools"], path.name
