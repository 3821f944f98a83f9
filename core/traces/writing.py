"""The event loop's queue before the writer: one batch is written while the next one fills.

Nothing here waits for the disk. Bounds: so many steps between their beginning and the writing of their end, so many
bytes of detail, so many seconds until whoever waits for a row has an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...hookspecs.config import Limits
from ...hookspecs.errors import StateUnavailable
from ..database import Database
from ..redaction import Redactor
from .records import Batch, EndRow, StartRow
from .writer import Writer

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
"""After so long, whoever waits for a row (or for room in the queue) is told that there will be none."""

_CLOSE_SECONDS = 5.0
_END_SECONDS = 0.02
"""How long an end may wait for a beginning to be written along with."""
_RETRY_SECONDS = (0.1, 1.0)


class WriteQueue:
    """Hands rows to a :class:`Writer` in batches.

    ``batch`` is the one that fills: add rows to it, then ``wait`` or ``end``.
    """

    def __init__(self, path: Path | None, limits: Limits, redactor: Redactor, steps: int, detail_bytes: int) -> None:
        self._path = path
        self._steps = steps
        self._detail_bytes = detail_bytes
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Database] = self._loop.create_future()
        self._writer = Writer(path, limits, redactor, self._tell_opened, self._tell_answer)
        self.running = False
        self.batch = Batch()
        self._writing: Batch | None = None
        self._soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._pause = 0.0  # before the last try after a failure; 0 while all is well
        self._open: set[str] = set()
        self._held = 0  # steps begun whose end is not written: room for each end is kept
        self._details = 0
        self._rooms: deque[asyncio.Future[None]] = deque()

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> Database:
        """Start the writer and return its connection; raises ``StateUnavailable``."""
        self._writer.start()
        try:
            database = await self._opened
        except BaseException:
            await self._end_writer()
            raise
        self.running = True
        return database

    async def stop(self) -> None:
        """Write what is queued, for a few seconds at most, and end the writer."""
        try:
            await self._drain()
        finally:
            self.running = False
            for timer in (self._timer, self._watch, self._retry):
                if timer is not None:
                    timer.cancel()
            await self._end_writer()

    async def _end_writer(self) -> None:
        self._writer.inbox.put(None)
        await asyncio.to_thread(self._writer.join, _CLOSE_SECONDS)

    async def _drain(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self.batch or self._writing:
                    with suppress(StateUnavailable):
                        await self.flush()
        unwritten = len(self.batch.ends) + (len(self._writing.ends) if self._writing else 0)
        if unwritten:
            log.error("the ends of %d calls could not be written to the traces", unwritten)

    # --- rows ---------------------------------------------------------------------------------------------------

    def takes(self, detail_bytes: int) -> bool:
        """Say whether there is room for so much detail, and set it aside."""
        if self._details + detail_bytes > self._detail_bytes:
            return False
        self._details += detail_bytes
        return True

    @property
    def full(self) -> bool:
        return self._held >= self._steps

    @property
    def overfull(self) -> bool:
        return self._held >= 2 * self._steps

    def is_open(self, step_id: str) -> bool:
        return step_id in self._open

    def begin(self, row: StartRow) -> None:
        """Add a step's beginning; its ``end`` must follow."""
        self.batch.starts.append(row)
        self._open.add(row[0])
        self._held += 1

    def end(self, row: EndRow) -> None:
        """Add the end of an open step, and have it written before long."""
        self._open.remove(row[-1])
        self.batch.ends.append(row)
        self._schedule(_END_SECONDS)

    async def wait(self, row_id: str) -> None:
        """Wait until the row just added is written; raises ``StateUnavailable`` where it is not, or not yet."""
        if not self.running:
            raise StateUnavailable("traces are closed", hint="open them with `async with` and call inside")
        waiter: asyncio.Future[None] = self._loop.create_future()
        if not self.batch.waiters:
            self.batch.born = self._loop.time()
        self.batch.waiters.append((waiter, row_id))
        if self._watch is None:
            self._watch = self._loop.call_later(1.0, self._look_at_clock)
        self._schedule(0.0)
        await waiter

    async def flush(self) -> None:
        """Wait until all that was added so far is written; raises ``StateUnavailable`` where it could not be."""
        if self.batch or self._writing:
            await self.wait("")

    async def room(self) -> None:
        """Wait until the queue is not ``full``; raises ``StateUnavailable``."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while self.full:
                    room: asyncio.Future[None] = self._loop.create_future()
                    self._rooms.append(room)
                    await room
        except TimeoutError:
            raise self._unavailable(f"{self._held} steps wait to be written") from None

    # --- to the writer ------------------------------------------------------------------------------------------

    def _schedule(self, delay: float) -> None:
        """Have the batch written after ``delay``, or with what is planned already."""
        if self._writing is not None or self._retry is not None:
            return  # the answer, or the next try, takes it along
        if not delay:
            if not self._soon:
                self._soon = True
                # At the end of this round of the loop: all of its calls go together.
                self._loop.call_soon(self._send)
        elif self._timer is None:
            self._timer = self._loop.call_later(delay, self._send_late)

    def _send_late(self) -> None:
        self._timer = None
        if self._retry is None:
            self._send()

    def _send_again(self) -> None:
        self._retry = None
        self._send()

    def _send(self) -> None:
        self._soon = False
        if self._writing is None and self.batch:
            self._writing, self.batch = self.batch, Batch()
            self._writer.inbox.put(self._writing)

    # --- from the writer ----------------------------------------------------------------------------------------

    def _tell_opened(self, database: Database | None, error: Exception | None) -> None:
        self._from_writer(_settle, self._opened, database, error)

    def _tell_answer(self, batch: Batch, error: Exception | None) -> None:
        self._from_writer(self._answered, batch, error)

    def _from_writer(self, call: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is gone: no one waits any more
            self._loop.call_soon_threadsafe(call, *arguments)

    def _answered(self, batch: Batch, error: Exception | None) -> None:
        self._writing = None
        if error is None:
            self._done(batch)
        elif isinstance(error, StateUnavailable):
            self._failed(batch, error)
        else:
            self._dropped(batch, error)
        self._make_room()
        if self.batch:
            self._schedule(0.0 if self.batch.waiters else _END_SECONDS)

    def _done(self, batch: Batch) -> None:
        if self._pause:
            self._pause = 0.0
            log.warning("traces are written again")
        self._details -= batch.detail_bytes
        self._held -= len(batch.ends)
        for waiter, _ in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _failed(self, batch: Batch, error: StateUnavailable) -> None:
        """Tell who waits; keep what no one waits for, and try again: ends are never lost while there is hope."""
        if not self._pause:
            log.error("traces can't be written, calls are refused until they can: %s", error)
        before = batch.detail_bytes
        batch.forget(self._refuse_all(batch, error))
        self._details -= before - batch.detail_bytes
        batch.follow(self.batch)
        self.batch = batch
        self._pause = min(max(2 * self._pause, _RETRY_SECONDS[0]), _RETRY_SECONDS[1])
        self._retry = self._loop.call_later(self._pause, self._send_again)

    def _dropped(self, batch: Batch, error: Exception) -> None:
        """Give up a batch that can never be written: a fault of ours, which must not stand in the way of others."""
        log.error("%d beginnings and %d ends of calls are not in the traces", len(batch.starts), len(batch.ends))
        self._refuse_all(batch, self._unavailable(f"{type(error).__name__}: {error}"))
        self._details -= batch.detail_bytes
        self._held -= len(batch.ends)

    def _refuse_all(self, batch: Batch, error: StateUnavailable) -> set[str]:
        """Tell who waits for ``batch`` that it won't be; return the ids of the rows that are not to be written."""
        lost = {row_id for waiter, row_id in batch.waiters if not waiter.done()}
        _raise_in_all(batch, error)
        self._held -= len(lost & self._open)
        self._open -= lost
        return lost

    def _look_at_clock(self) -> None:
        """Give up on rows that the writer has had for too long: its disk may never answer."""
        self._watch = None
        late = self._loop.time() - ANSWER_SECONDS
        for batch in (self._writing, self.batch):
            if batch is None or not batch.waiters:
                continue
            if batch.born < late:
                # Their rows may still come to be written, so they stay open until they are ended.
                _raise_in_all(batch, self._unavailable(f"no answer in {ANSWER_SECONDS:.0f} seconds"))
            elif self._watch is None:
                self._watch = self._loop.call_later(1.0, self._look_at_clock)

    def _make_room(self) -> None:
        for _ in range(min(len(self._rooms), self._steps - self._held)):
            _settle(self._rooms.popleft(), None, None)

    def _unavailable(self, why: str) -> StateUnavailable:
        return StateUnavailable(
            f"traces can't be written: {why}",
            where=str(self._path or "memory"),
            hint="look at the disk, and at other processes that use the file",
        )


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _raise_in_all(batch: Batch, error: StateUnavailable) -> None:
    for waiter, _ in batch.waiters:
        # An exception of its own for each: they are raised in different tasks.
        _settle(waiter, None, StateUnavailable(error.message, where=error.where, hint=error.hint))
    batch.waiters = []
