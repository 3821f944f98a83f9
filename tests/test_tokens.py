"""Tokens: made once, kept as hashes, seen at the next request; and the commands that handle them."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.core.store import Store
from bascule.core.tokens import Tokens
from bascule.hookspecs import Identity, SettingsInvalid


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def tokens(state: Path):
    store = Store.open(state)
    yield Tokens(store)
    store.close()


def bascule(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `bascule token …` on the state directory."""
    return subprocess.run(
        [sys.executable, "-c", "from bascule.core.cli import main; main()", "token", *arguments, "--state", str(state)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.req("A6")
async def test_a_secret_names_its_owner_and_nothing_else_does(tokens):
    secret = tokens.create("laptop", ["call", "read"])
    other = tokens.create("phone", ["call"])
    assert secret != other
    assert re.fullmatch(r"bascule_[A-Za-z0-9_-]{43}", secret)  # 256 bits
    assert await tokens.verify(secret) == Identity("laptop", frozenset({"call", "read"}))
    assert await tokens.verify(other) == Identity("phone")
    for wrong in ("", secret[:-1], secret + "a", secret.upper(), "laptop", "\udcff", "é" * 50):
        assert await tokens.verify(wrong) is None
    assert tokens.revoke("laptop")
    assert not tokens.revoke("laptop")
    assert await tokens.verify(secret) is None
    assert await tokens.verify(other) is not None


@pytest.mark.req("A6")
async def test_a_change_by_another_process_is_seen_at_the_next_question(tokens, state):
    assert await tokens.verify("nothing") is None
    made = bascule(state, "create", "laptop", "--json")
    secret = json.loads(made.stdout)["token"]
    assert await tokens.verify(secret) == Identity("laptop")
    assert bascule(state, "revoke", "laptop").returncode == 0
    assert await tokens.verify(secret) is None


@pytest.mark.req("A6")
def test_only_a_hash_is_kept(tokens, state):
    secret = tokens.create("laptop", ["call"])
    kept = b"".join(path.read_bytes() for path in state.iterdir() if path.is_file())
    assert b"laptop" in kept
    assert secret.encode() not in kept
    assert secret.removeprefix("bascule_").encode() not in kept
    with sqlite3.connect(state / "bascule.db") as database:
        ((digest,),) = database.execute("SELECT digest FROM tokens")
    database.close()
    assert re.fullmatch(r"[0-9a-f]{64}", digest)
    assert (state / "bascule.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "é", "a" * 64, "a\n"])
def test_names_are_plain(tokens, name):
    with pytest.raises(SettingsInvalid):
        tokens.create(name, ["call"])


@pytest.mark.parametrize("scopes", [[], ["root"], ["call", "root"]])
def test_scopes_are_three(tokens, scopes):
    with pytest.raises(SettingsInvalid, match="scopes"):
        tokens.create("laptop", scopes)


def test_a_name_is_given_once(tokens):
    tokens.create("laptop", ["call"])
    with pytest.raises(SettingsInvalid, match="already"):
        tokens.create("laptop", ["read"])


# --- the commands -----------------------------------------------------------------------------------------


@pytest.mark.req("A6")
def test_create_shows_the_secret_alone_on_stdout(state):
    made = bascule(state, "create", "laptop")
    assert made.returncode == 0
    assert re.fullmatch(r"bascule_[A-Za-z0-9_-]{43}\n", made.stdout)
    assert "only time" in made.stderr
    listed = bascule(state, "list")
    assert "laptop" in listed.stdout
    assert made.stdout.strip() not in listed.stdout


def test_scopes_are_as_asked_and_call_where_none_was_asked_for(state):
    assert json.loads(bascule(state, "create", "a", "--json").stdout)["scopes"] == ["call"]
    made = json.loads(bascule(state, "create", "b", "--scope", "read", "--scope", "admin", "--json").stdout)
    assert made["scopes"] == ["admin", "read"]
    listed = json.loads(bascule(state, "list", "--json").stdout)["tokens"]
    assert [(token["name"], token["scopes"]) for token in listed] == [("a", ["call"]), ("b", ["admin", "read"])]
    assert "token" not in listed[0]


def test_what_can_not_be_is_told_with_its_exit_code(state):
    assert bascule(state, "list").stdout == "there are no tokens\n"
    bascule(state, "create", "laptop")
    again = bascule(state, "create", "laptop")
    assert (again.returncode, again.stdout) == (2, "")
    assert "SETTINGS_INVALID" in again.stderr
    assert bascule(state, "create", "x", "--scope", "root").returncode == 2
    assert bascule(state, "revoke", "nobody").returncode == 4
    gone = bascule(state, "revoke", "laptop", "--json")
    assert (gone.returncode, json.loads(gone.stdout)) == (0, {"name": "laptop", "revoked": True})
