"""The state directory's one SQLite file: opened with its bounds, migrated, and every failure told with its cure.

Whoever uses it has a connection of its own: the store, the writer of traces, each reader. WAL lets them work at
once, in several processes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..hookspecs.errors import StateUnavailable

DATABASE_NAME = "bascule.db"

BUSY_SECONDS = 2.0
"""How long a connection waits for another process's write; ours take milliseconds."""

_CHECKPOINT_PAGES = 4000
"""A checkpoint waits for the disk and the writer waits with it: four times as rare as SQLite has it, 16 MiB of WAL."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE plugins (
        plugin_id TEXT PRIMARY KEY, directory BLOB NOT NULL, digest TEXT NOT NULL, manifest TEXT NOT NULL,
        enabled INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, installed_at REAL NOT NULL
    );
    CREATE TABLE grants (
        directory BLOB NOT NULL, digest TEXT NOT NULL, plugin_id TEXT NOT NULL, permissions TEXT NOT NULL,
        PRIMARY KEY (directory, digest)
    );
    CREATE TABLE offers (
        hook_plugin TEXT NOT NULL, family TEXT NOT NULL, PRIMARY KEY (hook_plugin, family)
    );
    CREATE TABLE tokens (
        name TEXT PRIMARY KEY, digest TEXT NOT NULL, scopes TEXT NOT NULL, created_at REAL NOT NULL
    );
    CREATE TABLE runs (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, purpose TEXT, state TEXT NOT NULL,
        started_at REAL NOT NULL, ended_at REAL, pid INTEGER NOT NULL, process_start TEXT
    );
    CREATE TABLE steps (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL, run TEXT, tool TEXT NOT NULL, plugin TEXT,
        generation INTEGER, started_at REAL NOT NULL, caller TEXT NOT NULL,
        decision TEXT, decision_reason TEXT, decision_rule TEXT, arguments TEXT, arguments_bytes INTEGER,
        outcome TEXT, code TEXT, queued REAL, validating REAL, upstream REAL, total REAL,
        result TEXT, result_bytes INTEGER, output_valid INTEGER
    );
    """,
)
"""One script a version of the file, applied in order and only ever appended to; ``;`` ends a statement and
stands nowhere else."""

_CURES = {
    sqlite3.SQLITE_BUSY: "another process is writing for long: end it, or try again",
    sqlite3.SQLITE_LOCKED: "another process is writing for long: end it, or try again",
    sqlite3.SQLITE_FULL: "free some space on this disk",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for this user, or use another with --state",
    sqlite3.SQLITE_CANTOPEN: "make the file and its directory writable for this user, or use another with --state",
    sqlite3.SQLITE_NOTADB: "move the file away; plugins then have to be installed and granted again",
    sqlite3.SQLITE_CORRUPT: "move the file away; plugins then have to be installed and granted again",
}
_OTHER_CURE = "look at the disk and at the rights of the directory, or use another with --state"

_OUR_FAULT = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.IntegrityError, sqlite3.DataError)
"""A wrong statement or a wrong value: the state is well, and trying again would not help."""


class Database:
    """One connection, for one thread at a time: each use holds its lock.

    ``checkpoints`` says whether commits may move the WAL into the file, which waits for the disk.
    """

    def __init__(self, path: Path | None, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._closed = False
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path | None, *, checkpoints: bool = False, busy_seconds: float | None = None) -> Database:
        """Open and migrate the file, ``None`` for one in memory; raises ``StateUnavailable``."""
        if path is not None:
            _create(path)
        with _translated(path):
            connection = sqlite3.connect(
                path or ":memory:",
                timeout=BUSY_SECONDS if busy_seconds is None else busy_seconds,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            try:
                _prepare(connection, checkpoints=checkpoints)
                _migrate(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write, all or nothing; raises ``StateUnavailable``."""
        with self.reading() as connection, _transaction(connection):
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read; raises ``StateUnavailable``."""
        with self._lock, _translated(self.path):
            if self._closed:
                raise StateUnavailable("is closed", where=str(self.path or "memory"))
            yield self._connection

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()


def _create(path: Path) -> None:
    """Make the directory and the file before SQLite does, for the owner alone; its side files follow the file."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StateUnavailable(
            f"can't be opened for writing: {error.strerror or error}",
            where=str(path),
            hint=_CURES[sqlite3.SQLITE_CANTOPEN],
        ) from error


def _prepare(connection: sqlite3.Connection, *, checkpoints: bool) -> None:
    # NORMAL: a power cut may take the last commits but never corrupts, and a commit waits for no disk.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES if checkpoints else 0}")
    connection.execute(f"PRAGMA journal_size_limit = {4096 * _CHECKPOINT_PAGES}")
    connection.execute("PRAGMA journal_mode = WAL").fetchone()


def _migrate(connection: sqlite3.Connection, path: Path | None) -> None:
    for number, script in enumerate(MIGRATIONS, start=1):
        if _version(connection) >= number:
            continue
        with _transaction(connection):
            # Another process may have been first while this one waited for the lock.
            if _version(connection) < number:
                for statement in script.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise StateUnavailable(
            f"was written by a newer Bascule (format {version}; this one knows {len(MIGRATIONS)})",
            where=str(path),
            hint="upgrade Bascule, or use another directory with --state",
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back on a full disk
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _translated(path: Path | None) -> Iterator[None]:
    try:
        yield
    except _OUR_FAULT:
        raise
    except sqlite3.Error as error:
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the upper bytes only refine it
        cure = _CURES.get(kind, _OTHER_CURE)
        raise StateUnavailable(f"can't be used: {error}", where=str(path or "memory"), hint=cure) from error
