"""The statements of the writer: many rows in one, since every step of SQLite gives up the interpreter's lock.

Row by row (``executemany``) a busy event loop and the writer would hand that lock to and fro for each row. A table
of parameters does it in one step, and costs half of what ``json_each`` does. Needs SQLite 3.33 (``UPDATE … FROM``).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from ...hookspecs.config import Limits

_ROWS = 32
"""Rows a statement at most: each number of rows is a statement of its own, kept prepared by the connection."""

_START = (
    "id, run, tool, plugin, generation, started_at, caller, decision, decision_reason, decision_rule, arguments,"
    " arguments_bytes"
)
_END = ("outcome", "code", "queued", "validating", "upstream", "total", "result", "result_bytes", "output_valid")

_PRUNED_AT_ONCE = 200
"""About a millisecond, for which new rows have to wait."""


def insert_starts(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add steps; one that is there already stays as it is, so a batch may be written again."""
    for at in range(0, len(rows), _ROWS):
        part = rows[at : at + _ROWS]
        connection.execute(_insertion(len(part)), list(chain.from_iterable(part)))


def update_ends(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write the ends of steps; the last column is the step's id."""
    for at in range(0, len(rows), _ROWS):
        part = rows[at : at + _ROWS]
        connection.execute(_update(len(part)), list(chain.from_iterable(part)))


def insert_runs(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO runs (id, agent, purpose, state, started_at, pid, process_start)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def end_runs(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    connection.executemany("UPDATE runs SET state = ?, ended_at = ? WHERE id = ?", rows)


def prune(connection: sqlite3.Connection, limits: Limits) -> bool:
    """Delete the oldest steps beyond the bounds, a slice of them; ``True`` where more may be left.

    Nothing is ever deleted from the middle, so the newest step's number says how many there are.
    """
    horizon = time.time() - limits.trace_days * 86_400
    deleted = connection.execute(
        "DELETE FROM steps WHERE seq IN (SELECT seq FROM (SELECT seq, started_at FROM steps ORDER BY seq LIMIT ?)"
        " WHERE started_at < ? OR seq <= (SELECT MAX(seq) FROM steps) - ?)",
        (_PRUNED_AT_ONCE, horizon, limits.traces),
    ).rowcount
    return deleted > 0 or _prune_runs(connection, limits, horizon) > 0


def _prune_runs(connection: sqlite3.Connection, limits: Limits, horizon: float) -> int:
    """Delete runs that are too old, or whose steps are gone."""
    return connection.execute(
        "DELETE FROM runs WHERE seq IN (SELECT seq FROM runs WHERE ("
        " started_at < ? OR seq <= (SELECT MAX(seq) FROM runs) - ?"
        " OR ended_at < (SELECT started_at FROM steps ORDER BY seq LIMIT 1)"
        ") AND NOT EXISTS (SELECT 1 FROM steps WHERE run = runs.id) LIMIT ?)",
        (horizon, limits.traces, _PRUNED_AT_ONCE),
    ).rowcount


@cache
def _insertion(rows: int) -> str:
    return f"INSERT OR IGNORE INTO steps ({_START}) VALUES {_table(rows, _START.count(',') + 1)}"  # noqa: S608


@cache
def _update(rows: int) -> str:
    if rows == 1:
        return f"UPDATE steps SET {', '.join(f'{name} = ?' for name in _END)} WHERE id = ?"  # noqa: S608
    names = [f"{name} = ended.column{number}" for number, name in enumerate(_END, start=1)]
    table = _table(rows, len(_END) + 1)
    return (
        f"UPDATE steps SET {', '.join(names)} FROM (VALUES {table}) AS ended"  # noqa: S608 - names of ours
        f" WHERE steps.id = ended.column{len(_END) + 1}"
    )


def _table(rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return ", ".join([row] * rows)
