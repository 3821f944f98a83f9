"""The state directory: what is remembered, how its file fails, and who may be its bridge."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bascule.core import database
from bascule.core.store import PluginRecord, StateLock, Store, default_state_directory
from bascule.hookspecs.errors import StateLocked, StateUnavailable


def record(plugin_id: str = "echo", **changes: object) -> PluginRecord:
    values = {
        "plugin_id": plugin_id,
        "directory": Path("/plugins") / plugin_id,
        "digest": "d1",
        "manifest": "id: echo\n",
        "enabled": True,
        "state": "ready",
        "reason": None,
        "installed_at": 1.5,
    }
    return PluginRecord(**{**values, **changes})


def opened(directory: Path) -> "closing[Store]":
    return closing(Store.open(directory))


def python(code: str, *arguments: object, **options: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, **options
    )


# --- what is remembered -----------------------------------------------------------------------------------------


def test_plugins_come_back_as_they_were_saved_the_first_installed_first(tmp_path):
    with opened(tmp_path / "state") as store:
        later = record("b", installed_at=2.0, reason="it fell over", enabled=False, state="error")
        store.save_plugin(later)
        store.save_plugin(record("a", installed_at=9.0))
        store.save_plugin(record("a", installed_at=1.0))
        assert store.load_plugins() == (record("a", installed_at=1.0), later)
        store.delete_plugin("a")
        assert store.load_plugins() == (later,)


def test_what_was_saved_outlives_the_process_that_saved_it(tmp_path):
    with opened(tmp_path) as store:
        store.save_plugin(record())
    with opened(tmp_path) as store:
        assert store.load_plugins() == (record(),)


def test_a_directory_whose_name_is_no_text_is_kept_too(tmp_path):
    odd = Path(os.fsdecode(b"/plugins/\xff"))
    with opened(tmp_path) as store:
        store.save_plugin(record(directory=odd))
        store.set_grants("echo", odd, "d1", {"notes.read"})
        assert store.load_plugins()[0].directory == odd
        assert store.grants(odd, "d1") == {"notes.read"}


@pytest.mark.req("N3.5")
def test_grants_hold_for_one_directory_with_one_manifest(tmp_path):
    here, there = Path("/plugins/a"), Path("/plugins/b")
    with opened(tmp_path) as store:
        store.set_grants("echo", here, "d1", {"notes.read", "tools.call"})
        assert store.grants(here, "d1") == {"notes.read", "tools.call"}
        assert store.grants(here, "d2") == frozenset()
        assert store.grants(there, "d1") == frozenset()
        store.set_grants("echo", here, "d1", ["tools.call"])
        assert store.grants(here, "d1") == {"tools.call"}


def test_offers_of_hook_plugins_are_replaced_and_forgotten(tmp_path):
    with opened(tmp_path) as store:
        store.remember_offers("grants", frozenset({"permission_checks", "exposure_policies"}))
        store.remember_offers("grants", frozenset({"permission_checks"}))
        store.remember_offers("extra", frozenset({"exposure_policies"}))
        assert store.remembered_offers() == {"grants": {"permission_checks"}, "extra": {"exposure_policies"}}
        store.forget_offers("grants")
        assert store.remembered_offers() == {"extra": {"exposure_policies"}}


# --- the file ---------------------------------------------------------------------------------------------------


def test_the_directory_and_the_files_are_the_owners_alone(tmp_path):
    state = tmp_path / "deep" / "state"
    with opened(state) as store, StateLock.acquire(state):
        store.save_plugin(record())
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {"bascule.db", "bascule.db-wal", "bridge.lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_an_older_file_is_migrated_and_keeps_what_it_has(tmp_path, monkeypatch):
    with opened(tmp_path) as store:
        store.save_plugin(record())
    added = "CREATE TABLE later (x); ALTER TABLE plugins ADD COLUMN extra TEXT"
    monkeypatch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, added))
    with opened(tmp_path) as store:
        assert store.load_plugins() == (record(),)
    assert version(tmp_path) == len(database.MIGRATIONS)


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    with opened(tmp_path) as store:
        store.save_plugin(record())
    before = version(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(
            database, "MIGRATIONS", (*database.MIGRATIONS, "CREATE TABLE later (x); CREATE TABLE plugins (x)")
        )
        with pytest.raises(StateUnavailable, match="already exists"):
            Store.open(tmp_path)
    assert version(tmp_path) == before
    with opened(tmp_path) as store:
        assert store.load_plugins() == (record(),)


def version(directory: Path) -> int:
    connection = sqlite3.connect(directory / "bascule.db")
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def test_many_processes_may_open_a_new_directory_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from bascule.core.store import Store\n"
        "sys.stdin.read(1)\n"
        "Store.open(Path(sys.argv[1])).remember_offers(sys.argv[2], frozenset({'f'}))"
    )
    children = [python(code, tmp_path / "state", number, stdin=subprocess.PIPE) for number in range(6)]
    for child in children:
        child.stdin.write("!")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=60)
    assert [child.returncode for child in children] == [0] * 6
    with opened(tmp_path / "state") as store:
        assert store.remembered_offers().keys() == set("012345")


def test_the_file_of_a_newer_bascule_is_refused(tmp_path):
    Store.open(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "bascule.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StateUnavailable, match=r"newer Bascule \(format 99") as caught:
        Store.open(tmp_path)
    assert caught.value.where == str(tmp_path / "bascule.db")
    assert "upgrade" in caught.value.hint


def test_a_file_that_is_no_database_is_named_with_its_cure(tmp_path):
    (tmp_path / "bascule.db").write_bytes(b"this is no database, whatever its name says\n" * 200)
    with pytest.raises(StateUnavailable, match="not a database") as caught:
        Store.open(tmp_path)
    assert caught.value.where == str(tmp_path / "bascule.db")
    assert "move the file away" in caught.value.hint
    assert caught.value.status == 503


def test_damage_that_shows_only_in_use_is_told_the_same_way(tmp_path):
    with opened(tmp_path) as store:
        for number in range(200):
            store.save_plugin(record(f"p{number}", manifest="x" * 500))
    path = tmp_path / "bascule.db"
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)  # the header and the schema stay
    path.write_bytes(content)
    with opened(tmp_path) as store, pytest.raises(StateUnavailable, match="malformed") as caught:
        store.load_plugins()
    assert "move the file away" in caught.value.hint


def test_a_directory_that_can_not_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateUnavailable) as caught:
        Store.open(tmp_path / "file" / "state")
    assert caught.value.where == str(tmp_path / "file" / "state" / "bascule.db")
    assert "--state" in caught.value.hint
    with pytest.raises(StateUnavailable, match="can't be locked"):
        StateLock.acquire(tmp_path / "file" / "state")


def test_another_process_that_writes_for_too_long_is_named_as_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with opened(tmp_path) as store:
        other = sqlite3.connect(tmp_path / "bascule.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(StateUnavailable, match="locked") as caught:
                store.save_plugin(record())
            assert "another process is writing" in caught.value.hint
            assert store.load_plugins() == ()  # reading is no matter
        finally:
            other.close()
        store.save_plugin(record())
        assert store.load_plugins() == (record(),)


def test_a_connection_that_is_closed_leaves_the_locks_of_others_alone(tmp_path):
    def look(then: str) -> str:
        code = "import sys; from pathlib import Path; from bascule.core.store import Store\n"
        return python(f"{code}store = Store.open(Path(sys.argv[1])); {then}", tmp_path).communicate(timeout=60)[0]

    wal = tmp_path / "bascule.db-wal"
    with opened(tmp_path) as store:
        store.save_plugin(record("a"))
        before = wal.stat().st_ino
        Store.open(tmp_path).close()
        look("store.close()")  # it must not take itself for the last one, which removes the WAL
        assert wal.stat().st_ino == before
        store.save_plugin(record("b"))
        assert look("print(len(store.load_plugins()))") == "2\n"


# --- the lock ---------------------------------------------------------------------------------------------------

HOLDER = (
    "import sys; from pathlib import Path; from bascule.core.store import StateLock\n"
    "with StateLock.acquire(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


def test_one_directory_has_one_bridge_and_the_second_is_told_who_it_is(tmp_path):
    holder = python(HOLDER, tmp_path, stdin=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StateLocked, match=f"process {holder.pid}") as caught:
            StateLock.acquire(tmp_path)
        assert caught.value.where == str(tmp_path)
    finally:
        holder.communicate(timeout=30)
    assert holder.returncode == 0
    with StateLock.acquire(tmp_path):
        assert (tmp_path / "bridge.lock").read_text().strip() == str(os.getpid())


def test_a_holder_that_is_killed_frees_the_lock(tmp_path):
    holder = python(HOLDER, tmp_path, stdin=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == "held\n"
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=30)
    with StateLock.acquire(tmp_path):
        assert (tmp_path / "bridge.lock").read_text().strip() == str(os.getpid())


def test_a_released_lock_can_be_taken_again_in_the_same_process(tmp_path):
    lock = StateLock.acquire(tmp_path)
    with pytest.raises(StateLocked):
        StateLock.acquire(tmp_path)
    lock.release()
    lock.release()
    with StateLock.acquire(tmp_path), opened(tmp_path) as store:
        assert store.load_plugins() == ()


@pytest.mark.parametrize(
    ("configured", "expected"), [("/var/x", "/var/x/bascule"), ("", None), ("relative/path", None)]
)
def test_the_state_stands_where_the_platform_keeps_state(monkeypatch, configured, expected):
    monkeypatch.setenv("XDG_STATE_HOME", configured)
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_state_directory() == Path(expected or "/home/ann/.local/state/bascule")
