"""Client transports that are wrong in one way each: the example transport `tcp`, altered."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import create_model

from bascule.hookspecs import ChannelClosed, ChannelFault

EXAMPLES = Path(__file__).resolve().parents[1] / "fixtures" / "hook-plugins"


def example(name: str) -> ModuleType:
    """The module of an example distribution, loaded from its folder."""
    module = name.replace("-", "_")
    spec = importlib.util.spec_from_file_location(module, EXAMPLES / name / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


tcp = example("bascule-tcp-transport")

Messages = AsyncIterator[bytes]
MUTANTS: dict[str, tuple[Any, str, str, float]] = {}
"""A wrong transport, the check that catches it, what it says, and how long it waits for what will not come."""


def mutant(check: str, told: str, *, hangs: bool = False) -> Callable[[type], type]:
    """Register a wrong transport."""

    def register(kind: type) -> type:
        MUTANTS[kind.__name__] = (kind, f"test_{check}", told, 4.0 if hangs else 20.0)
        return kind

    return register


class Altered(tcp.TcpTransport):  # type: ignore[name-defined,misc]
    """The example with its channel wrapped. What is not overridden is right."""

    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async with super().connect(backend, context) as channel:
            yield Wrapped(self, channel)

    async def sending(self, channel: Any, message: bytes) -> None:
        await channel.send(message)

    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            yield message


class Wrapped:
    def __init__(self, transport: Altered, channel: Any) -> None:
        self.transport, self.channel, self.state = transport, channel, {}

    async def send(self, message: bytes) -> None:
        await self.transport.sending(self.channel, message)

    def __aiter__(self) -> Messages:
        return self.transport.reading(self.channel)


IN = "messages_from_the_server_arrive_once_and_in_order"
OUT = "messages_to_the_server_arrive_once_and_in_order"


@mutant(IN, "drops a message")
class DropsOneThatComes(Altered):
    async def reading(self, channel: Any) -> Messages:
        number = 0
        async for message in channel:
            number += 1
            if number != 17:
                yield message


@mutant(OUT, "drops a message")
class DropsOneThatGoes(Altered):
    sent = 0

    async def sending(self, channel: Any, message: bytes) -> None:
        self.sent += 1
        if self.sent != 17:
            await channel.send(message)


@mutant(IN, "reorders")
class ReordersPairs(Altered):
    async def reading(self, channel: Any) -> Messages:
        held = None
        async for message in channel:
            if held is None:
                held = message
            else:
                yield message
                yield held
                held = None


@mutant(OUT, "reorders")
class ReordersWhatGoes(Altered):
    held: bytes | None = None

    async def sending(self, channel: Any, message: bytes) -> None:
        if self.held is None:
            self.held = message
        else:
            await channel.send(message)
            await channel.send(self.held)
            self.held = None


@mutant(IN, "splits")
class SplitsLongOnes(Altered):
    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            if len(message) > 500:
                yield message[:400]
                yield message[400:]
            else:
                yield message


@mutant("how_the_wire_cuts_the_bytes_does_not_matter", "splits a message")
class TakesEachReadForAMessage(Altered):
    async def reading(self, channel: Any) -> Messages:
        while chunk := await channel._reader.read(65_536):
            yield chunk


@mutant(IN, "merges", hangs=True)
class Merges(Altered):
    async def reading(self, channel: Any) -> Messages:
        held = b""
        async for message in channel:
            held += message
            if len(held) > 1_000:
                yield held
                held = b""


@mutant(IN, "truncates")
class Truncates(Altered):
    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            yield message[:512]


@mutant(IN, "duplicates")
class Duplicates(Altered):
    async def reading(self, channel: Any) -> Messages:
        number = 0
        async for message in channel:
            number += 1
            yield message
            if number == 20:
                yield message


@mutant(OUT, "duplicates")
class SendsOneTwice(Altered):
    sent = 0

    async def sending(self, channel: Any, message: bytes) -> None:
        self.sent += 1
        await channel.send(message)
        if self.sent == 20:
            await channel.send(message)


@mutant("any_json_passes_unchanged", "re-encodes")
class ReEncodes(Altered):
    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            yield json.dumps(json.loads(message)).encode()


@mutant("any_json_passes_unchanged", "splits")
class SplitsAtUnicodeLines(Altered):
    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            for line in message.decode().splitlines():
                yield line.encode()


@mutant("any_json_passes_unchanged", "alters")
class DecodesAsLatin(Altered):
    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            yield message.decode("latin-1").encode()


@mutant(IN, "hands over a str")
class YieldsText(Altered):
    async def reading(self, channel: Any) -> Any:
        async for message in channel:
            yield message.decode()


@mutant("one_message_is_handed_over_before_the_next_one_comes", "holds back", hangs=True)
class HoldsOneBack(Altered):
    async def reading(self, channel: Any) -> Messages:
        held = None
        async for message in channel:
            if held is not None:
                yield held
            held = message
        if held is not None:
            yield held


@mutant("leaving_closes_the_connection", "never closes", hangs=True)
class NeverCloses(Altered):
    kept: list[Any] = []  # noqa: RUF012 - it is a fault

    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection(backend.host, backend.port, limit=98_301)
        self.kept.append(writer)
        yield tcp.TcpChannel(reader, writer, 1)


@mutant("leaving_closes_the_connection", r"leaks \d task")
class LeaksATask(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        self.task = asyncio.create_task(asyncio.sleep(3600))
        async with super().connect(backend, context) as channel:
            yield channel


@mutant("leaving_closes_the_connection", r"leaks \d thread")
class LeaksAThread(Altered):
    over = threading.Event()

    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        threading.Thread(target=self.over.wait, args=(20,), daemon=True).start()
        async with super().connect(backend, context) as channel:
            yield channel


@mutant("many_connections_one_after_the_other_leave_nothing", "file descriptor")
class LeaksAFile(Altered):
    kept: list[Any] = []  # noqa: RUF012 - it is a fault

    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        self.kept.append(socket.socketpair())
        async with super().connect(backend, context) as channel:
            yield channel


@mutant("it_starts_what_its_preview_says_and_nothing_else", "starts a process by itself")
class StartsAProcess(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        child = await asyncio.create_subprocess_exec("sleep", "60")
        try:
            async with super().connect(backend, context) as channel:
                yield channel
        finally:
            child.kill()
            await child.wait()


@mutant("a_read_that_waits_can_be_cancelled", "ignores cancellation", hangs=True)
class IgnoresCancellationOfReads(Altered):
    async def reading(self, channel: Any) -> Messages:
        while True:
            try:
                line = await channel._reader.readline()
            except asyncio.CancelledError:
                continue
            if not line:
                return
            yield line


@mutant("connect_can_be_cancelled_at_any_step", "ignores cancellation", hangs=True)
class IgnoresCancellationOfConnect(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        opening = asyncio.ensure_future(asyncio.open_connection(backend.host, backend.port, limit=98_301))
        while not opening.done():
            try:
                await asyncio.shield(opening)
            except asyncio.CancelledError:
                continue
        reader, writer = opening.result()
        try:
            yield tcp.TcpChannel(reader, writer, 1)
        finally:
            writer.close()


@mutant("connect_can_be_cancelled_at_any_step", "leaks")
class LeaksWhenConnectIsCancelled(Altered):
    kept: list[Any] = []  # noqa: RUF012 - it is a fault

    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection(backend.host, backend.port, limit=98_301)
        self.kept.append(writer)
        await asyncio.sleep(0)
        try:
            yield tcp.TcpChannel(reader, writer, 1)
        finally:
            writer.close()


@mutant("nothing_blocks_the_event_loop", "blocks the event loop: sleep")
class SleepsInSend(Altered):
    async def sending(self, channel: Any, message: bytes) -> None:
        time.sleep(0.001)  # noqa: ASYNC251 - it is a fault
        await channel.send(message)


@mutant(OUT, "blocks the event loop", hangs=True)
class BlocksForAWhile(Altered):
    sent = 0

    async def sending(self, channel: Any, message: bytes) -> None:
        self.sent += 1
        if self.sent == 3:
            threading.Event().wait(3)
        await channel.send(message)


@mutant("leaving_closes_the_connection", "blocks the event loop", hangs=True)
class BlocksForEver(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        sock = socket.create_connection((backend.host, backend.port))
        try:
            sock.recv(1)  # the server runs on this very loop
            yield None
        finally:
            sock.close()


LONG = "a_message_over_the_limit_is_a_fault_and_nothing_follows_it"


@mutant(LONG, "exceeds the limit")
class TakesLongOnes(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection(backend.host, backend.port, limit=1 << 24)
        try:
            yield tcp.TcpChannel(reader, writer, 1)
        finally:
            writer.close()


@mutant(LONG, "exceeds the limit")
class SkipsLongOnes(Altered):
    async def reading(self, channel: Any) -> Messages:
        while True:
            try:
                line = await channel._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                await channel._reader.readexactly(error.consumed)
                continue
            except asyncio.IncompleteReadError:
                return
            yield line


@mutant("a_message_of_the_longest_size_passes", "reading breaks off with ChannelFault")
class AllowsOneByteTooFew(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection(backend.host, backend.port, limit=98_300)
        try:
            yield tcp.TcpChannel(reader, writer, 1)
        finally:
            writer.close()


@mutant("an_end_in_order_ends_the_iteration_after_the_last_message", "swallows the end", hangs=True)
class SwallowsTheEnd(Altered):
    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            yield message
        await asyncio.Event().wait()


@mutant("a_connection_that_breaks_off_is_told", "swallows the end")
class TakesABreakForAnEnd(Altered):
    async def reading(self, channel: Any) -> Messages:
        try:
            async for message in channel:
                yield message
        except ChannelClosed:
            return


@mutant("a_connection_that_breaks_off_is_told", "raise ChannelClosed or ChannelFault")
class LetsOtherErrorsOut(Altered):
    async def reading(self, channel: Any) -> Messages:
        while line := await channel._reader.readline():
            yield line


@mutant("a_message_that_is_cut_off_is_never_delivered", "delivers a part of a message")
class DeliversHalfAMessage(Altered):
    async def reading(self, channel: Any) -> Messages:
        while line := await channel._reader.readline():
            yield line


@mutant("leaving_closes_the_connection", "raises when it is closed")
class RaisesInClose(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async with super().connect(backend, context) as channel:
            yield channel
        raise LookupError("no such connection")


@mutant("leaving_closes_the_connection", "swallows an exception")
class SwallowsExceptions(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async with super().connect(backend, context) as channel:
            with suppress(Exception):
                yield channel


@mutant("after_leaving_a_send_is_refused", "sends on after the connection was closed")
class SwallowsSendsAfterTheEnd(Altered):
    async def sending(self, channel: Any, message: bytes) -> None:
        try:
            await channel.send(message)
        except ChannelClosed:
            return


@mutant("after_the_servers_end_a_send_is_refused", "raise ChannelClosed instead")
class RaisesTheWrongErrorInSend(Altered):
    async def sending(self, channel: Any, message: bytes) -> None:
        channel._writer.write(message + b"\n")
        await channel._writer.drain()


@mutant("what_nobody_reads_is_not_taken_without_bound", "ignores back-pressure")
class ReadsWithoutBound(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async with super().connect(backend, context) as channel:
            queue: asyncio.Queue[bytes] = asyncio.Queue()
            reading = asyncio.create_task(self._fill(channel, queue))
            try:
                yield Queued(channel, queue)
            finally:
                reading.cancel()

    async def _fill(self, channel: Any, queue: Any) -> None:
        async for message in channel._channel if hasattr(channel, "_channel") else channel:
            queue.put_nowait(message)


class Queued:
    def __init__(self, channel: Any, queue: Any) -> None:
        self.send, self._queue = channel.send, queue

    async def __aiter__(self) -> Messages:
        while True:
            yield await self._queue.get()


@mutant("a_server_that_does_not_read_fails_a_send_within_the_bound", "ignores back-pressure")
class SendsWithoutBound(Altered):
    async def sending(self, channel: Any, message: bytes) -> None:
        channel._writer.write(message + b"\n")
        await asyncio.sleep(0)


@mutant("a_server_that_does_not_read_fails_a_send_within_the_bound", "waits without bound", hangs=True)
class WaitsForEverToSend(Altered):
    async def sending(self, channel: Any, message: bytes) -> None:
        channel._writer.write(message + b"\n")
        await channel._writer.drain()


@mutant("sends_at_the_same_time_do_not_mix", "mixes")
class MixesSends(Altered):
    async def sending(self, channel: Any, message: bytes) -> None:
        for start in range(0, len(message), 8_192):
            channel._writer.write(message[start : start + 8_192])
            await asyncio.sleep(0)
        channel._writer.write(b"\n")
        await channel._writer.drain()


@mutant("two_connections_share_nothing", "share state")
class SharesStateBetweenChannels(Altered):
    shared: Any = None

    async def sending(self, channel: Any, message: bytes) -> None:
        self.shared = self.shared or channel
        await self.shared.send(message)


@mutant(IN, "connect does not return", hangs=True)
class NeverConnects(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async with super().connect(backend, context) as channel:
            await anext(aiter(channel))  # waits for a greeting that MCP does not have
            yield channel


@mutant("a_server_that_is_not_there_is_told", "raise ChannelClosed or PluginHostStartFailed")
class LetsConnectionRefusedOut(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection(backend.host, backend.port, limit=98_301)
        try:
            yield tcp.TcpChannel(reader, writer, 1)
        finally:
            writer.close()


@mutant(OUT, "nothing that was sent")
class SendsAGreeting(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async with super().connect(backend, context) as channel:
            await channel.send(b'{"hello": "server"}')
            yield channel


@mutant("what_was_sent_before_leaving_arrives", "drops a message")
class DropsTheLastOnesWhenLeft(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async with super().connect(backend, context) as channel:
            waiting: list[bytes] = []
            work = asyncio.create_task(self._later(channel, waiting))
            try:
                yield Later(channel, waiting)
            finally:
                work.cancel()

    async def _later(self, channel: Any, waiting: list[bytes]) -> None:
        while True:
            await asyncio.sleep(60)
            while waiting:
                await channel.send(waiting.pop(0))


class Later:
    def __init__(self, channel: Any, waiting: list[bytes]) -> None:
        self._channel, self._waiting = channel, waiting

    async def send(self, message: bytes) -> None:
        self._waiting.append(message)

    def __aiter__(self) -> Messages:
        return aiter(self._channel)


@mutant("its_backend_refuses_unknown_keys", "takes unknown keys")
class TakesUnknownKeys(Altered):
    backend_model = create_model("Lax", __base__=tcp.TcpBackend)
    backend_model.model_config["extra"] = "ignore"
    backend_model.model_rebuild(force=True)


@mutant("its_preview_says_what_would_start_and_starts_nothing", "its preview")
class SaysThatItStartsAProcess(Altered):
    starts_process = True


@mutant("nothing_is_printed", "prints to stdout")
class Prints(Altered):
    async def sending(self, channel: Any, message: bytes) -> None:
        print("sending", len(message))
        await channel.send(message)


@mutant(IN, "changes the environment")
class ChangesTheEnvironment(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        os.environ["KIT_MUTANT"] = str(time.time())
        async with super().connect(backend, context) as channel:
            yield channel


@mutant(IN, "an exception that no one takes")
class LeavesAnException(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async def fails() -> None:
            raise LookupError("unseen")

        asyncio.create_task(fails())  # noqa: RUF006 - it is a fault
        async with super().connect(backend, context) as channel:
            yield channel


@mutant("a_bridge_hosts_a_server_through_it", "can't be started again")
class ConnectsOnce(Altered):
    used = False

    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        if self.used:
            raise ChannelClosed("it was used before")
        self.used = True
        async with super().connect(backend, context) as channel:
            yield channel


@mutant("a_message_of_the_longest_size_passes", "reading breaks off with ChannelFault")
class HasALimitOfItsOwn(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection(backend.host, backend.port)
        try:
            yield tcp.TcpChannel(reader, writer, 1)
        finally:
            writer.close()


@mutant("silence_is_no_end_and_is_kept", "takes silence for the end")
class TakesSilenceForTheEnd(Altered):
    async def reading(self, channel: Any) -> Messages:
        while True:
            try:
                yield await asyncio.wait_for(channel._reader.readline(), 0.05)
            except TimeoutError:
                return


@mutant("silence_is_no_end_and_is_kept", "sends what nobody asked it to send")
class SendsHeartbeats(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        async with super().connect(backend, context) as channel:
            beating = asyncio.create_task(self._beat(channel))
            try:
                yield channel
            finally:
                beating.cancel()

    async def _beat(self, channel: Any) -> None:
        while True:
            await asyncio.sleep(0.02)
            await channel.send(b'{"jsonrpc":"2.0","method":"ping"}')


@mutant("a_send_that_waits_can_be_cancelled", "leaves a part of its message on the wire", hangs=True)
class LeavesHalfAMessage(Altered):
    async def sending(self, channel: Any, message: bytes) -> None:
        for start in range(0, len(message), 4_096):
            channel._writer.write(message[start : start + 4_096])
            await channel._writer.drain()
        channel._writer.write(b"\n")


@mutant("the_limit_counts_bytes_and_not_letters", "exceeds the limit")
class CountsLetters(Altered):
    @asynccontextmanager
    async def connect(self, backend: Any, context: Any) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection(backend.host, backend.port, limit=1 << 22)
        self.most = context.limits.message_bytes
        try:
            yield Wrapped(self, tcp.TcpChannel(reader, writer, 1))
        finally:
            writer.close()

    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            if len(message.decode()) > self.most:
                raise ChannelFault("too long")
            yield message


@mutant(IN, "connect raises TypeError")
class IsNoContext(Altered):
    def connect(self, backend: Any, context: Any) -> Any:
        return tcp.TcpChannel(None, None, 1)  # it should have been a context manager


@mutant(IN, "reading breaks off with KeyError")
class BreaksOnTheWay(Altered):
    async def reading(self, channel: Any) -> Messages:
        async for message in channel:
            json.loads(message)["id"]  # not every message has one
            yield message
