"""The one thread that writes traces: it alone waits for the disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from ...hookspecs.config import Limits
from ...hookspecs.errors import StateUnavailable
from ..database import Database
from ..redaction import Redactor
from . import sql
from .cleaning import Cleaner
from .records import Batch

log = logging.getLogger(__name__)

_PRUNE_EVERY = 1000

Opened = Callable[[Database | None, Exception | None], None]
Answer = Callable[[Batch, Exception | None], None]
"""Why the batch was not written: ``StateUnavailable`` where that may change, any other error is a fault of ours."""


class Writer(threading.Thread):
    """Writes the batches of its ``inbox`` until it finds ``None`` there.

    ``opened`` and ``answer`` are called on this thread: once, and once for each batch.
    """

    def __init__(self, path: Path | None, limits: Limits, redactor: Redactor, opened: Opened, answer: Answer) -> None:
        # A daemon, so that a disk that never answers can't keep the process alive.
        super().__init__(name="bascule-traces", daemon=True)
        self.inbox: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._path = path
        self._limits = limits
        self._cleaner = Cleaner(redactor, limits.trace_detail_bytes)
        self._opened = opened
        self._answer = answer
        self._since_pruned = _PRUNE_EVERY  # prune when opened
        self._pruning = False

    def run(self) -> None:
        try:
            database = Database.open(self._path, checkpoints=True)
        except StateUnavailable as error:
            self._opened(None, error)
            return
        self._opened(database, None)
        try:
            self._serve(database)
        finally:
            database.close()

    def _serve(self, database: Database) -> None:
        while True:
            self._prune(database)
            batch = self.inbox.get()
            if batch is None:
                return
            self._answer(batch, self._outcome(database, batch))

    def _outcome(self, database: Database, batch: Batch) -> Exception | None:
        try:
            self._write(database, batch)
        except StateUnavailable as error:
            return error
        except Exception as error:  # a row that can't be written must not end the thread
            log.exception("a batch of traces can't be written")
            return error
        return None

    def _write(self, database: Database, batch: Batch) -> None:
        clean = self._cleaner
        # Before the transaction: other processes wait while it is open.
        runs = [clean.run(row) for row in batch.runs]
        starts = [clean.start(row) for row in batch.starts]
        ends = [clean.end(row) for row in batch.ends]
        if not (runs or starts or ends or batch.run_ends):
            return
        with database.transaction() as connection:
            if runs or batch.run_ends:
                sql.insert_runs(connection, runs)
                sql.end_runs(connection, batch.run_ends)
            sql.insert_starts(connection, starts)
            sql.update_ends(connection, ends)
        self._since_pruned += len(starts) + len(runs)

    def _prune(self, database: Database) -> None:
        """Delete a slice, or more while nothing is waiting to be written."""
        if self._since_pruned >= _PRUNE_EVERY:
            self._since_pruned = 0
            self._pruning = True
        while self._pruning:
            try:
                with database.transaction() as connection:
                    self._pruning = sql.prune(connection, self._limits)
            except StateUnavailable:
                self._pruning = False  # the next time comes, and writing tells of the trouble
            if not self.inbox.empty():
                return
