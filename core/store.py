"""What the bridge remembers: installed plugins, the owner's grants, what hook plugins offered; and who may write.

It stands in the state directory's ``bascule.db`` (see :mod:`.database`). Calls are short and synchronous; where
another process is writing, one waits for it at most ``BUSY_SECONDS``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Self

from ..hookspecs.errors import StateLocked, StateUnavailable
from .database import DATABASE_NAME, Database


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


_PLUGIN = [field.name for field in fields(PluginRecord)]
_SAVE = f"REPLACE INTO plugins ({', '.join(_PLUGIN)}) VALUES (:{', :'.join(_PLUGIN)})"  # noqa: S608 - names of ours
_LOAD = f"SELECT {', '.join(_PLUGIN)} FROM plugins ORDER BY installed_at, plugin_id"  # noqa: S608


class Store:
    """The state directory's memory; every method raises ``StateUnavailable`` where the file can't be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the state in ``directory``, which is created (0700) where it is missing."""
        return cls(Database(directory / DATABASE_NAME))

    def close(self) -> None:
        self._database.close()

    def save_plugin(self, record: PluginRecord) -> None:
        """Keep ``record`` in place of what was known of this plugin."""
        with self._database.transaction() as connection:
            connection.execute(_SAVE, {**asdict(record), "directory": os.fsencode(record.directory)})

    def load_plugins(self) -> tuple[PluginRecord, ...]:
        """Return every installed plugin, the first installed first."""
        with self._database.reading() as connection:
            rows = connection.execute(_LOAD).fetchall()
        return tuple(
            PluginRecord(plugin_id, Path(os.fsdecode(directory)), digest, manifest, bool(enabled), *others)
            for plugin_id, directory, digest, manifest, enabled, *others in rows
        )

    def delete_plugin(self, plugin_id: str) -> None:
        """Forget the plugin's record; its grants stay, for the same directory with the same manifest."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM plugins WHERE plugin_id = ?", (plugin_id,))

    def grants(self, directory: Path, digest: str) -> frozenset[str]:
        """Return what was granted to this directory with this very manifest; a changed one has nothing (N3.5)."""
        key = (os.fsencode(directory), digest)
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT permissions FROM grants WHERE directory = ? AND digest = ?", key
            ).fetchone()
        return frozenset(json.loads(row[0])) if row else frozenset()

    def set_grants(self, plugin_id: str, directory: Path, digest: str, permissions: Iterable[str]) -> None:
        """Make ``permissions`` the whole of what is granted to this directory with this manifest."""
        row = (plugin_id, os.fsencode(directory), digest, json.dumps(sorted(permissions)))
        insert = "REPLACE INTO grants (plugin_id, directory, digest, permissions) VALUES (?, ?, ?, ?)"
        with self._database.transaction() as connection:
            connection.execute(insert, row)

    def remember_offers(self, hook_plugin: str, families: frozenset[str]) -> None:
        """Keep what a hook plugin offered when it last loaded, so that its absence can be seen."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM offers WHERE hook_plugin = ?", (hook_plugin,))
            connection.executemany("INSERT INTO offers VALUES (?, ?)", [(hook_plugin, family) for family in families])

    def remembered_offers(self) -> dict[str, frozenset[str]]:
        """Return the families that each hook plugin offered; one that offered none is not in it."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT hook_plugin, json_group_array(family) FROM offers GROUP BY hook_plugin")
            return {hook_plugin: frozenset(json.loads(families)) for hook_plugin, families in rows}

    def forget_offers(self, name: str) -> None:
        """Forget what the hook plugin ``name`` offered: the owner no longer counts on it."""
        self.remember_offers(name, frozenset())


class StateLock:
    """The right to be the bridge of a state directory; the system frees it when its holder ends, however it ends."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @classmethod
    def acquire(cls, directory: Path) -> Self:
        """Take the lock without waiting; raises ``StateLocked`` (naming the holder) or ``StateUnavailable``."""
        path = directory / "bridge.lock"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", errors="replace")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.truncate()
                file.write(f"{os.getpid()}\n")
                file.flush()
            except BlockingIOError as error:
                pid = file.read(20).strip()
                file.close()
                message = f"another bridge works on this state directory: process {pid or 'that is just starting'}"
                hint = "stop it, or use another directory with --state"
                raise StateLocked(message, where=str(directory), hint=hint) from error
        except OSError as error:
            hint = "make the directory writable for this user, or use another with --state"
            raise StateUnavailable(f"can't be locked: {error.strerror}", where=str(path), hint=hint) from error
        return cls(file)

    def release(self) -> None:
        """Give the lock back; more than once does no harm."""
        # The file stays: to remove it would let two processes lock two files of one name.
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def default_state_directory() -> Path:
    """Return where such state is kept: ``$XDG_STATE_HOME``, or its default."""
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The specification has relative paths ignored.
    return (configured if configured.is_absolute() else Path.home() / ".local" / "state") / "bascule"
