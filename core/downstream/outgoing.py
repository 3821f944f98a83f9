"""What one client is sent, in the order in which it was made."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ...hookspecs import Channel, ChannelClosed


class Outgoing:
    """Gives messages to a channel: on the spot where it takes them so; else they wait for one task that sends them.

    Task and queue are made when something has to wait: most sessions never need them, and idle ones are many.
    """

    __slots__ = ("_channel", "_due", "_ended", "_queue", "_room", "_send_now", "_writer", "waiting")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._send_now: Callable[[bytes], bool] | None = getattr(channel, "send_now", None)
        self._queue: deque[bytes] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._due: asyncio.Event | None = None
        self._room: asyncio.Event | None = None
        self._ended = False
        self.waiting = 0  # bytes

    @property
    def over(self) -> bool:
        """Whether the channel took no more of what waited."""
        return self._writer is not None and self._writer.done()

    def send(self, message: bytes) -> None:
        """Send or queue ``message``; whoever makes many looks at ``waiting``."""
        if self._send_now is not None and not self._queue:
            with suppress(ChannelClosed):  # the writer meets it, and ends the session
                if self._send_now(message):
                    return
        if self._ended:
            return
        self.writer()
        assert self._queue is not None  # noqa: S101 - for the type checker: the writer's
        assert self._due is not None  # noqa: S101
        self._queue.append(message)
        self.waiting += len(message)
        self._due.set()

    def writer(self) -> asyncio.Task[None]:
        """The task that sends what waits, begun where there is none; it ends when the channel takes no more."""
        if self._writer is None:
            self._queue, self._due = deque(), asyncio.Event()
            self._writer = asyncio.create_task(self._write(self._queue, self._due))
        return self._writer

    async def room(self) -> None:
        """Wait until what waits has been sent, or never will be."""
        self._room = self._room or asyncio.Event()
        self._room.clear()
        await self._room.wait()

    def end(self) -> list[asyncio.Task[None]]:
        """Send nothing any more that would have to wait; the task that ends of it is to be awaited."""
        self._ended = True
        if self._writer is None:
            return []
        self._writer.cancel()
        return [self._writer]

    async def _write(self, queue: deque[bytes], due: asyncio.Event) -> None:
        try:
            while True:
                await due.wait()
                due.clear()
                while queue:
                    message = queue[0]  # it stays there until it is sent: nothing may overtake it
                    await self._channel.send(message)
                    self.waiting -= len(queue.popleft())
                self._tell_room()
        except ChannelClosed:
            pass  # whoever looks at ``over`` ends the session
        finally:
            self._tell_room()

    def _tell_room(self) -> None:
        if self._room is not None:
            self._room.set()
