"""Environments are whole or not there, built once, and missed loudly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from interop import environments
from interop.environments import BuildFailed, Environment, Unavailable

HERE = Path(__file__).parent


class Shelf(Environment):
    """Needs no index: it is built from what the test says."""

    __slots__ = ()

    def _facts(self) -> Sequence[str]:
        return ("a book",)

    @property
    def _programs(self) -> str:
        return "bin"

    def _look(self, draft: Path) -> None:
        environments._run([sys.executable, "-c", os.environ["LOOK"]])

    def _build(self, draft: Path) -> None:
        (draft / "book").write_text(os.environ["BUILD"])
        environments._run([sys.executable, "-c", os.environ["BUILD"]])


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """An environment in a cache of the test's own."""
    monkeypatch.setenv("BASCULE_INTEROP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOOK", "")
    monkeypatch.setenv("BUILD", "")
    return Shelf("shelf")


def test_an_environment_is_built_once_and_each_build_is_announced(shelf):
    said: list[str] = []
    shelf.provide(said.append)
    assert (shelf.folder / "book").is_file()
    assert [line.startswith(f"building {shelf.folder.name}") for line in said] == [True, True]
    shelf.provide(said.append)
    assert len(said) == 2


def test_a_build_that_fails_leaves_nothing_behind(shelf, monkeypatch):
    monkeypatch.setenv("BUILD", "raise SystemExit('no such book')")
    with pytest.raises(BuildFailed, match="no such book"):
        shelf.provide(print)
    assert list(environments.cache().iterdir()) == []


def test_an_index_out_of_reach_is_another_matter_than_a_failed_build(shelf, monkeypatch):
    monkeypatch.setenv("LOOK", "raise SystemExit('no way there')")
    with pytest.raises(Unavailable, match="no way there"):
        shelf.provide(print)
    assert list(environments.cache().iterdir()) == []


@pytest.mark.interop
@pytest.mark.parametrize(("required", "outcome"), [("0", "1 skipped"), ("1", "1 error")])
def test_without_an_index_tests_are_skipped_loudly_or_fail_where_they_must_run(tmp_path, required, outcome):
    nowhere = {
        "BASCULE_INTEROP_CACHE": str(tmp_path / "cache"),
        "BASCULE_INTEROP_REQUIRED": required,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "converts",
            HERE / "test_python_servers.py",
        ],
        cwd=HERE.parents[1],
        env={**inherited, **nowhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in run.stdout
    assert "python-servers can't be built, its index is out of reach or lacks it" in run.stdout
    assert "No matching distribution" in run.stdout  # in the client's own words
    assert "interop was NOT tried" in run.stdout
