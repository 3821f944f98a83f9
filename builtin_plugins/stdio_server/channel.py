"""Two descriptors as a channel: bounded lines in, whole lines out, and never a wait that holds up the loop.

The descriptors may be pipes, sockets, terminals or files, and others may hold them as well, so nothing is set on them.
One that can be read gives what is there; a pipe that can be written takes ``PIPE_BUF`` bytes without a wait. Where
there is no ``poll`` (Windows), a thread waits instead, one for each read and write.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from ...hookspecs import ChannelClosed, ChannelFault

T = TypeVar("T")

_CHUNK = 64 * 1024
_POLL: Callable[[], Any] | None = getattr(select, "poll", None)
_PIPE_BUF: int = getattr(select, "PIPE_BUF", 512)


class StandardChannel:
    """What comes on ``stdin`` and goes to ``stdout``. ``fault`` is set where the client broke the framing."""

    def __init__(self, stdin: int, stdout: int, message_bytes: int, *, threads: bool = _POLL is None) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._limit = message_bytes
        self._threads = threads
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._held = 0
        self._gone = False
        self._reading: asyncio.Future[None] | None = None
        self._room: Any = None
        self.fault: ChannelFault | None = None
        if _POLL is not None and not threads:
            self._room = _POLL()
            self._room.register(stdout, select.POLLOUT)

    # --- in -------------------------------------------------------------------------------------------

    def __aiter__(self) -> StandardChannel:
        return self

    async def __anext__(self) -> bytes:
        while True:
            while self._lines:
                line = self._lines.popleft()
                if line.strip():
                    return line
            if self.fault is not None:
                raise self.fault
            chunk = await self._read()
            if not chunk:
                if b"".join(self._parts).strip():
                    raise self._broken("the client's last message has no end")
                raise StopAsyncIteration
            self._cut(chunk)

    def _cut(self, chunk: bytes) -> None:
        """Lines end at 0x0A alone. What was whole before a line that is too long is still served, what follows not."""
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            if self._held + len(line) > self._limit:
                break
            self._lines.append(b"".join((*self._parts, line)))
            self._parts, self._held = [], 0
        else:
            if rest:
                self._parts.append(rest)
                self._held += len(rest)
            if self._held <= self._limit:
                return
        self._parts = []
        self._broken(f"the client sent a message of more than {self._limit:,} bytes")

    def _broken(self, words: str) -> ChannelFault:
        self.fault = ChannelFault(words)
        return self.fault

    async def _read(self) -> bytes:
        try:
            if self._threads:
                return await _in_thread(lambda: os.read(self._stdin, _CHUNK))
            while not self._gone:
                self._reading = asyncio.get_running_loop().create_future()
                await _until(self._reading, self._stdin, "reader")
                if self._gone:
                    break
                try:
                    return os.read(self._stdin, _CHUNK)
                except BlockingIOError:  # someone made it non-blocking and took what was there
                    continue
        except OSError:  # a terminal that was closed
            pass
        return b""

    # --- out ------------------------------------------------------------------------------------------

    async def send(self, message: bytes) -> None:
        """Return once the whole line is written; wait for a client that pauses for as long as it does.

        Raises ``ChannelClosed`` where no one reads any more.
        """
        # a raw newline can only be white space between two tokens, and would cut the message in two
        left = memoryview(message.replace(b"\n", b" ") + b"\n")
        try:
            while left:
                left = left[await self._write(left) :]
        except OSError as error:
            self._gone = True
            if self._reading is not None and not self._reading.done():
                self._reading.set_result(None)  # who hears nothing has nothing to say
            raise ChannelClosed(f"the client does not read any more: {error.strerror}") from error

    async def _write(self, data: memoryview) -> int:
        if self._room is None:
            return await _in_thread(lambda: os.write(self._stdout, data))
        if not self._room.poll(0):
            await _until(asyncio.get_running_loop().create_future(), self._stdout, "writer")
        try:
            return os.write(self._stdout, data[:_PIPE_BUF])
        except BlockingIOError:
            return 0


async def _until(ready: asyncio.Future[None], descriptor: int, role: str) -> None:
    """Wait until ``descriptor`` can be read or written, or whoever else has ``ready`` sets it."""
    loop = asyncio.get_running_loop()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        getattr(loop, f"add_{role}")(descriptor, set_ready)
    except PermissionError:  # a file: always ready
        return await asyncio.sleep(0)
    try:
        await ready
    finally:
        getattr(loop, f"remove_{role}")(descriptor)


async def _in_thread(act: Callable[[], T]) -> T:
    """Let a thread wait that nobody waits for: it could not be woken at the end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(settle: Callable[[Any], None], value: object) -> None:
        if not done.done():
            settle(value)

    def work() -> None:
        try:
            told: tuple[Callable[[Any], None], object] = (done.set_result, act())
        except OSError as error:
            told = (done.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=work, daemon=True).start()
    return await done
