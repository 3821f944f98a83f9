"""Writes runs and steps: one batch a turn of the event loop, in one transaction.

The rows of all calls that came to this point in one turn are written together, on the loop itself: with WAL and
``synchronous=NORMAL`` a commit is a write into the page cache (about 30 µs a batch and 5 µs a row here), a tenth of
what handing it to a thread and back costs, since both fight for the interpreter's lock. What waits for the disk (a
checkpoint) goes to a thread; what waits for another process is tried again later, never waited for here.

Bounds: steps that wait are calls in flight; detail that waits is cut off at 4 MiB, so that a full queue drops detail
and never a step; a step that could not be written for 5 s refuses its call.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ...hookspecs import Limits, RunView, StateUnavailable, Step
from ..database import Database
from ..redaction import Redactor
from .processes import this_process
from .reader import StoredTraces

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.02
_LAZY_SECONDS = 0.02  # how long an end may wait for a beginning to be written along with
_WAITING_BYTES = 4 * 1024 * 1024
_LOST_ENDS = 50_000  # ends that wait for a disk which does not come back
_PRUNE_EVERY = 512  # steps
_CHECKPOINT_EVERY = 4_096  # steps
_LABEL = 1_024  # characters of a name or a reason

_encode = msgspec.json.Encoder(enc_hook=repr).encode

_START = (
    "id, run, tool, plugin, generation, started_at, caller, decision, decision_reason, decision_rule, arguments,"
    " arguments_bytes"
)
_ROWS = 32  # of one statement: a table of values costs half of what row by row does
_END_STEP = (
    "UPDATE steps SET outcome = ?, code = ?, queued = ?, validating = ?, upstream = ?, total = ?, result = ?,"
    " result_bytes = ?, output_valid = ? WHERE seq = ?"
)
_PRUNE_STEPS = (
    "DELETE FROM steps WHERE seq IN (SELECT seq FROM (SELECT seq, started_at FROM steps ORDER BY seq LIMIT 1024)"
    " WHERE started_at < ? OR seq <= (SELECT MAX(seq) FROM steps) - ?)"
)
_PRUNE_RUNS = (
    "DELETE FROM runs WHERE (started_at < ? OR ended_at < (SELECT started_at FROM steps ORDER BY seq LIMIT 1)"
    " OR seq <= (SELECT MAX(seq) FROM runs) - ?) AND id NOT IN (SELECT run FROM steps WHERE run IS NOT NULL)"
)


class StepStart(msgspec.Struct, frozen=True, kw_only=True):
    """A call about to be sent; the fields are those of ``Step``, ``started_at`` in seconds since 1970."""

    id: str
    tool: str
    started_at: float
    run: str | None = None
    plugin: str | None = None
    generation: int | None = None
    caller: Mapping[str, Any] = {}
    decision: str | None = None
    decision_reason: str | None = None
    decision_rule: str | None = None
    arguments: Any = None


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call; the fields are those of ``Step``, times in seconds."""

    outcome: str
    code: str | None = None
    queued: float | None = None
    validating: float | None = None
    upstream: float | None = None
    total: float | None = None
    result: Any = None
    output_valid: bool | None = None


class _Row:
    """A step on its way into the file. ``seq`` is its place there, once it has one."""

    __slots__ = ("end", "seq", "start", "waiter")

    def __init__(self, start: tuple[Any, ...], waiter: asyncio.Future[None] | None) -> None:
        self.start = start
        self.waiter = waiter
        self.end: tuple[Any, ...] | None = None
        self.seq: int | None = None


class Traces:
    """Records runs and steps, and reads them back. An async context; closed, it has written what it had."""

    def __init__(self, database: Path, limits: Limits, redactor: Redactor) -> None:
        self._path = database
        self._limits = limits
        self._redactor = redactor
        self._prefix = secrets.token_hex(4)
        self._numbers = count(1)
        self._new: list[_Row] = []
        self._ended: list[_Row] = []
        self._open: dict[str, _Row] = {}
        self._statements: list[tuple[str, tuple[Any, ...]]] = []
        self._statement_waiters: list[asyncio.Future[None]] = []
        self._detail = 0
        self._planned: asyncio.Handle | None = None
        self._lazily = False
        self._stuck_since: float | None = None
        self._written = 0
        self._house_due = _PRUNE_EVERY
        self._checkpoint: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._database = await asyncio.to_thread(Database.open, self._path, busy_seconds=0.0)
        self._reader = StoredTraces(self._path, settle=self.flush)
        self._prune_soon(runs=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            await self.flush()
        except StateUnavailable as unavailable:
            log.error("the last steps are not in the traces: %s", unavailable)
        if self._planned is not None:
            self._planned.cancel()
        if self._checkpoint is not None:
            await asyncio.wait([self._checkpoint])
        self._reader.close()
        await asyncio.to_thread(self._database.close)

    # --- recording ------------------------------------------------------------------------------------

    def next_id(self) -> str:
        """An id for a step or a run, unique over processes."""
        return f"{self._prefix}{next(self._numbers):08x}"

    async def begin_run(self, agent: str, purpose: str | None = None) -> str:
        """Record a run; returns its id once the row is there."""
        run_id = self.next_id()
        pid, started = this_process()
        row = (run_id, self._label(agent), self._label(purpose), "running", time.time(), pid, started)
        await self._execute(
            "INSERT INTO runs (id, agent, purpose, state, started_at, pid, process_start) VALUES (?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        return run_id

    async def end_run(self, run_id: str, state: str) -> None:
        """Record how a run ended: ``finished`` or ``failed``."""
        await self._execute("UPDATE runs SET state = ?, ended_at = ? WHERE id = ?", (state, time.time(), run_id))

    async def open(self, start: StepStart) -> None:
        """Record a step; returns once its row is there. Raises ``StateUnavailable`` where it can't be.

        Its ``close`` must follow, whatever becomes of the call.
        """
        waiter: asyncio.Future[None] = self._loop.create_future()
        row = self._open[start.id] = _Row(self._start_row(start), waiter)
        self._new.append(row)
        self._plan()
        try:
            await waiter
        except StateUnavailable:
            self._open.pop(start.id, None)
            raise

    def close(self, step_id: str, end: StepEnd) -> None:
        """Record what came of an open step; it is written before long."""
        row = self._open.pop(step_id)
        row.end = self._end_row(end)
        if row.seq is None and not row.start:
            return  # its beginning was given up
        if len(self._ended) < _LOST_ENDS:
            self._ended.append(row)
        self._plan(_LAZY_SECONDS)

    def refuse(self, start: StepStart, end: StepEnd) -> None:
        """Record a step that was never sent."""
        row = _Row(self._start_row(start), None)
        row.end = self._end_row(end)
        if len(self._new) + len(self._ended) < _LOST_ENDS:
            self._new.append(row)
            self._ended.append(row)
        self._plan(_LAZY_SECONDS)

    async def flush(self) -> None:
        """Wait until all that was recorded so far is written."""
        if self._new or self._ended or self._statements:
            await self._execute("SELECT 1", ())

    async def _execute(self, statement: str, values: tuple[Any, ...]) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._statements.append((statement, values))
        self._statement_waiters.append(waiter)
        self._plan()
        await waiter

    # --- rows -----------------------------------------------------------------------------------------

    def _start_row(self, start: StepStart) -> tuple[Any, ...]:
        arguments, size = self._kept(start.arguments)
        return (
            start.id,
            start.run,
            self._label(start.tool),
            start.plugin,
            start.generation,
            start.started_at,
            self._redactor.redact(_encode(start.caller).decode()),
            start.decision,
            self._label(start.decision_reason),
            start.decision_rule,
            arguments,
            size,
        )

    def _end_row(self, end: StepEnd) -> tuple[Any, ...]:
        result, size = self._kept(end.result)
        times = (end.queued, end.validating, end.upstream, end.total)
        return (end.outcome, end.code, *times, result, size, end.output_valid)

    def _kept(self, value: Any) -> tuple[str | None, int | None]:
        """The redacted JSON of ``value`` as far as it is kept, and how long the whole is."""
        if value is None:
            return None, None
        try:
            encoded = _encode(value)
        except (TypeError, ValueError, RecursionError):
            return None, None  # what is no JSON is refused elsewhere
        size, limit = len(encoded), self._limits.trace_detail_bytes
        if self._detail + min(size, limit) > _WAITING_BYTES:
            return None, size
        self._detail += min(size, limit)
        if size <= limit:
            return self._redactor.redact(encoded.decode()), size
        # redacted before it is cut: a secret that the cut divides would not be seen as one
        window = encoded[: limit + self._redactor.reach].decode("utf-8", "ignore")
        kept = self._redactor.redact(window)[: max(0, limit - self._redactor.reach)]
        return f"{kept}… [cut off, {size} bytes in all]", size

    def _label(self, text: str | None) -> str | None:
        return None if text is None else self._redactor.redact(text[:_LABEL])

    # --- writing --------------------------------------------------------------------------------------

    def _plan(self, delay: float = 0.0) -> None:
        """Write at the end of this turn of the loop, or within ``delay`` where no one waits."""
        if self._stuck_since is not None:
            return  # the next try is planned already
        if not delay:
            if self._planned is None or self._lazily:
                if self._planned is not None:
                    self._planned.cancel()
                self._planned, self._lazily = self._loop.call_soon(self._write), False
        elif self._planned is None:
            self._planned, self._lazily = self._loop.call_later(delay, self._write), True

    def _write(self) -> None:
        self._planned = None
        try:
            with self._database.transaction() as connection:
                for statement, values in self._statements:
                    connection.execute(statement, values)
                self._insert(connection)
                if self._ended:
                    rows = [(*row.end, row.seq) for row in self._ended if row.end and row.seq is not None]
                    connection.executemany(_END_STEP, rows)
        except StateUnavailable as error:
            self._not_now(error)
            return
        self._stuck_since = None
        self._written += len(self._new)
        for row in self._new:
            if row.waiter is not None and not row.waiter.done():
                row.waiter.set_result(None)
        for waiter in self._statement_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._forget()
        self._keep_house()

    def _insert(self, connection: Any) -> None:
        """Rows that are inserted in one transaction stand side by side: the last one's place gives all."""
        if not self._new:
            return
        for at in range(0, len(self._new), _ROWS):
            part = self._new[at : at + _ROWS]
            connection.execute(_insertion(len(part)), [value for row in part for value in row.start])
        last = connection.execute("SELECT last_insert_rowid()").fetchone()[0]
        for place, row in enumerate(reversed(self._new)):
            row.seq = last - place

    def _forget(self) -> None:
        self._new.clear()
        self._ended.clear()
        self._statements.clear()
        self._statement_waiters.clear()
        self._detail = 0

    def _not_now(self, error: StateUnavailable) -> None:
        """Try again before long; whoever has waited for too long is told."""
        now = self._loop.time()
        if self._stuck_since is None:
            self._stuck_since = now
        for row in self._new:
            row.seq = None
        if now - self._stuck_since > _ANSWER_SECONDS:
            log.error("traces can't be written, calls are refused until they can: %s", error)
            self._give_up(error)
            self._stuck_since = now
        self._planned = self._loop.call_later(_RETRY_SECONDS, self._write)

    def _give_up(self, error: StateUnavailable) -> None:
        waiters = [row.waiter for row in self._new if row.waiter is not None] + self._statement_waiters
        for row in self._new:
            if row.waiter is not None:
                row.start = ()
        self._new = [row for row in self._new if row.waiter is None]
        self._statements.clear()
        self._statement_waiters = []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(StateUnavailable(error.message, where=error.where, hint=error.hint))

    # --- keeping the file small ------------------------------------------------------------------------

    def _keep_house(self) -> None:
        if self._written < self._house_due:
            return
        self._house_due = self._written + _PRUNE_EVERY
        rarely = self._written % _CHECKPOINT_EVERY < _PRUNE_EVERY
        self._prune_soon(runs=rarely)
        if rarely and self._checkpoint is None:
            self._checkpoint = self._loop.run_in_executor(None, _checkpoint, self._path)
            self._checkpoint.add_done_callback(self._checkpointed)

    def _prune_soon(self, *, runs: bool) -> None:
        horizon = time.time() - self._limits.trace_days * 86_400
        self._statements.append((_PRUNE_STEPS, (horizon, self._limits.traces)))
        if runs:
            self._statements.append((_PRUNE_RUNS, (horizon, self._limits.traces)))
        self._plan(_LAZY_SECONDS)

    def _checkpointed(self, done: asyncio.Future[None]) -> None:
        self._checkpoint = None
        if not done.cancelled() and done.exception() is not None:
            log.warning("the traces' log could not be moved into the file: %s", done.exception())

    # --- reading --------------------------------------------------------------------------------------

    async def runs(self, *, limit: int = 50) -> Sequence[RunView]:
        """The newest runs first."""
        return await self._reader.runs(limit=limit)

    async def run(self, run_id: str) -> tuple[RunView, Sequence[Step]]:
        """One run with its steps in order; raises ``TraceNotFound``."""
        return await self._reader.run(run_id)

    async def steps(self, *, limit: int = 50, run: str | None = None) -> Sequence[Step]:
        """The newest steps first."""
        return await self._reader.steps(limit=limit, run=run)


@cache
def _insertion(rows: int) -> str:
    row = f"({', '.join('?' * (_START.count(',') + 1))})"
    return f"INSERT INTO steps ({_START}) VALUES {', '.join([row] * rows)}"  # noqa: S608 - names of ours


def _checkpoint(path: Path) -> None:
    """Move the WAL into the file; this waits for the disk, so it runs in a thread."""
    database = Database.open(path)
    try:
        with database.reading() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    finally:
        database.close()
