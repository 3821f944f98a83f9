"""Bascule as a client's command: MCP on stdin and stdout, nothing else there, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bascule.core.bridge import Bridge

Json = dict[str, Any]

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def request(id: int, method: str, params: object = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}
    return json.dumps(message).encode() + b"\n"


def call(id: int, tool: str, **arguments: object) -> bytes:
    return request(id, "tools/call", {"name": tool, "arguments": arguments})


def hello(revision: str = REVISIONS[-1]) -> bytes:
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "tester", "version": "1"}}
    return request(1, "initialize", params) + b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


def answers(text: str) -> dict[int, Json]:
    """Every line is a JSON-RPC message; those that answer, by their ids."""
    messages = [json.loads(line) for line in text.splitlines()]
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    return {message["id"]: message for message in messages if "method" not in message}


@pytest.fixture
def trial(bascule, echo) -> tuple[Any, ...]:
    """The command line of a client's command for a trial."""
    return ("stdio", "--dev", "--plugin", echo)


class Client:
    """The process of a command, its stdin open."""

    def __init__(self, bascule, *arguments: object) -> None:
        self.running = bascule.start(*arguments, stdin=subprocess.PIPE)
        self.stdin = self.running.process.stdin

    def write(self, *messages: bytes) -> None:
        self.stdin.write(b"".join(messages))
        self.stdin.flush()

    def answer(self, id: int) -> Json:
        """Wait for the answer of that id; what comes before it is left out."""
        while line := self.running.line(60):
            message: Json = json.loads(line)
            if message.get("id") == id and "method" not in message:
                return message
        raise AssertionError(f"it ended without an answer: {self.running.err}")


@pytest.mark.req("A7", "A1", "D5")
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_client_lists_and_calls_and_leaves(bascule, trial, revision):
    client = Client(bascule, *trial)
    client.write(hello(revision))
    assert client.answer(1)["result"]["protocolVersion"] == revision
    client.write(request(2, "tools/list"), call(3, "mcp-fixture.echo", message="grüße \u2028"))
    assert "mcp-fixture.echo" in [tool["name"] for tool in client.answer(2)["result"]["tools"]]
    assert "grüße \u2028" in json.dumps(client.answer(3), ensure_ascii=False)
    client.stdin.close()
    assert client.running.ended().code == 0


@pytest.mark.req("A7")
def test_what_was_asked_before_the_end_is_answered(bascule, trial):
    """As in `printf … | bascule stdio`: the last word is said, and the other direction is still open."""
    said = hello() + call(2, "mcp-fixture.sleep", seconds=0.3) + call(3, "mcp-fixture.fail", message="no")
    shown = bascule(*trial, input=said.decode())
    assert shown.code == 0
    told = answers(shown.out)
    assert told.keys() == {1, 2, 3}
    assert told[2]["result"].get("isError", False) is False
    assert told[3]["result"]["isError"] is True


def test_a_file_may_be_stdin_and_stdout(bascule, trial, tmp_path):
    (tmp_path / "in").write_bytes(hello() + b"\n \r\n" + request(2, "ping"))
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        assert bascule(*trial, stdin=stdin, stdout=stdout).code == 0
    assert answers((tmp_path / "out").read_text()).keys() == {1, 2}


def test_one_socket_may_be_both(bascule, trial):
    """As some hosts start their servers."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        running = bascule.start(*trial, stdin=theirs.fileno(), stdout=theirs.fileno())
        theirs.close()
        ours.settimeout(60)
        ours.sendall(hello() + call(2, "mcp-fixture.large", bytes=100_000))
        with ours.makefile("rb") as stream:
            assert json.loads(stream.readline())["id"] == 1
            assert len(stream.readline()) > 100_000
            ours.shutdown(socket.SHUT_WR)
            assert running.ended().code == 0


NOISY = """
import os, subprocess, sys
from bascule.hookspecs import hookimpl
print("stray: imported")
subprocess.run(["sh", "-c", "echo stray: a program; cat"], check=True)

class Loud:
    name = "loud"
    def __call__(self, event):
        print("stray: told of an event", flush=True)
        os.write(1, b"stray: past Python\\n")

@hookimpl
def bascule_observers(config):
    print("stray: asked")
    return [Loud()]
"""


@pytest.mark.req("A7")
def test_stdout_carries_the_protocol_alone_and_stdin_is_read_by_no_one_else(bascule, strangers, trial):
    strangers.write("noisy", NOISY)
    shown = bascule(*trial, "-v", input=(hello() + call(2, "mcp-fixture.echo", message="x")).decode())
    assert answers(shown.out).keys() == {1, 2}
    for words in ("imported", "a program", "asked", "told of an event", "past Python"):
        assert f"stray: {words}" in shown.err


def test_names_are_flat_where_the_command_line_or_the_settings_say_so(bascule, trial):
    said = (hello() + request(2, "tools/list") + call(3, "mcp-fixture__echo", message="x")).decode()
    bascule.settings("plugins: {stdio_server: {names: flat}}\n")
    for more, name in ((), "mcp-fixture__echo"), (("--names", "canonical"), "mcp-fixture.echo"):
        told = answers(bascule(*trial, *more, input=said).out)
        assert name in [tool["name"] for tool in told[2]["result"]["tools"]]
        assert "isError" not in told[3]["result"] or not told[3]["result"]["isError"]


@pytest.mark.req("A4", "A5")
def test_exposure_is_one_decision_here_too(bascule, echo, plugin_copy):
    def edit(manifest: Json) -> None:
        tools = manifest["contributes"]["tools"]
        tools[:] = [{"id": each} if isinstance(each, str) else each for each in tools]
        for each in tools:
            each["groups"] = ["writing"] if each["id"].endswith(("echo", "fail")) else []
            each["visibility"] = "restricted" if each["id"].endswith("fail") else "public"

    said = hello() + request(2, "tools/list")
    said += call(3, "mcp-fixture.fail", message="x") + call(4, "mcp-fixture.sleep", seconds=0)
    bascule.settings("plugins: {stdio_server: {toolGroups: [writing]}}\n")
    shown = bascule("stdio", "--dev", "--plugin", plugin_copy(echo, edit), input=said.decode())
    told = answers(shown.out)
    assert [tool["name"] for tool in told[2]["result"]["tools"]] == ["mcp-fixture.echo"]
    for id in (3, 4):
        assert told[id]["result"]["isError"]
        assert told[id]["result"]["_meta"]["bascule/code"] == "TOOL_NOT_FOUND"


@pytest.mark.req("A7")
def test_a_client_that_pauses_reading_loses_nothing(bascule, trial):
    """It asks for 6 MB and reads nothing until all is asked; the bridge takes no more than it can answer meanwhile."""
    count = 60
    reading, writing = os.pipe()
    running = bascule.start(*trial, stdin=subprocess.PIPE, stdout=writing)
    os.close(writing)
    stdin = running.process.stdin

    def ask() -> None:
        stdin.write(hello() + b"".join(call(id, "mcp-fixture.large", bytes=100_000) for id in range(2, count + 2)))
        stdin.flush()

    asking = threading.Thread(target=ask)
    asking.start()
    with os.fdopen(reading, "rb") as stream:
        lines = [json.loads(stream.readline())]  # it speaks; from here on its answers wait
        asking.join(90)
        assert not asking.is_alive()
        while len(lines) < count + 1:
            lines.append(json.loads(stream.readline()))
        assert {line["id"] for line in lines} == set(range(1, count + 2))
        assert all(len(json.dumps(line)) > 100_000 for line in lines if line["id"] > 1)
        stdin.close()
        assert stream.read() == b""
    assert running.ended().code == 0


def test_a_message_beyond_the_bound_ends_the_session_in_words(bascule, trial):
    bascule.settings("limits: {message_bytes: 10000, result_bytes: 9000}\n")
    client = Client(bascule, *trial)
    client.write(hello())
    client.answer(1)
    client.write(b"x" * 20_000)
    outcome = client.running.ended()
    assert outcome.code == 1
    assert "CHANNEL_FAULT: the client sent a message of more than 10,000 bytes" in outcome.err


def test_a_message_without_an_end_is_never_taken_for_one(bascule, trial):
    shown = bascule(*trial, input=(hello() + request(2, "ping").rstrip()).decode())
    assert shown.code == 1
    assert answers(shown.out).keys() == {1}
    assert "CHANNEL_FAULT: the client's last message has no end" in shown.err


def test_what_is_no_json_is_answered_and_the_session_goes_on(bascule, trial):
    shown = bascule(*trial, input=(hello().decode() + "{nonsense\n" + request(2, "ping").decode()))
    assert shown.code == 0
    messages = [json.loads(line) for line in shown.out.splitlines()]
    assert [message["id"] for message in messages] == [1, None, 2]
    assert messages[1]["error"]["code"] == -32700


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(bascule, trial, number):
    client = Client(bascule, *trial)
    client.write(hello(), call(2, "mcp-fixture.sleep", seconds=60))
    client.answer(1)
    assert client.running.ended(number).code == 0


def test_a_client_that_stops_listening_ends_it_though_it_still_holds_stdin(bascule, trial):
    reading, writing = os.pipe()
    running = bascule.start(*trial, stdin=subprocess.PIPE, stdout=writing)
    os.close(writing)
    running.process.stdin.write(hello())
    running.process.stdin.flush()
    assert os.read(reading, 1)
    os.close(reading)
    running.process.stdin.write(call(2, "mcp-fixture.large", bytes=100_000))
    running.process.stdin.flush()
    assert running.ended().code == 0


# --- which plugins, and whether ---------------------------------------------------------------------------


def test_without_a_plugin_there_is_nothing_to_speak_of(bascule):
    shown = bascule("stdio", input=hello().decode())
    assert (shown.code, shown.out) == (2, "")
    assert "give --plugin DIR" in shown.err


@pytest.mark.req("N6.9")
def test_where_no_plugin_starts_the_reason_is_told_and_nothing_is_served(bascule, echo):
    shown = bascule("stdio", "--plugin", echo, "--json", input=hello().decode())
    assert (shown.code, shown.out) == (3, "")
    assert "MCP_TRUST_APPROVAL_REQUIRED" in shown.err


def test_one_plugin_that_does_not_start_is_told_and_the_others_are_served(bascule, trial, variant):
    said = hello() + request(2, "tools/list")
    shown = bascule(*trial, "--plugin", variant("exit-at-start"), input=said.decode())
    assert "PLUGIN_HOST" in shown.err
    assert len(answers(shown.out)[2]["result"]["tools"]) == 6


async def test_without_a_plugin_those_that_are_enabled_are_hosted_beside_a_bridge_that_serves(
    bascule, settings, echo, tmp_path
):
    """No lock is taken: each client may have a Bascule of its own."""
    config = tmp_path / "bascule.yaml"
    config.write_text(f"environment: development\nexecutables: {{python3: {json.dumps(sys.executable)}}}\n")
    async with Bridge(settings) as bridge:
        view = await bridge.plugins.install(echo)
        await bridge.plugins.grant(view.plugin_id, view.permissions)
        await bridge.plugins.enable(view.plugin_id)
        said = (hello() + call(2, "mcp-fixture.echo", message="x")).decode()
        command = ("stdio", "--config", config, "--state", settings.state)
        shown = await asyncio.gather(*(asyncio.to_thread(bascule, *command, input=said) for _ in range(2)))
        for each in shown:
            assert each.code == 0, each.err
            assert answers(each.out)[2]["result"]["structuredContent"]["message"] == "x"


@pytest.mark.req("D4")
def test_where_the_built_in_is_off_the_command_says_so(bascule, trial):
    shown = bascule(*trial, "--no-hook-plugin", "stdio_server", input="")
    assert shown.code == 5
    assert "HOOK_PLUGIN_REQUIRED: no hook plugin offers the server transport 'stdio'" in shown.err


def test_where_a_guard_is_missing_it_stays_closed(bascule, trial):
    bascule.settings("required_hook_plugins: [the_guard]\n")
    shown = bascule(*trial, input=hello().decode())
    assert (shown.code, shown.out) == (5, "")
    assert "the_guard" in shown.err


async def test_serve_does_not_open_it(host, echo):
    async with host(echo) as bridge:
        assert "stdio" in bridge.lineup.server_transports
        async with bridge.serve(only="stdio") as opened:  # no streams were given
            assert opened == []
        assert "run bascule stdio" in str(bridge.failures["stdio"])


# --- its channel ------------------------------------------------------------------------------------------


@pytest.fixture
def pipes() -> Iterator[list[int]]:
    """Two pipes: read and write of the client's words, read and write of ours."""
    held = [*os.pipe(), *os.pipe()]
    yield held
    for descriptor in held:
        try:
            os.close(descriptor)
        except OSError:
            continue


both_ways = pytest.mark.parametrize("threads", [False, True], ids=["poll", "threads"])


def channel_on(pipes: list[int], threads: bool, limit: int = 100) -> Any:
    from bascule.builtin_plugins.stdio_server.channel import StandardChannel

    return StandardChannel(pipes[0], pipes[3], limit, threads=threads)


@both_ways
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
async def test_lines_are_cut_wherever_the_chunks_end(pipes, threads, size):
    channel = channel_on(pipes, threads)
    text = '{"a":1}\n\r\n{"ü":"\u2028"}\r\n\n[]\n'.encode()
    seen: list[bytes] = []

    async def read() -> None:
        async for line in channel:
            seen.append(line.strip())

    reading = asyncio.create_task(read())
    for at in range(0, len(text), size):
        os.write(pipes[1], text[at : at + size])
        await asyncio.sleep(0)
    os.close(pipes[1])
    async with asyncio.timeout(30):
        await reading
    assert seen == [b'{"a":1}', '{"ü":"\u2028"}'.encode(), b"[]"]


@both_ways
@pytest.mark.parametrize("tail", [b"x" * 101, b"x" * 101 + b"\n{}\n", b"x" * 1_000])
async def test_what_came_before_a_line_that_is_too_long_is_served_and_nothing_after_it(pipes, threads, tail):
    from bascule.hookspecs import ChannelFault

    channel = channel_on(pipes, threads)
    os.write(pipes[1], b"{}\n" + b"y" * 100 + b"\n" + tail)
    seen: list[bytes] = []

    async def read() -> None:
        async for line in channel:
            seen.append(line)

    async with asyncio.timeout(30):
        with pytest.raises(ChannelFault, match="more than 100 bytes"):
            await read()
    assert seen == [b"{}", b"y" * 100]
    assert channel.fault is not None


@both_ways
async def test_a_message_is_one_line_whatever_it_holds_and_waits_for_its_reader(pipes, threads):
    channel = channel_on(pipes, threads)
    large = json.dumps({"large": "x" * 1_000_000}).encode()
    sending = asyncio.create_task(channel.send(large))
    after = asyncio.create_task(asyncio.to_thread(_read_lines, pipes[2], 2))
    async with asyncio.timeout(30):
        await sending
        await channel.send(b'{\n"pretty":\n1}')
        first, second = await after
    assert json.loads(first) == json.loads(large)
    assert json.loads(second) == {"pretty": 1}


def _read_lines(descriptor: int, count: int) -> list[bytes]:
    data = b""
    while data.count(b"\n") < count:
        data += os.read(descriptor, 65_536)
    return data.splitlines()


@both_ways
async def test_where_no_one_reads_any_more_it_says_so(pipes, threads):
    from bascule.hookspecs import ChannelClosed

    channel = channel_on(pipes, threads)
    os.close(pipes[2])
    with pytest.raises(ChannelClosed, match="does not read any more"):
        await channel.send(b"{}")


def test_the_channel_sets_nothing_on_descriptors_that_others_hold(pipes):
    async def talk() -> None:
        channel = channel_on(pipes, False)
        os.write(pipes[1], b"{}\n")
        async for _ in channel:
            break
        await channel.send(b"{}")

    asyncio.run(talk())
    assert all(os.get_blocking(descriptor) for descriptor in pipes)


@pytest.mark.parametrize("section", [{"names": "short"}, {"toolGroup": []}, {"allowRestricted": "yes"}])
def test_a_wrong_section_is_an_error_in_words(bascule, trial, section, tmp_path: Path):
    bascule.settings(json.dumps({"plugins": {"stdio_server": section}}))
    shown = bascule(*trial, input=hello().decode())
    assert shown.code != 0
    assert "plugins.stdio_server" in shown.err
    assert shown.out == ""
