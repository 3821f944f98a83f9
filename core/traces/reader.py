"""Reads traces back, on a connection of its own: also while another process writes.

Each look is a function of a connection, for ``look`` in a thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ...hookspecs import RunView, Step, TraceNotFound
from ..database import Database
from .processes import is_running

T = TypeVar("T")

_DETAIL_BYTES = 16 * 1024 * 1024
"""What the details of one answer may take together; steps beyond it come without."""

_STEPS = "SELECT begun, ended FROM steps LEFT JOIN ends USING (seq)"
_RUNS = (
    "SELECT id, agent, purpose, state, started_at, ended_at, COALESCE(steps, 0), process FROM runs"
    " LEFT JOIN (SELECT run, COUNT(*) AS steps FROM steps GROUP BY run) ON run = id"  # one scan of a bounded table
)


def look(path: Path, what: Callable[..., T], *values: object) -> T:
    """Open the file at ``path`` for one look at it."""
    with closing(Database(path)) as database, database.reading() as connection:
        return what(connection, *values)


def runs(connection: sqlite3.Connection, limit: int) -> Sequence[RunView]:
    """Return the newest runs first."""
    return _runs(connection, "ORDER BY seq DESC LIMIT ?", limit)


def run(connection: sqlite3.Connection, run_id: str) -> tuple[RunView, Sequence[Step]]:
    """Return one run with its steps in order; raises ``TraceNotFound``."""
    for found in _runs(connection, "WHERE id = ?", run_id):
        return found, _steps(connection, "WHERE run = ? ORDER BY seq", run_id)
    raise TraceNotFound(f"no run {run_id!r} is kept, or not any more", hint="list the runs to see those that are")


def steps(connection: sqlite3.Connection, limit: int, run: str | None) -> Sequence[Step]:
    """Return the newest steps first, of all runs and of none, or of ``run`` alone."""
    return _steps(connection, "WHERE ?1 IS NULL OR run = ?1 ORDER BY seq DESC LIMIT ?2", run, limit)


def _runs(connection: sqlite3.Connection, which: str, *values: object) -> list[RunView]:
    return [_run_view(*row) for row in connection.execute(f"{_RUNS} {which}", values)]


def _run_view(run_id: str, agent: str, purpose: str | None, state: str, *others: Any) -> RunView:
    started_at, ended_at, steps, process = others
    if state == "running" and not is_running(process):
        state = "crashed"
    return RunView(run_id, agent, purpose, state, _time(started_at), ended_at and _time(ended_at), steps)


def _steps(connection: sqlite3.Connection, which: str, *values: object) -> list[Step]:
    left, steps = _DETAIL_BYTES, []
    for begun, ended in connection.execute(f"{_STEPS} {which}", values):
        fields = json.loads(begun) | json.loads(ended or "{}")
        left -= len(begun) + len(ended or "")
        if left < 0:
            fields["arguments"] = fields["result"] = None
        steps.append(Step(**{**fields, "started_at": _time(fields["started_at"])}))
    return steps


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
