"""Keeps the file of traces small; done in a thread, since it waits for the disk and for other processes.

Each statement is a transaction of its own, so that none holds the file while its thread waits for the interpreter. All
calls wait while one writes: so it is asked first whether there is anything to delete, and what every call adds to is
deleted by who adds it (see :mod:`.recorder`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress

from ...hookspecs import Limits, StateUnavailable
from ..database import Database
from .rows import FACTS_SECONDS

BUSY_SECONDS = 0.1

_AT_ONCE = 512  # steps: about a millisecond in which no one else can write

_STEPS = (
    "FROM steps WHERE seq IN (SELECT seq FROM steps ORDER BY seq LIMIT :at_once)"
    " AND (started_at < :horizon OR seq <= (SELECT MAX(seq) FROM steps) - :limit)"
)
_ENDS = "FROM ends WHERE seq < COALESCE((SELECT MIN(seq) FROM steps), 9e18)"
_RUNS = (  # a run goes with its last step; one that never ended, because its process crashed, is kept for its time
    "FROM runs WHERE ended_at < MAX(:horizon, COALESCE((SELECT started_at FROM steps ORDER BY seq LIMIT 1), 0))"
    " OR (ended_at IS NOT NULL AND seq <= (SELECT MAX(seq) FROM runs) - :limit)"
    " OR (ended_at IS NULL AND started_at < :horizon AND id NOT IN (SELECT run FROM steps WHERE run IS NOT NULL))"
)
_UNUSED_FACTS = "SELECT id FROM facts WHERE kept_at < ? AND id NOT IN (SELECT facts FROM steps WHERE facts IS NOT NULL)"


def tidy(database: Database, limits: Limits, *, whole: bool = True, log: bool = True) -> bool:
    """Delete what is too old or too much; returns whether the next one who writes begins the WAL anew.

    With ``whole`` also what takes a look at all steps: those that are too old, and facts that none refers to. With
    ``log`` the WAL is moved into the file.
    """
    now = time.time()
    bounds = {"horizon": now - limits.trace_days * 86_400, "limit": limits.traces, "at_once": _AT_ONCE}
    with suppress(StateUnavailable), database.reading() as connection:  # the next time, then
        if whole:
            while _delete(connection, _STEPS, bounds) == _AT_ONCE:
                pass
            _delete(connection, _ENDS, {})
        _delete(connection, _RUNS, bounds)
        if whole:
            unused = connection.execute(_UNUSED_FACTS, (now - 2 * FACTS_SECONDS,)).fetchall()
            connection.executemany("DELETE FROM facts WHERE id = ?", unused)
        return log and _move_log(connection)
    return False


def _move_log(connection: sqlite3.Connection) -> bool:
    """Move the WAL's pages into the file. The WAL keeps its size: new space costs three times as much to write into."""
    moved = False
    for mode in ("PASSIVE", "PASSIVE", "FULL"):  # the bulk, what came meanwhile; only the last locks others out
        busy, pages, done = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        moved = not busy and pages == done
    return moved


def _delete(connection: sqlite3.Connection, which: str, values: Mapping[str, float]) -> int:
    """Return how many rows were deleted; who finds none has locked nobody out."""
    if connection.execute(f"SELECT 1 {which} LIMIT 1", values).fetchone() is None:
        return 0
    return connection.execute(f"DELETE {which}", values).rowcount
