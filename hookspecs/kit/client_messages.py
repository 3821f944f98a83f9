"""Client transports: messages arrive whole, once, in order, and within the bounds."""

from __future__ import annotations

import asyncio
import contextlib
import io
from pathlib import Path

from ..errors import ChannelClosed, ChannelFault
from .client_base import KIB, ClientTransportBase
from .connection import Collector, Opened, raw
from .faults import Fault, NotApplicable, words
from .messages import awkward, compare, numbered
from .peers import PeerEnd
from .suite import check
from .watch import no_blocking_calls

_COUNT = 1_100


async def _say(end: PeerEnd, messages: list[bytes]) -> None:
    for message in messages:
        await end.send(message)


class MessageChecks(ClientTransportBase):
    """Framing, order, content, limits."""

    @check
    async def test_messages_from_the_server_arrive_once_and_in_order(self, folder: Path) -> None:
        messages = numbered(_COUNT)
        async with self.connected(folder) as it:
            await it.receive(messages, _say(it.end, messages))

    @check
    async def test_messages_to_the_server_arrive_once_and_in_order(self, folder: Path) -> None:
        messages = numbered(_COUNT)
        async with self.connected(folder) as it:
            sending = asyncio.ensure_future(it.send_all(messages))
            await it.reaches_server(messages)
            await self.within(sending, "send does not return though everything has arrived")
            await _silence_follows(it)

    @check
    async def test_both_directions_run_at_once_and_do_not_mix(self, folder: Path) -> None:
        down, up = numbered(_COUNT, word="down"), numbered(_COUNT, word="up")
        async with self.connected(folder) as it:
            sending = asyncio.ensure_future(it.send_all(up))
            hearing = asyncio.ensure_future(it.reaches_server(up))
            try:
                await it.receive(down, _say(it.end, down))
                await self.within(asyncio.gather(sending, hearing), "messages to the server do not arrive")
            finally:
                sending.cancel()
                hearing.cancel()
                await asyncio.wait({sending, hearing}, timeout=1)

    @check
    async def test_one_message_is_handed_over_before_the_next_one_comes(self, folder: Path) -> None:
        async with self.connected(folder) as it:
            collector = Collector(it.channel)
            for number, message in enumerate(numbered(5), 1):
                await it.end.send(message)
                await self.until(
                    lambda number=number: len(collector.messages) >= number or collector.over,  # type: ignore[misc]
                    f"it holds back a message until the next one comes, or drops it: number {number} did not arrive",
                )
            compare(numbered(5), collector.messages)
            await collector.stop(self.seconds)

    @check
    async def test_any_json_passes_unchanged(self, folder: Path) -> None:
        messages = awkward()
        async with self.connected(folder) as it:
            await it.receive(messages, _say(it.end, messages))
            await it.send_all(messages)
            await it.reaches_server(messages)

    @check
    async def test_a_message_of_the_longest_size_passes(self, folder: Path) -> None:
        longest = numbered(3, size=self.limits.message_bytes)
        for message in longest:
            assert len(message) == self.limits.message_bytes  # noqa: S101 - the kit's own affair
        async with self.connected(folder) as it:
            await it.receive(longest, _say(it.end, longest))
            sending = asyncio.ensure_future(it.send_all(longest))
            await it.reaches_server(longest)
            await self.within(sending, "send does not return though everything has arrived")

    @check
    async def test_a_message_over_the_limit_is_a_fault_and_nothing_follows_it(self, folder: Path) -> None:
        limit = self.limits.message_bytes
        ok, after = numbered(2)
        async with self.connected(folder) as it:
            collector = Collector(it.channel)
            saying = asyncio.ensure_future(_say(it.end, [ok, *numbered(1, size=limit + 1, word="long"), after]))
            await self._faulted(collector, ok, limit)
            saying.cancel()
            await asyncio.wait({saying}, timeout=self.seconds)
            await collector.stop()

    @check
    async def test_the_limit_counts_bytes_and_not_letters(self, folder: Path) -> None:
        limit = self.limits.message_bytes
        ok, after = numbered(2)
        long = b'{"jsonrpc":"2.0","method":"' + "漢".encode() * (limit // 3) + b'"}'
        async with self.connected(folder) as it:
            collector = Collector(it.channel)
            saying = asyncio.ensure_future(_say(it.end, [ok, long, after]))
            await self._faulted(collector, ok, limit)
            saying.cancel()
            await asyncio.wait({saying}, timeout=self.seconds)
            await collector.stop()

    @check
    async def test_silence_is_no_end_and_is_kept(self, folder: Path) -> None:
        messages = numbered(2)
        async with self.connected(folder) as it:
            collector = Collector(it.channel)
            hearing = asyncio.ensure_future(it.end.receive())
            await asyncio.wait({hearing, collector.task}, timeout=1.5, return_when=asyncio.FIRST_COMPLETED)
            if collector.over:
                raise Fault("it takes silence for the end: a server may have nothing to say for hours")
            if hearing.done():
                raise Fault(f"it sends what nobody asked it to send: {hearing.result()[:60]!r}")
            sending = asyncio.ensure_future(it.send_all(messages))
            compare(messages[:1], [await self.within(hearing, "after a silence, messages do not arrive")])
            await self.within(sending, "after a silence, a send does not return")
            for message in messages:
                await it.end.send(message)
            await self.until(
                lambda: len(collector.messages) >= 2 or collector.over, "after a silence, it drops a message"
            )
            compare(messages, collector.messages)
            await collector.stop()

    @check
    async def test_an_endless_message_is_a_fault_before_its_end(self, folder: Path) -> None:
        limit = self.limits.message_bytes
        (ok,) = numbered(1)
        async with self.connected(folder) as it:
            end = raw(it.end)
            collector = Collector(it.channel)

            async def endless() -> None:
                await end.send(ok)
                for _ in range(8):
                    await end.write(b"x" * limit)

            saying = asyncio.ensure_future(endless())
            await self._faulted(collector, ok, limit)
            saying.cancel()
            await asyncio.wait({saying}, timeout=self.seconds)
            await collector.stop()

    async def _faulted(self, collector: Collector, ok: bytes, limit: int) -> None:
        what = f"a message over limits.message_bytes ({limit:,} bytes)"
        await self.until(
            lambda: collector.over or len(collector.messages) > 1,
            f"it exceeds the limit: it waits on after {what}; raise ChannelFault as soon as that is known",
        )
        if len(collector.messages) > 1:
            raise Fault(f"it exceeds the limit: {what} does not end the reading; raise ChannelFault")
        if not isinstance(collector.error, ChannelFault):
            ended = words(collector.error) if collector.error is not None else "the end of the iteration"
            raise Fault(f"it exceeds the limit: {what} comes out as {ended}; raise ChannelFault")
        compare([ok], collector.messages)

    @check
    async def test_how_the_wire_cuts_the_bytes_does_not_matter(self, folder: Path) -> None:
        messages = [*numbered(3), *awkward()]
        async with self.connected(folder) as it:
            end = raw(it.end)
            stream = b"".join(end.framed(message) for message in messages)

            async def in_crumbs() -> None:
                for start in range(0, len(stream), 7):
                    await end.write(stream[start : start + 7])
                    await asyncio.sleep(0)

            await it.receive(messages, in_crumbs())
            await it.receive(messages, end.write(stream))

    @check
    async def test_sends_at_the_same_time_do_not_mix(self, folder: Path) -> None:
        messages = numbered(24, size=40 * KIB)
        async with self.connected(folder) as it:
            sending = asyncio.gather(*(it.send(message) for message in messages))
            got: list[bytes] = []
            while len(got) < len(messages):
                got.append(await self.within(it.end.receive(), "sent at once, messages are dropped on their way"))
                if not got[-1]:
                    break
            await self.within(sending, "sent at once, a send does not return")
            try:
                compare(sorted(messages), sorted(got))
            except Fault as fault:
                raise Fault(f"it mixes (interleaves) what is sent at the same time: {fault}") from None

    @check
    async def test_two_connections_share_nothing(self, folder: Path) -> None:
        one, other = numbered(40, word="one"), numbered(40, word="other")
        if type(self).one_at_a_time:
            raise NotApplicable("its peer takes one connection at a time")
        async with self.served(folder) as peer, self.opened(peer, folder) as first, self.opened(peer, folder) as second:
            await _each_its_own(first, one, second, other)

    one_at_a_time = False

    @check
    async def test_nothing_blocks_the_event_loop(self, folder: Path) -> None:
        messages = numbered(20)
        async with self.connected(folder) as it:  # what is imported late is imported now
            await it.receive(messages, _say(it.end, messages))
        (folder / "again").mkdir()
        with no_blocking_calls():
            async with self.connected(folder / "again") as it:
                await it.receive(messages, _say(it.end, messages))
                await it.send_all(messages)
                await it.reaches_server(messages)

    @check
    async def test_nothing_is_printed(self, folder: Path) -> None:
        messages = numbered(3)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            async with self.connected(folder) as it:
                await it.receive(messages, _say(it.end, messages))
                await it.send_all(messages)
                await it.reaches_server(messages)
        if printed.getvalue():
            raise Fault(f"it prints to stdout: {printed.getvalue()[:60]!r}; use logging")


async def _silence_follows(it: Opened) -> None:
    """After what was sent, the server hears no more until the connection is closed."""
    hearing = asyncio.ensure_future(it.end.receive())
    await asyncio.wait({hearing}, timeout=0.1)
    if hearing.done() and hearing.result():
        raise Fault(f"it sends what nobody asked it to send, or twice: {hearing.result()[:60]!r}")
    hearing.cancel()
    await asyncio.wait({hearing}, timeout=1)


async def _each_its_own(first: Opened, one: list[bytes], second: Opened, other: list[bytes]) -> None:
    try:
        saying = asyncio.gather(_say(first.end, one), _say(second.end, other))
        hearing = asyncio.gather(first.receive(one, asyncio.sleep(0)), second.receive(other, asyncio.sleep(0)))
        await asyncio.gather(saying, hearing)
        await asyncio.gather(first.send_all(one), second.send_all(other))
        await asyncio.gather(first.reaches_server(one), second.reaches_server(other))
    except (Fault, ChannelClosed) as error:
        raise Fault(f"two connections share state: with both open, {error}") from None
