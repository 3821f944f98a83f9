"""Keeps the file of traces small; done in a thread, since it waits for the disk and for other processes.

Each statement is a transaction of its own, so that none holds the file while its thread waits for the interpreter.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from ...hookspecs import Limits, StateUnavailable
from ..database import Database
from .rows import FACTS_SECONDS

BUSY_SECONDS = 0.1

_AT_ONCE = 512  # steps: about a millisecond in which no one else can write
_WAL_BYTES = 4 * 1024 * 1024

_STEPS = (
    "DELETE FROM steps WHERE seq IN (SELECT seq FROM steps ORDER BY seq LIMIT :at_once)"
    " AND (started_at < :horizon OR seq <= (SELECT MAX(seq) FROM steps) - :limit)"
)
_ENDS = "DELETE FROM ends WHERE seq < COALESCE((SELECT MIN(seq) FROM steps), 9e18)"
_RUNS = (  # a run goes with its last step; one that never ended, because its process crashed, is kept for its time
    "DELETE FROM runs WHERE ended_at < MAX(:horizon, COALESCE((SELECT started_at FROM steps ORDER BY seq LIMIT 1), 0))"
    " OR (ended_at IS NOT NULL AND seq <= (SELECT MAX(seq) FROM runs) - :limit)"
    " OR (ended_at IS NULL AND started_at < :horizon AND id NOT IN (SELECT run FROM steps WHERE run IS NOT NULL))"
)
_UNUSED_FACTS = "SELECT id FROM facts WHERE kept_at < ? AND id NOT IN (SELECT facts FROM steps WHERE facts IS NOT NULL)"


def tidy(database: Database, limits: Limits, facts: bool) -> None:
    """Delete what is too old or too much, and move the WAL into the file once it has grown.

    With ``facts`` also those that no step refers to: all steps are looked through for that.
    """
    now = time.time()
    bounds = {"horizon": now - limits.trace_days * 86_400, "limit": limits.traces, "at_once": _AT_ONCE}
    with suppress(StateUnavailable, FileNotFoundError), database.reading() as connection:  # the next time, then
        while connection.execute(_STEPS, bounds).rowcount == _AT_ONCE:
            pass
        connection.execute(_ENDS)
        connection.execute(_RUNS, bounds)
        if facts:  # found first, since deleting locks others out
            unused = connection.execute(_UNUSED_FACTS, (now - 2 * FACTS_SECONDS,)).fetchall()
            connection.executemany("DELETE FROM facts WHERE id = ?", unused)
        if Path(f"{database.path}-wal").stat().st_size > _WAL_BYTES:
            # The first moves the bulk and hinders no one; only the second, which empties the WAL, locks others out.
            for mode in ("PASSIVE", "TRUNCATE"):
                connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
