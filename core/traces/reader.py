"""Reads traces back, on a connection of its own: also while another process writes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from ...hookspecs.bridge import RunView, Step
from ...hookspecs.errors import TraceNotFound
from ..database import Database
from .processes import is_running

_DETAIL_BYTES = 16 * 1024 * 1024
"""What the details of one answer may take together; steps beyond it come without."""

_STEP = tuple(field.name for field in dataclasses.fields(Step))
_STEPS = f"SELECT {', '.join(_STEP)} FROM steps"  # noqa: S608 - names of ours
_RUN = (
    "SELECT id, agent, purpose, state, started_at, ended_at, pid, process_start, COALESCE(steps, 0) FROM runs"
    " LEFT JOIN (SELECT run, COUNT(*) AS steps FROM steps GROUP BY run) ON run = id"  # one scan of a bounded table
)

T = TypeVar("T")


class StoredTraces:
    """A ``TraceReader`` of the file at ``path``; also for a process that traces nothing itself.

    ``shared`` is the connection to use instead of an own one, ``settle`` what to wait for before each look.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        shared: Database | None = None,
        settle: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._path = path
        self._database = shared
        self._own = shared is None
        self._settle = settle
        self._opening = threading.Lock()

    async def runs(self, *, limit: int = 50) -> Sequence[RunView]:
        """Return the newest runs first."""
        return await self._read(lambda connection: _runs(connection, limit))

    async def run(self, run_id: str) -> tuple[RunView, Sequence[Step]]:
        """Return one run with its steps in order; raises ``TraceNotFound``."""
        return await self._read(lambda connection: _run(connection, run_id))

    async def steps(self, *, limit: int = 50, run: str | None = None) -> Sequence[Step]:
        """Return the newest steps first, of all runs and of none, or of ``run`` alone."""
        return await self._read(lambda connection: _steps(connection, limit, run))

    def close(self) -> None:
        """Close the connection, unless it is a shared one."""
        if self._own and self._database is not None:
            self._database.close()

    async def _read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        if self._settle is not None:
            await self._settle()
        return await asyncio.to_thread(self._look, look)

    def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        with self._opening:
            if self._database is None:
                self._database = Database.open(self._path)
        with self._database.reading() as connection:
            return look(connection)


def _runs(connection: sqlite3.Connection, limit: int) -> list[RunView]:
    rows = connection.execute(f"{_RUN} ORDER BY seq DESC LIMIT ?", (limit,))
    return [_run_view(row) for row in rows]


def _run(connection: sqlite3.Connection, run_id: str) -> tuple[RunView, list[Step]]:
    row = connection.execute(f"{_RUN} WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise TraceNotFound(
            f"no run {run_id!r} is kept: it never was, or it is older than what is kept",
            hint="list the runs to see those that are",
        )
    rows = connection.execute(f"{_STEPS} WHERE run = ? ORDER BY seq", (run_id,))
    return _run_view(row), list(_step_views(rows))


def _steps(connection: sqlite3.Connection, limit: int, run: str | None) -> list[Step]:
    where, values = ("", (limit,)) if run is None else ("WHERE run = ?", (run, limit))
    rows = connection.execute(f"{_STEPS} {where} ORDER BY seq DESC LIMIT ?", values)
    return list(_step_views(rows))


def _run_view(row: tuple[Any, ...]) -> RunView:
    run_id, agent, purpose, state, started_at, ended_at, pid, process_start, steps = row
    if state == "running" and not is_running(pid, process_start):
        state = "crashed"
    return RunView(run_id, agent, purpose, state, _time(started_at), ended_at and _time(ended_at), steps)


def _step_views(rows: Iterable[tuple[Any, ...]]) -> Iterator[Step]:
    left = _DETAIL_BYTES
    for row in rows:
        fields = dict(zip(_STEP, row, strict=True))
        left -= len(fields["arguments"] or "") + len(fields["result"] or "")
        if left < 0:
            fields["arguments"] = fields["result"] = None
        valid = fields["output_valid"]
        fields["output_valid"] = None if valid is None else bool(valid)
        fields["started_at"] = _time(fields["started_at"])
        fields["caller"] = _caller(fields["caller"])
        yield Step(**fields)


def _caller(text: str) -> Mapping[str, Any]:
    try:
        caller = json.loads(text)
    except ValueError:
        return {}
    return caller if isinstance(caller, dict) else {}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
