"""Reads traces back, on a connection of its own: also while another process writes.

Each look is a function of a connection, for ``look`` in a thread.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ...hookspecs import RunView, Step, TraceNotFound
from ..database import Database
from ..processes import is_running

T = TypeVar("T")

_DETAIL_BYTES = 16 * 1024 * 1024
"""What the details of one answer may take together; steps beyond it come without."""

USES_KEPT = 60
"""How often the last use of an open run is written within the time that it may be idle, at the most."""

_ID = re.compile(r"[0-9a-f]{16}")
_STEPS = (
    "SELECT run, started_at, facts.facts, begun, ended FROM steps LEFT JOIN ends USING (seq)"
    " LEFT JOIN facts ON facts.id = steps.facts"
)
_UNKNOWN: dict[str, Any] = {"plugin": None, "generation": None, "tool": ""}
"""What stands in place of a step's facts should they be lost."""
_RUNS = (
    "SELECT id, agent, purpose, state, started_at, ended_at, COALESCE(steps, 0), process, used_at FROM runs"
    " LEFT JOIN (SELECT run, COUNT(*) AS steps FROM steps GROUP BY run) ON run = id"  # one scan of a bounded table
)
_OPEN_RUNS = "SELECT id, owner, used_at FROM runs WHERE state = 'running' AND used_at IS NOT NULL ORDER BY seq"
_OPENED_RUN = "SELECT state FROM runs WHERE id = ?1 AND used_at IS NOT NULL AND (?2 IS NULL OR owner = ?2)"


def look(path: Path, what: Callable[..., T], *values: object) -> T:
    """Open the file at ``path`` for one look at it."""
    with closing(Database(path)) as database, database.reading() as connection:
        return what(connection, *values)


def runs(connection: sqlite3.Connection, idle: float, limit: int, before: str | None) -> Sequence[RunView]:
    """Return the newest runs first; ``idle`` is how long an open one may be unused."""
    which = "WHERE ?1 IS NULL OR seq < (SELECT seq FROM runs WHERE id = ?1) ORDER BY seq DESC LIMIT ?2"
    return _runs(connection, idle, which, before, limit)


def run_view(connection: sqlite3.Connection, idle: float, run_id: str) -> RunView:
    """Return one run without its steps; raises ``TraceNotFound``."""
    for found in _runs(connection, idle, "WHERE id = ?", run_id):
        return found
    raise TraceNotFound(f"no run {run_id!r} is kept, or not any more", hint="list the runs to see those that are")


def run(connection: sqlite3.Connection, idle: float, run_id: str) -> tuple[RunView, Sequence[Step]]:
    """Return one run with its steps in order; raises ``TraceNotFound``."""
    found = run_view(connection, idle, run_id)
    return found, _steps(connection, "WHERE run = ? ORDER BY seq", run_id)


def step(connection: sqlite3.Connection, trace_id: str) -> Step:
    """Return one step; raises ``TraceNotFound``."""
    if _ID.fullmatch(trace_id):
        # A step's id stands at the very beginning of its text: one scan of a bounded table, which parses nothing.
        for found in _steps(connection, "WHERE substr(begun, 1, 24) = ?", f'{{"id":"{trace_id}"'):
            return found
    raise TraceNotFound(f"no step {trace_id!r} is kept, or not any more", hint="list the runs to see those that are")


def open_runs(connection: sqlite3.Connection) -> list[tuple[str, str, float]]:
    """Return id, owner and last use of every open run, the oldest first."""
    return list(connection.execute(_OPEN_RUNS))


def ended(connection: sqlite3.Connection, run_id: str, owner: str | None) -> str | None:
    """Return the state of a run that this owner (``None``: anyone) had opened."""
    row = connection.execute(_OPENED_RUN, (run_id, owner)).fetchone()
    return None if row is None else str(row[0])


def steps(connection: sqlite3.Connection, limit: int, run: str | None) -> Sequence[Step]:
    """Return the newest steps first, of all runs and of none, or of ``run`` alone."""
    return _steps(connection, "WHERE ?1 IS NULL OR run = ?1 ORDER BY seq DESC LIMIT ?2", run, limit)


def _runs(connection: sqlite3.Connection, idle: float, which: str, *values: object) -> list[RunView]:
    # The last use of an open run is written so many times in that period (see ``core/runs``).
    horizon = time.time() - idle * (1 + 1 / USES_KEPT)
    return [_run_view(horizon, *row) for row in connection.execute(f"{_RUNS} {which}", values)]


def _run_view(horizon: float, run_id: str, agent: str, purpose: str | None, state: str, *others: Any) -> RunView:
    started_at, ended_at, steps, process, used_at = others
    if state == "running" and used_at is not None and used_at < horizon:
        state, ended_at = "abandoned", used_at
    elif state == "running" and not is_running(process):
        state = "crashed"
    return RunView(run_id, agent, purpose, state, _time(started_at), ended_at and _time(ended_at), steps)


def _steps(connection: sqlite3.Connection, which: str, *values: object) -> list[Step]:
    left, steps = _DETAIL_BYTES, []
    for run, started_at, facts, begun, ended in connection.execute(f"{_STEPS} {which}", values):
        texts = (facts or "{}", begun, ended or "{}")  # of an old format, all that is known of the call is in begun
        fields = dict(_UNKNOWN)
        for text in texts:
            fields |= json.loads(text)
        left -= sum(map(len, texts))
        if left < 0:
            fields["arguments"] = fields["result"] = None
        steps.append(Step(**{**fields, "run": run, "started_at": _time(started_at)}))
    return steps


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
