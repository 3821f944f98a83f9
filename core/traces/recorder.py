"""Keeps what happens: the face of traces that the bridge works with."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ...hookspecs.bridge import RunView, Step
from ...hookspecs.config import Limits
from ...hookspecs.errors import StateUnavailable
from ..redaction import Redactor
from .processes import this_process
from .reader import StoredTraces
from .records import Detail, EndRow, StartRow, StepEnd, StepStart
from .writing import WriteQueue

log = logging.getLogger(__name__)

QUEUE_STEPS = 16_384
"""Steps begun whose end is not written yet; a step without detail takes about a kilobyte."""

QUEUE_BYTES = 4 * 1024 * 1024
"""Arguments and results that wait to be written."""

_encode = msgspec.json.Encoder().encode


class Traces:
    """Keeps runs and steps in the file ``database`` (``None``: in memory), redacted; itself a ``TraceReader``.

    ``reader`` is the ``TraceReader`` alone, for whoever may look and not write.
    """

    reader: StoredTraces
    _queue: WriteQueue

    def __init__(
        self,
        database: Path | None,
        limits: Limits,
        redactor: Redactor,
        *,
        queue_steps: int = QUEUE_STEPS,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self._path = database
        self._limits = limits
        self._redactor = redactor
        self._bounds = (queue_steps, queue_bytes)
        self._prefix = secrets.token_hex(5)
        self._numbers = itertools.count(1)
        self._unkept = 0

    async def __aenter__(self) -> Self:
        self._queue = WriteQueue(self._path, self._limits, self._redactor, *self._bounds)
        database = await self._queue.start()
        shared = database if self._path is None else None
        self.reader = StoredTraces(self._path, shared=shared, settle=self._settle)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            await self._queue.stop()
        finally:
            self.reader.close()

    # --- runs ---------------------------------------------------------------------------------------------------

    async def begin_run(self, agent: str, purpose: str | None = None) -> str:
        """Begin a run and return its id once its row is there; raises ``StateUnavailable``."""
        run_id = self.next_id()
        self._queue.batch.runs.append((run_id, agent, purpose, "running", time.time(), *this_process()))
        await self._queue.wait(run_id)
        return run_id

    async def end_run(self, run_id: str, state: str) -> None:
        """End a run as ``finished`` or ``failed``; where that can't be written now, it is tried again later."""
        self._queue.batch.run_ends.append((state, time.time(), run_id))
        with suppress(StateUnavailable):
            await self._queue.flush()

    # --- steps --------------------------------------------------------------------------------------------------

    def next_id(self) -> str:
        """Return an id that no other run or step has, of any process."""
        return f"{self._prefix}{next(self._numbers):06x}"

    async def open(self, start: StepStart) -> None:
        """Write a step down; when this returns, its row is there. Then ``close`` it, come what may.

        Raises ``StateUnavailable`` where the row can't be written within a few seconds: don't send the call. Also
        then, and when cancelled here, ``refuse`` the step.
        """
        queue = self._queue
        if queue.full:
            await queue.room()
        queue.begin(self._start_row(start))
        await queue.wait(start.id)

    def close(self, step_id: str, end: StepEnd) -> None:
        """Queue the end of an opened step; a step that is closed already, or never was open, is left alone."""
        if self._queue.is_open(step_id):
            self._queue.end(self._end_row(step_id, end))

    def refuse(self, start: StepStart, end: StepEnd) -> None:
        """Queue a step that was never sent, as a whole."""
        if not self._queue.is_open(start.id):
            if self._queue.overfull:
                self._count_unkept()
                return
            self._queue.begin(self._start_row(start))
        self.close(start.id, end)

    async def flush(self) -> None:
        """Wait until all that was queued so far is written; raises ``StateUnavailable`` where it could not be."""
        await self._queue.flush()

    # --- reading ------------------------------------------------------------------------------------------------

    async def runs(self, *, limit: int = 50) -> Sequence[RunView]:
        """Return the newest runs first."""
        return await self.reader.runs(limit=limit)

    async def run(self, run_id: str) -> tuple[RunView, Sequence[Step]]:
        """Return one run with its steps in order; raises ``TraceNotFound``."""
        return await self.reader.run(run_id)

    async def steps(self, *, limit: int = 50, run: str | None = None) -> Sequence[Step]:
        """Return the newest steps first."""
        return await self.reader.steps(limit=limit, run=run)

    async def _settle(self) -> None:
        with suppress(StateUnavailable):  # what is there can be shown all the same
            await self._queue.flush()

    # --- rows ---------------------------------------------------------------------------------------------------

    def _start_row(self, start: StepStart) -> StartRow:
        detail = self._detail(start.arguments)
        size = start.arguments_bytes
        return (
            start.id,
            start.run,
            start.tool,
            start.plugin,
            start.generation,
            start.started_at,
            _encoded(start.caller),
            start.decision,
            start.decision_reason,
            start.decision_rule,
            detail,
            detail[1] if size is None and detail is not None else size,
        )

    def _end_row(self, step_id: str, end: StepEnd) -> EndRow:
        detail = self._detail(end.result)
        size = end.result_bytes
        return (
            end.outcome,
            end.code,
            end.queued,
            end.validating,
            end.upstream,
            end.total,
            detail,
            detail[1] if size is None and detail is not None else size,
            end.output_valid,
            step_id,
        )

    def _detail(self, value: object) -> Detail | None:
        """Encode ``value`` now, since its owner may change it; ``None`` where there is no room for it."""
        limit = self._limits.trace_detail_bytes
        if value is None or limit <= 0:
            return None
        encoded = _encoded(value)
        total = len(encoded)
        if total > limit:
            encoded = encoded[: limit + self._redactor.reach]
        return (encoded, total) if self._queue.takes(len(encoded)) else None

    def _count_unkept(self) -> None:
        self._unkept += 1
        if self._unkept == 1:
            log.error("more refused calls than can be written down: some leave no trace")


def _encoded(value: object) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return b'"[not JSON]"'
