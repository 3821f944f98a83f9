"""The example distributions pass the conformance kit as their authors would run it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import time
from pathlib import Path
from typing import Any

import pytest
from kit_mutants import example, tcp

from bascule.hookspecs import Caller, CallFacts, Exposure, JsonObject, ToolCall, ToolDefinition
from bascule.hookspecs.kit import (
    ClientTransportSuite,
    ConverterSuite,
    ExposurePolicySuite,
    LinesOverTcp,
    LinesOverUnix,
    PermissionCheckSuite,
)

pytest_plugins = ["bascule.hookspecs.kit"]

pytestmark = [pytest.mark.slow, pytest.mark.req("D3", "D5")]

CALLER = Caller("mcp", "mcp-client", "mcp-server", "sse")


def tool(*groups: str) -> ToolDefinition:
    schema = {"type": "object"}
    return ToolDefinition("a.b", "", schema, plugin_id="a", remote_name="b", alias="a__b", groups=frozenset(groups))


class TestTcp(ClientTransportSuite):
    transport, peer = tcp.TcpTransport(), LinesOverTcp


class TestUnix(ClientTransportSuite):
    transport, peer = example("bascule-unix-transport").UnixTransport(), LinesOverUnix


# --- a framing of its own ---------------------------------------------------------------------------------

websockets = pytest.importorskip("websockets", reason="NOT TESTED HERE: the WebSocket example needs websockets")
ConnectionClosed = websockets.ConnectionClosed


class WebSocketEnd:
    """The server's end of a WebSocket. It reads only when it is asked to: the library's queue is short."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.over = asyncio.Event()

    async def send(self, message: bytes) -> None:
        with suppress(ConnectionClosed):
            await self._socket.send(message.decode())

    async def receive(self) -> bytes:
        try:
            return bytes(await self._socket.recv(decode=False))
        except ConnectionClosed:
            return b""

    async def close(self) -> None:
        await self._socket.close()
        self.over.set()

    async def abort(self) -> None:
        self._socket.transport.abort()


class WebSocketPeer:
    """A server behind a WebSocket, for the kit."""

    def __init__(self, folder: Path) -> None:
        self._waiting: asyncio.Queue[WebSocketEnd] = asyncio.Queue()
        self._ends: list[WebSocketEnd] = []
        self.backend: Mapping[str, Any] = {}

    async def __aenter__(self) -> WebSocketPeer:
        async def attend(socket: Any) -> None:
            end = WebSocketEnd(socket)
            self._ends.append(end)
            self._waiting.put_nowait(end)
            await end.over.wait()

        from websockets.asyncio.server import serve

        self._server = await serve(
            attend,
            "127.0.0.1",
            0,
            max_size=None,
            max_queue=2,
            write_limit=65_536,
            compression=None,
            close_timeout=1,
            subprotocols=["mcp"],
        )
        port = self._server.sockets[0].getsockname()[1]
        self.backend = {"url": f"ws://127.0.0.1:{port}"}
        return self

    async def accept(self) -> WebSocketEnd:
        return await self._waiting.get()

    async def __aexit__(self, *error: object) -> None:
        for end in self._ends:
            end._socket.transport.abort()
            end.over.set()
        self._server.close()
        await self._server.wait_closed()


class TestWebSocket(ClientTransportSuite):
    transport, peer = example("bascule-websocket-transport").WebSocketTransport(), WebSocketPeer


# --- the other families -----------------------------------------------------------------------------------


class TestGemini(ConverterSuite):
    converter = example("gemini-converter").GeminiConverter()

    def write_call(self, name: str, arguments: JsonObject) -> JsonObject:
        return {"functionCall": {"name": name, "args": arguments}}


def case(**arguments: object) -> tuple[ToolCall, ToolDefinition, CallFacts]:
    return ToolCall("a.b", arguments, CALLER), tool(), CallFacts(frozenset(), "production", Exposure())


_ask = example("ask-command-check")
_DECIDES = "import json, sys; call = json.load(sys.stdin); print('not this'); sys.exit('secret' in call['arguments'])"


class TestAskCommand(PermissionCheckSuite):
    permission_check = _ask.AskCommand((sys.executable, "-I", "-S", "-c", _DECIDES))
    denies = (case(secret=1),)
    allows = (case(text="x"),)
    broken = _ask.AskCommand(("/no/such/command",))
    examples = 5
    seconds = 60.0  # twenty interpreters at once


@pytest.mark.parametrize("command", [(), ("",), (sys.executable, "-c", "import sys; sys.exit(3)")])
async def test_whoever_asks_no_command_is_told_no(command: tuple[str, ...]) -> None:
    answer = await _ask.AskCommand(command)(*case())
    assert "the command that decides" in answer.reason


_hours = example("office-hours-policy")


class TestOfficeHours(ExposurePolicySuite):
    policy = _hours.OfficeHours(_hours.OfficeHoursSettings(), clock=lambda: time(12))
    shows = ((tool("writing"), CALLER, Exposure()), (tool(), CALLER, Exposure()))


class TestOfficeHoursAtNight(ExposurePolicySuite):
    policy = _hours.OfficeHours(_hours.OfficeHoursSettings(), clock=lambda: time(22))
    shows = ((tool("reading"), CALLER, Exposure()),)
    hides = ((tool("writing"), CALLER, Exposure()),)


async def test_the_observer_writes_a_line_an_event(strangers: Any, host: Any, echo: Path, settings: Any, until: Any):
    strangers.install("json-lines-observer")
    async with host(echo) as bridge, bridge.run("test") as run:
        await run.call("mcp-fixture.echo", {"message": "hello"})
    path = settings.state / "hook-plugins" / "json_lines" / "events.jsonl"

    def written() -> list[Any]:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    await until(lambda: any(line.get("plugin_state") == "disabled" for line in written()), 60)
    kinds = [line["event"] for line in written()]
    assert kinds.index("ToolsChanged") < kinds.index("CallEnded") < len(kinds) - 1
