"""A child's three pipes as a channel: bounded lines in, one writer out, stderr aside."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from ...hookspecs import ChannelClosed, ChannelFault, Child, Diagnostics, Limits
from .framing import LineFramer

_CHUNK = 256 * 1024
_STDERR_CHUNK = 4 * 1024  # small reads keep a flood on stderr from growing anything (N6.4)
_FLUSH_SECONDS = 0.5
_LAST_WORDS_SECONDS = 0.25  # what a dead child left in its pipe is read this long; a grandchild may hold it open

_json = msgspec.json.Decoder(msgspec.Raw)


class StdioChannel:
    """One connection. :meth:`open` starts its tasks, :meth:`close` ends them and the child."""

    def __init__(self, child: Child, limits: Limits, diagnostics: Diagnostics, *, tolerant: bool) -> None:
        self._child = child
        self._limits = limits
        self._diagnostics = diagnostics
        self._tolerant = tolerant
        self._framer = LineFramer(limits.message_bytes)
        self._lines: deque[bytes] = deque()
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._writing = False  # a write is planned for this turn of the loop, or waits for the child
        self._room = asyncio.Event()
        self._room.set()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._broken: ChannelClosed | None = None
        self._reading: asyncio.Timeout | None = None
        self._gone = False
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Start the reader of stderr and the watch on the child's end."""
        self._spawn(self._drain_stderr())
        self._spawn(self._watch())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- in -------------------------------------------------------------------------------------------

    def __aiter__(self) -> StdioChannel:
        return self

    async def __anext__(self) -> bytes:
        while True:
            while self._lines:
                line = self._lines.popleft()
                if not self._tolerant or self._is_json(line):
                    return line
            await self._fill()

    def receive_now(self) -> list[bytes]:
        """Return the lines that are there already."""
        lines = list(self._lines)
        self._lines.clear()
        return [line for line in lines if self._is_json(line)] if self._tolerant else lines

    async def _fill(self) -> None:
        try:
            async with asyncio.timeout(0 if self._gone else None) as self._reading:
                chunk = await self._child.stdout.read(_CHUNK)
        except TimeoutError:
            chunk = b""  # the child has ended and something else holds its pipe
        if chunk:
            self._lines.extend(self._framer.feed(chunk))
            return
        if self._broken is None:
            self._broken = await self._end()
        raise self._broken

    async def _end(self) -> ChannelClosed:
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._child.wait()
        code = self._child.returncode
        try:
            self._framer.finish()
        except ChannelFault as fault:
            fault.exit_code = code
            return fault
        if code is None:
            return ChannelClosed("the server closed its output")
        how = f"was ended by signal {-code}" if code < 0 else f"left with exit code {code}"
        return ChannelClosed(f"the server's process {how}", exit_code=code)

    def _is_json(self, line: bytes) -> bool:
        try:
            _json.decode(line)
        except msgspec.DecodeError:
            if line.strip():
                self._diagnostics.skipped(line)
            return False
        return True

    async def _watch(self) -> None:
        """Wake the reader when the child is gone though its stdout shows no end (a grandchild holds it)."""
        await self._child.wait()
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        self._gone = True
        if self._reading is not None:
            with suppress(RuntimeError):  # the reader is between two reads: its next one looks at _gone
                self._reading.reschedule(asyncio.get_running_loop().time())

    # --- out ------------------------------------------------------------------------------------------

    async def send(self, message: bytes) -> None:
        """Queue one line; wait at most ``write_seconds`` for room in the queue.

        A child that does not read thus fails the calls that are meant for it, and holds up no one else.
        """
        if not self.send_now(message):
            await self._wait_for_room()
            self._queue(message)

    def send_now(self, message: bytes) -> bool:
        """Queue one line, unless there is no room for it now."""
        if self._broken is not None:
            raise self._broken
        if self._outgoing_bytes + len(message) > self._limits.write_queue_bytes:
            return False
        self._queue(message)
        return True

    def _queue(self, message: bytes) -> None:
        self._outgoing += (message, b"\n")
        self._outgoing_bytes += len(message) + 1
        if not self._writing:
            self._writing = True
            self._flushed.clear()
            self._loop.call_soon(self._write)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        try:
            async with asyncio.timeout(self._limits.write_seconds):
                await self._room.wait()
        except TimeoutError:
            raise ChannelClosed(
                f"the server does not read its input: {self._outgoing_bytes:,} bytes wait for it"
            ) from None

    def _write(self) -> None:
        """Write what this turn of the loop has brought, at once; a task waits only where the child reads slowly."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        try:
            self._child.stdin.write(data)
            waits = _waits(self._child.stdin.drain())
        except (OSError, RuntimeError):
            return  # it closed its input; its end, or its silence, is met by the reader
        if waits:
            self._spawn(self._drain(len(data)))
        else:
            self._wrote(len(data))

    async def _drain(self, size: int) -> None:
        with suppress(OSError, RuntimeError):  # as above
            await self._child.stdin.drain()
            self._wrote(size)

    def _wrote(self, size: int) -> None:
        self._outgoing_bytes -= size
        self._room.set()
        if self._outgoing:
            self._loop.call_soon(self._write)
        else:
            self._writing = False
            self._flushed.set()

    # --- aside ----------------------------------------------------------------------------------------

    async def _drain_stderr(self) -> None:
        while chunk := await self._child.stderr.read(_STDERR_CHUNK):
            self._diagnostics.stderr(chunk)

    async def _drain_stdout(self) -> None:
        while await self._child.stdout.read(_CHUNK):
            pass

    # --- down -----------------------------------------------------------------------------------------

    async def close(self, grace: float) -> None:
        """End the child and its tree within twice ``grace`` and a little; see the package for the order."""
        if self._broken is None:
            self._broken = ChannelClosed("the connection was closed here")
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._flushed.wait()
        self._spawn(self._drain_stdout())
        try:
            await self._child.end_tree(grace)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _waits(work: Coroutine[Any, Any, None]) -> bool:
    """Begin ``work``; where it would have to wait it is given up, to be begun anew by someone who can."""
    try:
        work.send(None)
    except StopIteration:
        return False
    work.close()
    return True
