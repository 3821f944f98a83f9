"""Client transports: begin, end, cancellation, back-pressure, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ChannelClosed, ChannelFault, PluginHostStartFailed
from .client_base import KIB, ClientTransportBase, local_launcher
from .connection import Collector, Connection, Heard, Launches, Opened, raw
from .faults import Fault, NotApplicable, until, words
from .messages import compare, numbered
from .suite import check
from .watch import Belongings

_FLOOD = 24 * 1024 * KIB
_STEPS = 24


class _OurOwn(Exception):
    """Goes through the connection's context and must come out as it is."""


class EndChecks(ClientTransportBase):
    """How a connection ends, whoever ends it."""

    @check
    async def test_an_end_in_order_ends_the_iteration_after_the_last_message(self, folder: Path) -> None:
        messages = numbered(50)
        async with self.connected(folder) as it:
            for message in messages:
                await it.end.send(message)
            await it.end.close()
            collector = Collector(it.channel)
            await self.until(
                lambda: collector.over,
                "it swallows the end: the server has closed, and reading goes on without an end",
            )
            collector.ended_well()
            if isinstance(collector.error, ChannelFault):
                raise Fault(f"an end in order is told as a fault: {words(collector.error)}")
            compare(messages, collector.messages)

    @check
    async def test_a_message_that_is_cut_off_is_never_delivered(self, folder: Path) -> None:
        whole, cut = numbered(2)
        async with self.connected(folder) as it:
            end = raw(it.end)
            framed = end.framed(cut)
            await end.write(end.framed(whole) + framed[: len(framed) - max(1, len(framed) // 8)])
            await end.close()
            collector = Collector(it.channel)
            await self.until(lambda: collector.over, "it swallows the end that comes in the middle of a message")
            if len(collector.messages) > 1:
                raise Fault("it delivers a part of a message: the stream ended in the middle of it")
            collector.ended_well()
            if collector.error is None:
                raise Fault("it swallows the end: cut off in the middle of a message, it ends as if in order")
            compare([whole], collector.messages)

    @check
    async def test_a_message_whose_end_is_not_marked_is_never_delivered(self, folder: Path) -> None:
        (message,) = numbered(1)
        async with self.connected(folder) as it:
            end = raw(it.end)
            if not end.framed(message).startswith(message) or end.framed(message) == message:
                raise NotApplicable("its framing marks no end")
            await end.write(message)
            await end.close()
            collector = Collector(it.channel)
            await self.until(lambda: collector.over, "it swallows the end that comes in the middle of a message")
            if collector.messages:
                raise Fault("it delivers a part of a message: the stream ended before the mark of the message's end")

    @check
    async def test_a_connection_that_breaks_off_is_told(self, folder: Path) -> None:
        async with self.connected(folder) as it:
            if not hasattr(it.end, "abort"):
                raise NotApplicable("the peer has no abort: it can't break off so that one could tell")
            collector = Collector(it.channel)
            await it.end.send(numbered(1)[0])
            await self.until(lambda: collector.messages or collector.over, "it drops a message")
            await it.end.abort()
            await self.until(lambda: collector.over, "it swallows the end: the connection broke, and reading goes on")
            collector.ended_well()
            if collector.error is None:
                raise Fault("it swallows the end: the connection broke, and reading ends as if in order")

    @check
    async def test_after_the_servers_end_a_send_is_refused(self, folder: Path) -> None:
        async with self.connected(folder) as it:
            collector = Collector(it.channel)
            await it.end.close()
            await self.until(lambda: collector.over, "it swallows the end: reading goes on after the server closed")
            await self._refused(it, "after the server has closed")

    @check
    async def test_after_leaving_a_send_is_refused(self, folder: Path) -> None:
        async with self.connected(folder) as it:
            await it.leave()
            await self._refused(it, "after the connection was closed")

    async def _refused(self, it: Opened, when: str) -> None:
        for message in numbered(100, size=4 * KIB):
            try:
                await self.within(it.channel.send(message), f"a send {when} does not return")
            except ChannelClosed:
                return
            except Fault:
                raise
            except Exception as error:  # noqa: BLE001 - it is what is judged
                raise Fault(f"a send {when} raises {words(error)}; raise ChannelClosed instead") from None
            await asyncio.sleep(0.01)
        raise Fault(f"it sends on {when}, and swallows that nothing arrives; raise ChannelClosed")

    @check
    async def test_leaving_closes_the_connection(self, folder: Path) -> None:
        for number, error in enumerate((None, _OurOwn("this is the check's own"), asyncio.CancelledError())):
            place = folder / str(number)
            place.mkdir()
            async with self.connected(place) as it:
                await it.leave(error)
                await self._server_sees_the_end(it)

    async def _server_sees_the_end(self, it: Opened) -> None:
        while await self.within(
            it.end.receive(), "it never closes: the server sees no end after the connection was left"
        ):
            pass

    @check
    async def test_what_was_sent_before_leaving_arrives(self, folder: Path) -> None:
        messages = numbered(20)
        async with self.connected(folder) as it:
            await it.send_all(messages)
            hearing = asyncio.ensure_future(it.reaches_server(messages))
            await it.leave()
            try:
                await self.within(hearing, "what was sent before leaving does not arrive")
            except Fault as fault:
                raise Fault(f"of what was sent just before leaving, {fault}") from None

    @check
    async def test_leaving_closes_though_the_server_neither_reads_nor_closes(self, folder: Path) -> None:
        limits = replace(self.limits, write_seconds=0.2)
        async with self.served(folder) as peer:
            before = Belongings.here().files
            async with self.opened(peer, folder, limits) as it:
                await _fill(it)
                await it.leave()
                if not self.opener.transport.starts_process:
                    await self.until(
                        lambda: (Belongings.here().files - before).total() <= 1,  # the server's own end
                        "it never closes while the server does not read: what it could not send keeps it open",
                    )

    @check
    async def test_many_connections_one_after_the_other_leave_nothing(self, folder: Path) -> None:
        messages = numbered(3)
        async with self.served(folder) as peer:
            before = Belongings.here()
            for _ in range(3 if self.opener.transport.starts_process else 20):
                async with self.opened(peer, folder) as it:
                    await it.send_all(messages)
                    await it.reaches_server(messages)
                await it.end.close()
            await until(2, lambda: not before.left(), before.left)

    @check
    async def test_a_server_that_is_not_there_is_told(self, folder: Path) -> None:
        if self.opener.transport.starts_process:
            raise NotApplicable("it starts its server")
        async with self.served(folder) as peer:
            backend = self.opener.model(peer)
        context = self.opener.context(folder, self.limits, Launches(local_launcher, self.limits), Heard())
        connection = Connection(lambda: self.opener.transport.connect(backend, context), self.seconds)
        try:
            await connection.enter()
        except (ChannelClosed, PluginHostStartFailed):
            return
        except Fault as fault:
            raise Fault(f"where no server listens, {fault}") from None
        except Exception as error:  # noqa: BLE001 - it is what is judged
            text = "raise ChannelClosed or PluginHostStartFailed instead"
            raise Fault(f"where no server listens, connect raises {words(error)}; {text}") from None
        await connection.leave()
        raise Fault("connect returns though no server listens")


class CancellationChecks(ClientTransportBase):
    """Cancelling is heeded at once, and leaves nothing."""

    @check
    async def test_a_read_that_waits_can_be_cancelled(self, folder: Path) -> None:
        async with self.connected(folder) as it:
            collector = Collector(it.channel)
            await asyncio.sleep(0.02)
            await collector.stop(self.seconds)
            if collector.over:
                raise Fault("it ignores cancellation: a cancelled read ends as if the server had closed")

    @check
    async def test_a_send_that_waits_can_be_cancelled(self, folder: Path) -> None:
        async with self.connected(folder, replace(self.limits, write_seconds=60.0)) as it:
            stuck = asyncio.ensure_future(_fill(it))
            await _while_it_works(stuck)
            if stuck.done():
                return  # how much it takes is judged elsewhere
            stuck.cancel()
            done, _ = await asyncio.wait({stuck}, timeout=self.seconds)
            if not done:
                raise Fault("it ignores cancellation: a send that waits can't be cancelled")
            await self._whole_all_the_same(it)

    async def _whole_all_the_same(self, it: Opened) -> None:
        """What was under way when the send was cancelled is whole or is not there; what follows is whole."""
        (last,) = numbered(1, word="last")
        wanted = {*numbered(1, size=32 * KIB), last}
        sending = asyncio.ensure_future(it.channel.send(last))
        while (
            message := await self.within(it.end.receive(), "after a cancelled send, nothing arrives any more")
        ) != last:
            if message not in wanted:
                await asyncio.wait({sending}, timeout=self.seconds)
                raise Fault(f"a send that is cancelled leaves a part of its message on the wire: {message[-60:]!r}")
        await self.within(sending, "after a cancelled send, a send does not return")

    @check
    async def test_connect_can_be_cancelled_at_any_step(self, folder: Path) -> None:
        async with self.served(folder) as peer:
            backend, launches = self.opener.model(peer), Launches(local_launcher, self.limits)
            context = self.opener.context(folder, self.limits, launches, Heard())
            before = Belongings.here()
            for step in range(0, _STEPS, 6 if self.opener.transport.starts_process else 1):
                task = asyncio.create_task(self._hold(backend, context))
                for _ in range(step):
                    await asyncio.sleep(0)
                task.cancel()
                done, _ = await asyncio.wait({task}, timeout=self.seconds)
                if not done:
                    raise Fault("it ignores cancellation: connect, cancelled, goes on")
                if not task.cancelled():
                    shown = words(error) if (error := task.exception()) else "nothing"
                    raise Fault(f"it ignores cancellation: connect, cancelled, raises {shown}")
            await launches.end()
        with suppress(asyncio.QueueEmpty):
            await until(2, lambda: not before.left(), lambda: f"connect, cancelled, leaks: {before.left()}")

    async def _hold(self, backend: object, context: object) -> None:
        async with self.opener.transport.connect(backend, context):
            await asyncio.Event().wait()


class PressureChecks(ClientTransportBase):
    """Whoever is slow is waited for, and nothing is kept without bound."""

    @check
    async def test_what_nobody_reads_is_not_taken_without_bound(self, folder: Path) -> None:
        message = numbered(1, size=32 * KIB)[0]
        async with self.connected(folder) as it:
            sent = 0

            async def flood() -> None:
                nonlocal sent
                while sent * len(message) < _FLOOD:
                    await it.end.send(message)
                    sent += 1

            flooding = asyncio.ensure_future(flood())
            await _until_still(lambda: sent, flooding)
            if flooding.done():
                raise Fault(
                    f"it ignores back-pressure: it reads without bound, {_FLOOD >> 20} MiB that nobody has asked for"
                )
            flooding.cancel()
            await asyncio.wait({flooding}, timeout=self.seconds)

    @check
    async def test_what_a_slow_reader_left_waiting_arrives(self, folder: Path) -> None:
        messages = numbered(200, size=20 * KIB)
        async with self.connected(folder) as it:
            collector_needed = asyncio.ensure_future(_say_all(it, messages))
            await asyncio.sleep(0.1)
            await it.receive(messages, collector_needed)

    @check
    async def test_a_server_that_does_not_read_fails_a_send_within_the_bound(self, folder: Path) -> None:
        async with self.connected(folder, replace(self.limits, write_seconds=0.3)) as it:
            filling = asyncio.ensure_future(_fill(it))
            done, _ = await asyncio.wait({filling}, timeout=self.seconds)
            if not done:
                filling.cancel()
                raise Fault("it waits without bound: a send to a server that does not read never returns")
            error = filling.result()
            if error is None:
                raise Fault(f"it ignores back-pressure: {_FLOOD >> 20} MiB were sent to a server that does not read")
            if not isinstance(error, ChannelClosed):
                raise Fault(f"a send to a server that does not read raises {words(error)}, not ChannelClosed")

    @check
    async def test_a_slow_server_is_waited_for(self, folder: Path) -> None:
        messages = numbered(200, size=20 * KIB)
        async with self.connected(folder) as it:
            sending = asyncio.ensure_future(it.send_all(messages))
            await asyncio.sleep(0.1)
            await it.reaches_server(messages)
            await self.within(sending, "send does not return though everything has arrived")


async def _say_all(it: Opened, messages: list[bytes]) -> None:
    for message in messages:
        await it.end.send(message)


async def _fill(it: Opened) -> BaseException | None:
    """Send until it raises; ``None`` where it takes everything."""
    message = numbered(1, size=32 * KIB)[0]
    for _ in range(_FLOOD // len(message)):
        try:
            await it.channel.send(message)
        except Exception as error:  # noqa: BLE001 - it is what is judged
            return error
    return None


async def _while_it_works(task: asyncio.Future[Any]) -> None:
    for _ in range(40):
        if task.done():
            return
        await asyncio.sleep(0.01)


async def _until_still(count: Callable[[], int], task: asyncio.Future[None]) -> None:
    """Wait until the count stands still for a hundred turns of the loop, each of which could have moved it."""
    still, last = 0, -1
    while still < 100 and not task.done():
        await asyncio.sleep(0.005)
        now = count()
        still, last = (still + 1, last) if now == last else (0, now)
