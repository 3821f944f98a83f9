"""What stands beside the database in the state directory: the owner's token, and where a running bridge answers."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from contextlib import closing

import pytest

from bascule.core import endpoint
from bascule.core.bridge import Bridge
from bascule.core.database import Database
from bascule.core.tokens import read_owner_token
from bascule.core.view import View
from bascule.hookspecs import EVERYTHING, Identity, StateUnavailable

ALL = frozenset({"call", "read", "admin"})


class Way:
    """A server transport that only says where it is."""

    name = "test"
    exposure = EVERYTHING


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def owner_of(bridge: Bridge, directory) -> Identity | None:
    return await bridge.tokens.verify(read_owner_token(directory) or "")


async def test_the_owners_token_is_made_once_with_every_scope(settings):
    path = settings.state / "owner.token"
    async with Bridge(settings) as bridge:
        assert mode(path) == 0o600
        secret = path.read_text()
        assert secret.endswith("\n")
        assert secret.count("\n") == 1
        assert await owner_of(bridge, settings.state) == Identity("owner", ALL)
    async with Bridge(settings) as bridge:
        assert path.read_text() == secret
        assert await owner_of(bridge, settings.state) == Identity("owner", ALL)


@pytest.mark.parametrize("how", ["removed", "emptied", "garbled", "revoked", "narrowed"])
async def test_an_owners_token_that_is_of_no_use_is_made_anew(settings, how):
    path = settings.state / "owner.token"
    async with Bridge(settings) as bridge:
        secret = path.read_text()
        match how:
            case "removed":
                path.unlink()
            case "emptied":
                path.write_text("")
            case "garbled":
                path.write_bytes(b"\xff\x00")
            case "revoked":
                bridge.tokens.revoke("owner")
            case "narrowed":
                bridge.tokens.revoke("owner")
                path.write_text(bridge.tokens.create("owner", ["call"]))
    async with Bridge(settings) as bridge:
        assert path.read_text() != secret
        assert await owner_of(bridge, settings.state) == Identity("owner", ALL)
        assert await bridge.tokens.verify(secret.strip()) is None
        assert mode(path) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="elsewhere files have no such modes")
async def test_an_owners_token_that_others_may_read_is_closed_again(settings):
    path = settings.state / "owner.token"
    async with Bridge(settings):
        pass
    path.chmod(0o644)
    async with Bridge(settings):
        assert mode(path) == 0o600


async def test_a_one_shot_bridge_makes_no_token(host, settings):
    async with host():
        assert not (settings.state / "owner.token").exists()


async def test_a_bridge_with_an_api_says_where_it_answers_as_long_as_it_runs(settings):
    path = settings.state / "bridge.json"
    async with Bridge(settings) as bridge:
        assert endpoint.find(settings.state) is None
        View(bridge, Way()).announce("http://127.0.0.1:7860")
        assert mode(path) == 0o600
        assert json.loads(path.read_text())["pid"] == os.getpid()
        found = endpoint.find(settings.state)
        assert found is not None
        assert (found.pid, found.url) == (os.getpid(), "http://127.0.0.1:7860")
    assert not path.exists()


async def test_what_a_killed_bridge_left_is_gone_at_the_next_start(settings):
    path = settings.state / "bridge.json"
    settings.state.mkdir()
    path.write_text(json.dumps({"pid": 1, "url": "http://127.0.0.1:1", "started": "long ago"}))
    async with Bridge(settings):
        assert endpoint.find(settings.state) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": "x", "url": "", "started": ""}', "\x00" * 10])
def test_a_file_that_is_no_such_document_says_nothing(tmp_path, text):
    (tmp_path / "bridge.json").write_text(text)
    assert endpoint.find(tmp_path) is None


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_FULL])
def test_a_full_disk_is_said_to_be_one_however_sqlite_puts_it(tmp_path, code):
    """Where the file of its shared memory finds no room, SQLite says "disk I/O error"."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    with (
        closing(Database(tmp_path / "bascule.db")) as database,
        pytest.raises(StateUnavailable) as caught,
        database._translated(),
    ):
        raise error
    assert "disk" in str(caught.value.hint)
