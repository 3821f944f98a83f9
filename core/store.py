"""What the bridge remembers: installed plugins, the owner's grants, what hook plugins offered; and who may write.

It stands in the state directory's ``bascule.db`` (see :mod:`.database`). Calls are short and synchronous, and safe
from any thread; where another process is writing, one waits for it at most ``BUSY_SECONDS``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ..hookspecs.errors import StateLocked, StateUnavailable
from .database import DATABASE_NAME, Database
from .processes import exists

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


_LEFT_LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """An installed plugin. ``manifest`` is the manifest's text as it was read, ``installed_at`` seconds since 1970."""

    plugin_id: str
    directory: Path
    digest: str
    manifest: str
    enabled: bool
    state: str
    reason: str | None
    installed_at: float


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """A process that was to be started. ``bridge`` names the process that started it, ``process`` it itself."""

    seq: int
    bridge: str
    directory: Path
    argv: tuple[str, ...]
    pid: int | None
    process: str | None


_GRANT = "INSERT OR REPLACE INTO grants (plugin_id, directory, digest, permissions) VALUES (?, ?, ?, ?)"


class Store:
    """The state directory's memory; every method raises ``StateUnavailable`` where the file can't be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, directory: Path) -> Store:
        """Open the state in ``directory``, which is created (0700) where it is missing."""
        return cls(Database(directory / DATABASE_NAME))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def save_plugin(self, record: PluginRecord, grants: Iterable[str] | None = None) -> None:
        """Keep ``record`` in place of what was known of this plugin; with ``grants``, these with it, in one step."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO plugins"
                " (plugin_id, directory, digest, manifest, enabled, state, reason, installed_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    record.plugin_id,
                    os.fsencode(record.directory),
                    record.digest,
                    record.manifest,
                    record.enabled,
                    record.state,
                    record.reason,
                    record.installed_at,
                ),
            )
            if grants is not None:
                values = (record.plugin_id, os.fsencode(record.directory), record.digest, json.dumps(sorted(grants)))
                connection.execute(_GRANT, values)

    def load_plugins(self) -> tuple[PluginRecord, ...]:
        """Return every installed plugin, the first installed first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT plugin_id, directory, digest, manifest, enabled, state, reason, installed_at"
                " FROM plugins ORDER BY installed_at, plugin_id"
            ).fetchall()
        return tuple(
            PluginRecord(plugin_id, Path(os.fsdecode(directory)), digest, manifest, bool(enabled), state, reason, at)
            for plugin_id, directory, digest, manifest, enabled, state, reason, at in rows
        )

    def delete_plugin(self, plugin_id: str) -> None:
        """Forget the plugin, and what was granted to it and approved of it."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM plugins WHERE plugin_id = ?", (plugin_id,))
            connection.execute("DELETE FROM grants WHERE plugin_id = ?", (plugin_id,))
            connection.execute("DELETE FROM approvals WHERE plugin_id = ?", (plugin_id,))

    def grants(self, directory: Path, digest: str) -> frozenset[str]:
        """Return what was granted to this directory with this very manifest; a changed one has nothing (N3.5)."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT permissions FROM grants WHERE directory = ? AND digest = ?", (os.fsencode(directory), digest)
            ).fetchone()
        return frozenset(json.loads(row[0])) if row else frozenset()

    def set_grants(self, plugin_id: str, directory: Path, digest: str, permissions: Iterable[str]) -> None:
        """Make ``permissions`` the whole of what is granted to this directory with this manifest."""
        with self._database.transaction() as connection:
            connection.execute(_GRANT, (plugin_id, os.fsencode(directory), digest, json.dumps(sorted(permissions))))

    def child_begins(self, plugin_id: str, bridge: str, directory: Path, argv: Iterable[str]) -> int:
        """Keep that a process is about to be started; returns the record's number."""
        values = (plugin_id, bridge, os.fsencode(directory), json.dumps(list(argv)), time.time())
        with self._database.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO children (plugin_id, bridge, directory, argv, started_at) VALUES (?, ?, ?, ?, ?)", values
            )
            return int(cursor.lastrowid or 0)

    def child_is(self, seq: int, pid: int, process: str) -> None:
        """Keep which process it became."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE children SET pid = ?, process = ? WHERE seq = ?", (pid, process, seq))

    def child_ended(self, seq: int) -> None:
        """Forget a process: nothing of it is left."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM children WHERE seq = ?", (seq,))

    def children(self) -> tuple[ChildRecord, ...]:
        """Return every process whose end was not seen."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT seq, bridge, directory, argv, pid, process FROM children").fetchall()
        return tuple(
            ChildRecord(seq, bridge, Path(os.fsdecode(directory)), tuple(json.loads(argv)), pid, process)
            for seq, bridge, directory, argv, pid, process in rows
        )

    def approval(self, plugin_id: str, directory: Path) -> str | None:
        """Return the document that was kept of this plugin in this directory."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT document FROM approvals WHERE directory = ? AND plugin_id = ?",
                (os.fsencode(directory), plugin_id),
            ).fetchone()
        return str(row[0]) if row else None

    def save_approval(self, plugin_id: str, directory: Path, document: str) -> None:
        """Keep ``document`` in place of what was kept of this plugin in this directory."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO approvals (directory, plugin_id, document) VALUES (?, ?, ?)",
                (os.fsencode(directory), plugin_id, document),
            )

    def remember_offers(self, hook_plugin: str, families: frozenset[str]) -> None:
        """Keep what a hook plugin offered when it last loaded, so that its absence can be seen."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM offers WHERE hook_plugin = ?", (hook_plugin,))
            connection.executemany("INSERT INTO offers VALUES (?, ?)", [(hook_plugin, family) for family in families])

    def remembered_offers(self) -> dict[str, frozenset[str]]:
        """Return the families that each hook plugin offered; one that offered none is not in it."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT hook_plugin, family FROM offers").fetchall()
        offers: dict[str, frozenset[str]] = {}
        for hook_plugin, family in rows:
            offers[hook_plugin] = offers.get(hook_plugin, frozenset()) | {family}
        return offers

    def forget_offers(self, name: str) -> None:
        """Forget what the hook plugin ``name`` offered: the owner no longer counts on it."""
        self.remember_offers(name, frozenset())

    def add_token(self, name: str, digest: str, scopes: Iterable[str], created_at: float) -> bool:
        """Keep a token's hash; ``False`` where the name is taken."""
        with self._database.transaction() as connection:
            values = (name, digest, " ".join(sorted(scopes)), created_at)
            return connection.execute("INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?)", values).rowcount > 0

    def tokens(self) -> list[tuple[str, str, frozenset[str], float]]:
        """Return name, hash, scopes and time of each token, by name."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name, digest, scopes, created_at FROM tokens ORDER BY name").fetchall()
        return [(name, digest, frozenset(scopes.split()), at) for name, digest, scopes, at in rows]

    def delete_token(self, name: str) -> bool:
        """Forget a token; ``False`` where there was none."""
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount > 0

    def data_version(self) -> int:
        """Return a number that changes when another process has written."""
        with self._database.reading() as connection:
            return int(connection.execute("PRAGMA data_version").fetchone()[0])


class StateLock:
    """The right to be the bridge of a state directory; the system frees it when its holder ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> StateLock:
        """Take the lock without waiting; raises ``StateLocked`` (naming the holder) or ``StateUnavailable``."""
        path = directory / "bridge.lock"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _wait_for_lock(directory, descriptor)
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise StateUnavailable(
                f"can't be locked: {error.strerror or error}",
                where=str(path),
                hint="make the directory writable for this user, or use another with --state",
            ) from error
        return cls(descriptor)

    @classmethod
    def holder(cls, directory: Path) -> int | None:
        """Return the process that holds the lock, 0 where it has not said so yet; ``None`` where no one does."""
        try:
            descriptor = os.open(directory / "bridge.lock", os.O_RDWR)
        except OSError:
            return None
        try:
            return None if _lock(descriptor) else _holder(descriptor)
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Give the lock back; more than once does no harm."""
        # The file stays: to remove it would let two processes lock two files of one name.
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)  # or who is next would take this process for one that holds it
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def _lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            # Locked bytes can't be read there, so lock one far behind the pid.
            os.lseek(descriptor, 1 << 20, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            os.lseek(descriptor, 0, os.SEEK_SET)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _wait_for_lock(directory: Path, descriptor: int) -> None:
    """Take the lock; raise ``StateLocked`` where a living process holds it.

    A bridge that was killed while it started a server leaves the lock with that one's process for the moment until it
    runs its program: that is waited for.
    """
    deadline = time.monotonic() + _LEFT_LOCK_SECONDS
    while not _lock(descriptor):
        pid = _holder(descriptor)
        if (pid and exists(pid)) or time.monotonic() > deadline:
            raise _locked(directory, pid)
        time.sleep(_LEFT_LOCK_SECONDS / 500)


def _holder(descriptor: int) -> int:
    os.lseek(descriptor, 0, os.SEEK_SET)
    text = os.read(descriptor, 20).strip()
    return int(text) if text.isdigit() else 0


def _locked(directory: Path, pid: int) -> StateLocked:
    holder = f"process {pid}" if pid else "a process that is just starting"
    return StateLocked(
        f"another bridge works on this state directory: {holder}",
        where=str(directory),
        hint="stop it, or use another directory with --state",
    )


def default_state_directory() -> Path:
    """Return where this platform keeps such state: ``$XDG_STATE_HOME`` or its default, and their counterparts.

    Raises ``StateUnavailable`` for a user who has no home.
    """
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else _home() / "AppData" / "Local") / "bascule"
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "bascule"
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The specification has relative paths ignored.
    return (configured if configured.is_absolute() else _home() / ".local" / "state") / "bascule"


def _home() -> Path:
    home = os.path.expanduser("~")
    if os.environ.get("HOME") == "" or not os.path.isabs(home):  # the latter: no HOME, and no entry for this user
        raise StateUnavailable("this user has no home directory to keep it in", hint="name a directory with --state")
    return Path(home)
