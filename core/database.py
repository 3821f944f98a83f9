"""The state directory's one SQLite file: opened with its bounds, migrated, and every failure told with its cure.

Whoever uses it has a connection of its own: the store, the writer of traces, each look of a reader. WAL lets them
work at once, in several processes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..hookspecs.errors import StateUnavailable

DATABASE_NAME = "bascule.db"

BUSY_SECONDS = 2.0
"""How long a connection waits for another one's write; ours take milliseconds."""

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
    CREATE TABLE offers (hook_plugin TEXT NOT NULL, family TEXT NOT NULL, PRIMARY KEY (hook_plugin, family));
    CREATE TABLE tokens (
        name TEXT PRIMARY KEY, digest TEXT NOT NULL, scopes TEXT NOT NULL, created_at REAL NOT NULL
    );
    CREATE TABLE runs (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, purpose TEXT, state TEXT NOT NULL,
        started_at REAL NOT NULL, ended_at REAL, process TEXT NOT NULL
    );
    CREATE TABLE steps (seq INTEGER PRIMARY KEY, run TEXT, started_at REAL NOT NULL, begun TEXT NOT NULL);
    CREATE TABLE ends (seq INTEGER PRIMARY KEY, ended TEXT NOT NULL)
    """,
    """
    ALTER TABLE runs ADD COLUMN owner TEXT;
    ALTER TABLE runs ADD COLUMN used_at REAL;
    CREATE TABLE children (
        seq INTEGER PRIMARY KEY, plugin_id TEXT NOT NULL, bridge TEXT NOT NULL, directory BLOB NOT NULL,
        argv TEXT NOT NULL, started_at REAL NOT NULL, pid INTEGER, process TEXT
    )
    """,
    """
    CREATE TABLE approvals (
        directory BLOB NOT NULL, plugin_id TEXT NOT NULL, document TEXT NOT NULL,
        PRIMARY KEY (directory, plugin_id)
    )
    """,
    """
    ALTER TABLE steps RENAME TO steps_3;
    CREATE TABLE steps (
        seq INTEGER PRIMARY KEY, run TEXT, facts INTEGER, started_at REAL NOT NULL, begun TEXT NOT NULL
    );
    INSERT INTO steps SELECT seq, run, NULL, started_at, begun FROM steps_3;
    DROP TABLE steps_3;
    CREATE TABLE facts (id INTEGER PRIMARY KEY, kept_at REAL NOT NULL, facts TEXT NOT NULL)
    """,
)
"""One script a version of the file, applied in order and only ever appended to; ``;`` ends a statement and
stands nowhere else."""

_RIGHTS = "make the file and its directory writable for this user, or use another with --state"
_DAMAGED = "move the file away; plugins then have to be installed and granted again"
_CURES = {
    sqlite3.SQLITE_BUSY: "another process is writing for long: end it, or try again",
    sqlite3.SQLITE_FULL: "free some space on this disk",
    sqlite3.SQLITE_IOERR: "see whether this disk is full, or failing",
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
}

_OUR_FAULT = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.IntegrityError, sqlite3.DataError)
"""A wrong statement or a wrong value: the state is well, and trying again would not help."""


class Database:
    """One connection, for one thread at a time; opened it is migrated. Raises ``StateUnavailable``."""

    def __init__(self, path: Path, *, busy_seconds: float | None = None) -> None:
        self.path = path
        self._create()
        with self._translated():
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(BUSY_SECONDS if busy_seconds is None else busy_seconds)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the connection; the last one of all processes moves the WAL into the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write, all or nothing; raises ``StateUnavailable``."""
        with self._translated(), self._connection as connection:  # commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read; raises ``StateUnavailable``."""
        with self._translated():
            yield self._connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _OUR_FAULT:
            raise
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the upper bytes only refine it
            hint = _CURES.get(kind, _RIGHTS)
            raise StateUnavailable(f"can't be used: {error}", where=str(self.path), hint=hint) from error

    def _create(self) -> None:
        """Make the directory and the file before SQLite does, for the owner alone; its side files follow the file.

        A file that is there is not opened: closing it again would take away every lock that this process's
        connections hold on it, and another process would remove the WAL below them.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.path.exists():
                with suppress(FileExistsError):
                    self.path.touch(0o600, exist_ok=False)
        except OSError as error:
            message = f"can't be opened for writing: {error.strerror or error}"
            raise StateUnavailable(message, where=str(self.path), hint=_RIGHTS) from error

    def _prepare(self, busy_seconds: float) -> None:
        # NORMAL: a power cut may take the last commits but never corrupts, and a commit waits for no disk.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        # A checkpoint does wait for it: the last to close does one, and the upkeep of traces.
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        for _ in range(100):  # SQLite does not wait for others who make the same change
            with suppress(sqlite3.OperationalError):
                self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            time.sleep(BUSY_SECONDS / 100)
        self._migrate()
        self._connection.execute(f"PRAGMA busy_timeout = {busy_seconds * 1000:.0f}")

    def _migrate(self) -> None:
        if self._version() < len(MIGRATIONS):
            with self.transaction() as connection:
                # Another process may have been first while this one waited for the lock.
                for number in range(self._version(), len(MIGRATIONS)):
                    for statement in MIGRATIONS[number].split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {number + 1}")
        if self._version() > len(MIGRATIONS):
            message = f"was written by a newer Bascule (format {self._version()}; this one knows {len(MIGRATIONS)})"
            hint = "upgrade Bascule, or use another directory with --state"
            raise StateUnavailable(message, where=str(self.path), hint=hint)

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])
