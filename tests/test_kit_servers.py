"""The conformance kit catches what is wrong with server transports, and names it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit_mutants import example

from bascule.hookspecs import Bind, CallError, Exposure, HttpPolicy, Limits, ToolCall
from bascule.hookspecs.kit import McpClient, ServerTransportSuite, faults, free_port, mcp_over_stream
from bascule.hookspecs.kit.suite import run

pytestmark = [pytest.mark.slow, pytest.mark.req("D3", "D5", "A4")]

unix = example("bascule-unix-server")


class Suite(ServerTransportSuite):
    seconds = 8.0
    kind: Any = unix.UnixServer

    def make(self, exposure: Exposure, folder: Path) -> Any:
        return self.kind(folder / "u", exposure, Limits())

    def address(self, transport: Any) -> Any:
        return transport.path

    @asynccontextmanager
    async def client(self, transport: Any) -> AsyncIterator[McpClient]:
        streams = await asyncio.open_unix_connection(transport.path)
        async with mcp_over_stream(*streams) as client:
            yield client


class TestExample(Suite):
    seconds = 20.0


class View:
    """The bridge as a transport sees it, altered."""

    def __init__(self, bridge: Any) -> None:
        self._bridge = bridge
        self.gateway: Any = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bridge, name)

    async def attend(self, channel: Any, caller: Any, options: Any) -> None:
        await self._bridge.gateway.attend(channel, caller, options)


class Altered(unix.UnixServer):  # type: ignore[name-defined,misc]
    @asynccontextmanager
    async def serve(self, bridge: Any) -> AsyncIterator[None]:
        async with super().serve(self.view(bridge)):
            yield

    def view(self, bridge: Any) -> Any:
        return View(bridge)


class KnowsNoExposure(Altered):
    def __init__(self, path: Path, exposure: Exposure, limits: Limits) -> None:
        super().__init__(path, Exposure(allow_restricted=True), limits)


class OneSessionForAll(Altered):
    def view(self, bridge: Any) -> Any:
        class Same(View):
            async def attend(self, channel: Any, caller: Any, options: Any) -> None:
                await super().attend(channel, replace(caller, session="all"), options)

        return Same(bridge)


class AnotherName(Altered):
    def view(self, bridge: Any) -> Any:
        class Other(View):
            async def attend(self, channel: Any, caller: Any, options: Any) -> None:
                await super().attend(channel, replace(caller, transport="sse"), options)

        return Other(bridge)


class RunsOn(Altered):
    """What was begun is never cancelled."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kept: list[Any] = []

    def view(self, bridge: Any) -> Any:
        kept = self._kept

        class Kept(View):
            async def attend(self, channel: Any, caller: Any, options: Any) -> None:
                kept.append(asyncio.ensure_future(super().attend(Endless(channel), caller, options)))
                await asyncio.shield(kept[-1])

        return Kept(bridge)


class Endless:
    def __init__(self, channel: Any) -> None:
        self.send, self._channel = channel.send, channel

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for message in self._channel:
            yield message
        await asyncio.Event().wait()


class OpenToAll(Altered):
    @asynccontextmanager
    async def serve(self, bridge: Any) -> AsyncIterator[None]:
        async with super().serve(bridge):
            self.path.chmod(0o666)
            yield


class NeverCloses(Altered):
    @asynccontextmanager
    async def serve(self, bridge: Any) -> AsyncIterator[None]:
        manager = super().serve(bridge)
        await manager.__aenter__()
        self.kept = manager
        yield


class RaisesWhenLeft(Altered):
    @asynccontextmanager
    async def serve(self, bridge: Any) -> AsyncIterator[None]:
        async with super().serve(bridge):
            yield
        raise LookupError("where is the socket?")


class DiesOfGarbage(Altered):
    """The first client that ends oddly takes the listener with it."""

    def view(self, bridge: Any) -> Any:
        path = self.path

        class Fragile(View):
            async def attend(self, channel: Any, caller: Any, options: Any) -> None:
                try:
                    await super().attend(channel, caller, options)
                finally:
                    path.unlink(missing_ok=True)

        return Fragile(bridge)


@pytest.mark.parametrize(
    ("wrong", "check", "told"),
    [
        (KnowsNoExposure, "what_is_listed_is_what_the_exposure_allows", "its exposure is"),
        (OneSessionForAll, "clients_at_once_are_told_apart", "two clients at once have one session"),
        (AnotherName, "the_bridge_knows_who_calls", "carry the transport 'sse'"),
        (RunsOn, "a_client_that_leaves_cancels_its_call", "runs on"),
        (RunsOn, "leaving_ends_what_runs_and_frees_the_address", "lets calls run on"),
        (RunsOn, "calls_at_once_get_their_own_answers", "it leaks"),
        (OpenToAll, "the_door_is_guarded", "open to other users"),
        (NeverCloses, "leaving_ends_what_runs_and_frees_the_address", "leaves a client without an end"),
        (NeverCloses, "entered_means_accepting_and_calls_are_answered", "it leaks"),
        (RaisesWhenLeft, "entered_means_accepting_and_calls_are_answered", "raises when it is left"),
        (DiesOfGarbage, "garbage_harms_no_one_else", "does not accept|can't connect"),
    ],
)
def test_a_wrong_server_transport_is_caught(wrong: type, check: str, told: str) -> None:
    suite = type(wrong.__name__, (Suite,), {"kind": wrong})
    with pytest.raises(AssertionError, match=told):
        run(suite(), getattr(suite, f"test_{check}").scenario)


class Lines:
    """`TOOL {"json": …}` a line, on a port: it makes its own decisions, and no one stands before its door."""

    name = "lines"

    def __init__(self, exposure: Exposure, port: int, host: str = "127.0.0.1") -> None:
        self.exposure, self.bind = exposure, (host, port)

    @asynccontextmanager
    async def serve(self, bridge: Any) -> AsyncIterator[None]:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        async with bridge.serve_http(app, Bind(*self.bind), HttpPolicy()):
            yield


class Unguarded(Lines):
    @asynccontextmanager
    async def serve(self, bridge: Any) -> AsyncIterator[None]:
        async def attend(reader: Any, writer: Any) -> None:
            with closing(writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()

        async with await asyncio.start_server(attend, *self.bind):
            yield


@pytest.mark.parametrize(("kind", "told"), [(Lines, None), (Unguarded, "the guard is not on")])
def test_a_door_without_a_guard_is_found(kind: Any, told: str | None) -> None:
    class Http(ServerTransportSuite):
        http = True

        def make(self, exposure: Exposure, folder: Path) -> Any:
            return kind(exposure, free_port())

        def address(self, transport: Any) -> Any:
            return transport.bind

    if told is None:
        run(Http(), Http.test_the_door_is_guarded.scenario)
    else:
        with pytest.raises(AssertionError, match=told):
            run(Http(), Http.test_the_door_is_guarded.scenario)


def test_a_port_beyond_this_machine_without_tokens_is_found() -> None:
    class Open(Suite):
        def address(self, transport: Any) -> Any:
            return ("192.0.2.1", 7000)

    with pytest.raises(AssertionError, match="listens beyond this machine"):
        run(Open(), Open.test_the_door_is_guarded.scenario)


class CallsAsItLikes(Altered):
    """Lists through one door and calls through another."""

    def view(self, bridge: Any) -> Any:
        class Two(View):
            async def attend(self, channel: Any, caller: Any, options: Any) -> None:
                await super().attend(Answering(channel, bridge, caller), caller, options)

        return Two(bridge)


class Answering:
    def __init__(self, channel: Any, bridge: Any, caller: Any) -> None:
        self.send, self._channel, self._bridge, self._caller = channel.send, channel, bridge, caller

    async def __aiter__(self) -> AsyncIterator[bytes]:
        import json

        async for message in self._channel:
            request = json.loads(message)
            if request.get("method") != "tools/call":
                yield message
                continue
            tool = request["params"]["name"]
            try:
                result = await self._bridge.gateway.call(ToolCall(tool, request["params"]["arguments"], self._caller))
                answer: Any = {"content": [{"type": "text", "text": result.text}]}
            except CallError:
                answer = {"content": []}  # it swallows every no
            await self.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}).encode())


def test_a_no_that_does_not_come_out_is_found() -> None:
    class Swallows(Suite):
        kind = CallsAsItLikes

    found = faults(Swallows)
    assert "a permission check denied" in found["test_a_call_that_is_denied_has_failed"]
    assert "can be called" in found["test_what_is_not_listed_can_not_be_called"]
