"""Writes runs and steps: one batch a turn of the event loop, in one transaction.

The rows of all calls that came to this point in one turn are written together, on the loop itself: with WAL and
``synchronous=NORMAL`` a commit is a write into the page cache, a tenth of what handing it to a thread and back costs,
since both fight for the interpreter's lock. What waits for the disk goes to a thread (see :mod:`.upkeep`); what waits
for another process is tried again later, never waited for here. Steps beyond the bound are deleted by who adds some:
a transaction of their own would keep all calls waiting.

Bounds: steps that wait are calls in flight; a full queue drops detail (see :mod:`.rows`) and never a step; a step that
could not be written for 5 s refuses its call; steps of refused calls are kept as long as no more than 50,000 wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Self

import msgspec

from ...hookspecs import Limits, RunView, StateUnavailable, Step
from ..database import Database
from ..processes import process
from ..redaction import Redactor
from . import reader, upkeep
from .rows import FACTS_SECONDS, Rows, StepEnd, StepStart

log = logging.getLogger(__name__)
_random = Random()  # noqa: S311 - no secret; of its own, since whoever seeds the usual one gets the same again
_bits = _random.getrandbits
if hasattr(os, "register_at_fork"):  # else two workers of one server would give the same numbers
    os.register_at_fork(after_in_child=_random.seed)

_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.002
_WAITING_STEPS = 50_000
_AT_ONCE = 1_000  # rows in one transaction: about 5 ms, should the disk take none of them
_ROWS_AT_ONCE = (16, 8)  # rows that one statement inserts
_UPKEEP_STEPS = 1_024
_LOG_BYTES = 8 * 1024 * 1024  # a WAL of 4 MiB would move pages that are written again and again three times as often
_COMMIT_BYTES, _ROW_BYTES = 8 * 1024, 256  # what a transaction adds to the WAL, as measured, beside its details
_RETIRED_AT_ONCE = 256  # steps: with their ends about half a millisecond

Told = Callable[[StateUnavailable | None], None]
"""Who waits for a row: called once it is there, or with what keeps it from being. Must not raise."""

_UNFIT = (sqlite3.Error, OverflowError, ValueError)  # a value is to blame; what the state is to blame for is translated

_BEGIN_RUN = (
    "INSERT INTO runs (id, agent, purpose, state, started_at, process, owner, used_at)"
    " VALUES (?, ?, ?, 'running', ?, ?, ?, ?)"
)
_END_RUN = "UPDATE runs SET state = ?, ended_at = ? WHERE id = ?"
_USE_RUN = "UPDATE runs SET used_at = ? WHERE id = ?"
_FACTS = "INSERT INTO facts (id, kept_at, facts) VALUES (?, ?, ?)"
_BEGIN_STEP = ("INSERT INTO steps (run, facts, started_at, begun) VALUES ", "(?, ?, ?, ?)")
_END_STEP = ("REPLACE INTO ends (seq, ended) VALUES ", "(?, ?)")
_RETIRE = ("DELETE FROM steps WHERE seq <= ?", "DELETE FROM ends WHERE seq <= ?")


class _Waiting(msgspec.Struct, eq=False):
    """What waits to be written: a step's beginning, its end or both, or another statement; and who is told then.

    ``seq`` is a step's place in the file once its beginning is ``written``.
    """

    told: Told | None
    begun: tuple[str | None, int | None, float, str] = (None, None, 0.0, "")
    ended: str | None = None
    statement: tuple[str, tuple[Any, ...]] | None = None
    seq: int = 0
    written: bool = False

    def fail(self, error: StateUnavailable) -> bool:
        """Tell the one who waits; returns whether there was one."""
        told, self.told = self.told, None
        if told is None:
            return False
        told(StateUnavailable(error.message, where=error.where, hint=error.hint))
        return True


class Traces:
    """Records runs and steps, and reads them back. An async context; closed, it has written what it had."""

    def __init__(self, database: Path, limits: Limits, redactor: Redactor) -> None:
        self._path = database
        self._limits = limits
        self._idle = limits.run_idle_seconds
        self._rows = Rows(limits, redactor)
        self._open: dict[str, _Waiting] = {}
        self._waiting: list[_Waiting] = []
        self._due = False  # a write is planned, for the end of this turn or to be tried again
        self._since = 0.0  # when the oldest of those who wait began to
        self._untidied = 0  # steps
        self._unretired = 0  # likewise
        self._logged = 0  # bytes that the WAL holds, about
        self._facts_due = 0.0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._database = await asyncio.to_thread(Database, self._path, busy_seconds=0.0)
        self._spare = await asyncio.to_thread(Database, self._path, busy_seconds=upkeep.BUSY_SECONDS)
        self._tidy()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.flush()
        except StateUnavailable as error:
            log.error("the last steps are not in the traces: %s", error)
            self._waiting.clear()
        finally:
            self._database.close()
            await self._upkeep
            await asyncio.to_thread(self._spare.close)

    # --- recording ------------------------------------------------------------------------------------

    def next_id(self) -> str:
        """An id for a step or a run, unique over processes."""
        return f"{_bits(64):016x}"

    def label(self, text: str) -> str:
        """A name that a caller gave, as it may be kept and told."""
        return self._rows.label(text) or ""

    async def begin_run(self, agent: str, purpose: str | None = None) -> str:
        """Record a run; returns its id once the row is there."""
        run_id, label = self.next_id(), self._rows.label
        values = (run_id, label(agent), label(purpose), time.time(), process(os.getpid()), None, None)
        await self._execute(_BEGIN_RUN, *values)
        return run_id

    async def open_run(self, agent: str, purpose: str | None, owner: str) -> str:
        """Record a run that no process holds: it lives as long as its owner uses it."""
        run_id, label, now = self.next_id(), self._rows.label, time.time()
        await self._execute(_BEGIN_RUN, run_id, label(agent), label(purpose), now, "", owner, now)
        return run_id

    def use_run(self, run_id: str, used_at: float) -> None:
        """Record when an open run was last used; written at the end of this turn."""
        self._put(_Waiting(None, statement=(_USE_RUN, (used_at, run_id)), written=True))

    async def end_run(self, run_id: str, state: str, ended_at: float | None = None) -> None:
        """Record how a run ended: ``finished``, ``failed``, ``abandoned`` or ``crashed``."""
        await self._execute(_END_RUN, state, time.time() if ended_at is None else ended_at, run_id)

    def open(self, start: StepStart, told: Told) -> None:
        """Record a step; ``told`` is called once its row is there, or with why it can't be.

        Its ``close`` must follow, whatever becomes of the call; where it comes before ``told`` was called, that isn't.
        """
        self._open[start.id] = step = _Waiting(told, self._rows.begun(start))
        self._put(step)

    def close(self, step_id: str, end: StepEnd) -> None:
        """Record what came of an open step; it is written at the end of this turn."""
        step = self._open.pop(step_id, None)
        if step is not None:
            self._end(step, end)

    def refuse(self, start: StepStart, end: StepEnd) -> None:
        """Record a step that was never sent."""
        self._end(_Waiting(None, self._rows.begun(start)), end)

    async def flush(self) -> None:
        """Return once everything recorded so far is in the file; raises ``StateUnavailable``."""
        if self._waiting:
            await self._execute("SELECT 1")

    # --- reading --------------------------------------------------------------------------------------

    async def runs(self, *, limit: int = 50, before: str | None = None) -> Sequence[RunView]:
        """The newest runs first; ``before`` the run of this id."""
        return await self._read(reader.runs, self._idle, limit, before)

    async def run_view(self, run_id: str) -> RunView:
        """One run without its steps; raises ``TraceNotFound``."""
        return await self._read(reader.run_view, self._idle, run_id)

    async def run(self, run_id: str) -> tuple[RunView, Sequence[Step]]:
        """One run with its steps in order; raises ``TraceNotFound``."""
        return await self._read(reader.run, self._idle, run_id)

    async def trace(self, trace_id: str) -> Step:
        """One step; raises ``TraceNotFound``."""
        return await self._read(reader.step, trace_id)

    async def steps(self, *, limit: int = 50, run: str | None = None) -> Sequence[Step]:
        """The newest steps first, of all runs and of none, or of ``run`` alone."""
        return await self._read(reader.steps, limit, run)

    def open_runs(self) -> list[tuple[str, str, float]]:
        """Return id, owner and last use of every run that is open; raises ``StateUnavailable``."""
        with self._database.reading() as connection:
            return reader.open_runs(connection)

    def run_ended(self, run_id: str, owner: str | None) -> str | None:
        """Return how a run that this owner had opened ended; ``None`` for a run that it never opened.

        Raises ``StateUnavailable``.
        """
        with self._database.reading() as connection:
            return reader.ended(connection, run_id, owner)

    async def _read(self, what: Callable[..., reader.T], *values: object) -> reader.T:
        with suppress(StateUnavailable):  # what is there can be read
            await self.flush()
        return await asyncio.to_thread(reader.look, self._path, what, *values)

    # --- writing --------------------------------------------------------------------------------------

    async def _execute(self, sql: str, *values: Any) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()

        def told(error: StateUnavailable | None) -> None:
            if waiter.done():
                return
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

        self._put(_Waiting(told, statement=(sql, values), written=True))
        await waiter

    def _end(self, step: _Waiting, end: StepEnd) -> None:
        waits = step.told is not None and not step.written
        step.told = None
        if step.written or waits or len(self._waiting) < _WAITING_STEPS:
            step.ended = self._rows.ended(end)
            if not waits:
                self._put(step)

    def _put(self, item: _Waiting) -> None:
        self._waiting.append(item)
        if not self._due:
            self._due = True
            self._since = self._loop.time()
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        """Write all that waits, in one transaction; row by row where one does not fit, which is left out."""
        self._due = False
        at_once = _AT_ONCE
        while self._waiting:
            batch = self._waiting[:at_once]
            try:
                self._commit(batch)
            except StateUnavailable as error:
                self._try_again(error)
                return
            except _UNFIT as error:
                if len(batch) > 1:
                    at_once = 1
                    continue
                log.exception("a row does not fit into the traces")
                batch[0].fail(StateUnavailable(f"does not take this row: {error}", where=str(self._path)))
                at_once = _AT_ONCE
            del self._waiting[: len(batch)]
        self._rows.waiting = 0

    def _commit(self, batch: list[_Waiting]) -> None:
        with self._database.transaction() as connection:
            new = [item for item in batch if not item.written]
            if self._rows.fresh:
                now = time.time()
                connection.executemany(_FACTS, [(number, now, text) for number, text in self._rows.fresh.items()])
            _insert(connection, _BEGIN_STEP, [item.begun for item in new])
            # What one transaction inserts stands side by side.
            last = connection.execute("SELECT last_insert_rowid()").fetchone()[0]
            for seq, item in enumerate(new, last - len(new) + 1):
                item.seq = seq
            retire = len(new) > 0 and self._unretired >= _RETIRED_AT_ONCE
            if retire:
                for statement in _RETIRE:
                    connection.execute(statement, (last - self._limits.traces,))
            _insert(connection, _END_STEP, [(item.seq, item.ended) for item in batch if item.ended is not None])
            for item in batch:
                if item.statement is not None:
                    connection.execute(*item.statement)
        self._rows.fresh.clear()
        rows = len(batch) + 2 * _RETIRED_AT_ONCE * retire
        self._logged += _COMMIT_BYTES + _ROW_BYTES * rows + self._rows.waiting
        self._unretired = len(new) if retire else self._unretired + len(new)
        for item in batch:
            item.written = True
            if item.told is not None:
                told, item.told = item.told, None
                told(None)
        self._untidied += len(new)
        if self._untidied >= _UPKEEP_STEPS and self._upkeep.done():
            self._tidy()

    def _try_again(self, error: StateUnavailable) -> None:
        """Plan the next try; who has waited for too long is told, while ends and what was refused go on waiting."""
        waited = self._loop.time() - self._since
        if waited > _ANSWER_SECONDS:
            log.error("traces can't be written, and calls are refused: %s", error)
            self._waiting = [item for item in self._waiting if not item.fail(error)]
            self._since += waited
        self._due = True
        self._loop.call_later(_RETRY_SECONDS + waited / 8, self._write)

    def _tidy(self) -> None:
        self._untidied = 0
        now = self._loop.time()
        facts = now >= self._facts_due
        if facts:
            self._facts_due = now + FACTS_SECONDS
        logged = self._logged if self._logged > _LOG_BYTES else 0
        self._logged -= logged
        tidy = partial(upkeep.tidy, self._spare, self._limits, whole=facts, log=logged > 0)
        self._upkeep = self._loop.run_in_executor(None, tidy)
        self._upkeep.add_done_callback(partial(self._tidied, logged))

    def _tidied(self, logged: int, upkeep: asyncio.Future[bool]) -> None:
        if upkeep.cancelled() or not upkeep.result():  # what it raises is logged by the loop
            self._logged += logged


def _insert(connection: sqlite3.Connection, statement: tuple[str, str], rows: list[tuple[Any, ...]]) -> None:
    """Insert rows in order, many with one statement where there are many: half the time of one for each."""
    into, row = statement
    done = 0
    for at_once in _ROWS_AT_ONCE:
        while len(rows) - done >= at_once:
            values = list(chain.from_iterable(rows[done : done + at_once]))
            connection.execute(into + ", ".join([row] * at_once), values)
            done += at_once
    if done < len(rows):
        connection.executemany(into + row, rows[done:])
