"""What the suites of all families share: how a check becomes a test, and how all are run without pytest."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .faults import Fault, NotApplicable, T, until, within
from .watch import judged

SUBJECTS: dict[str, tuple[int, int]] = {}
"""What was looked at in this process: how many checks ran, and how many held."""


class Suite:
    """The base of every family's suite. ``seconds`` bounds each wait for something that must happen."""

    seconds: float = 20.0

    async def within(self, work: Awaitable[T], otherwise: str) -> T:
        return await within(self.seconds, work, otherwise)

    async def until(self, condition: Callable[[], Any], otherwise: str | Callable[[], str]) -> None:
        await until(self.seconds, condition, otherwise)

    def given(self, name: str) -> Any:
        """What the author's class says; raise where it does not."""
        value = getattr(type(self), name, None)
        if value is None:
            raise Fault(f"{type(self).__name__} does not say its {name}; see the docstring of its base")
        return getattr(self, name)


def check(scenario: Callable[[Any, Path], Any]) -> Callable[[Any], None]:
    """Make a test of a method that takes a folder; a coroutine runs on a loop of its own, watched."""

    def test(self: Suite) -> None:
        __tracebackhide__ = True
        count, held = SUBJECTS.get(_subject(self), (0, 0))
        SUBJECTS[_subject(self)] = count + 1, held
        told = reason = ""
        try:
            run(self, scenario)
            SUBJECTS[_subject(self)] = count + 1, held + 1
        except Fault as fault:
            told = f"{_subject(self)}: {fault}"
        except NotApplicable as why:
            SUBJECTS[_subject(self)] = count, held
            reason = str(why)
        if told:  # outside of the handler: no one needs two tracebacks
            pytest.fail(told, pytrace=False)
        if reason:
            pytest.skip(reason)

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    test.scenario = scenario  # type: ignore[attr-defined]
    return test


def run(suite: Suite, scenario: Callable[[Any, Path], Any]) -> None:
    """Run one check; raises ``Fault`` or ``NotApplicable``."""
    with short_folder() as folder:
        work = scenario(suite, folder)
        if hasattr(work, "__await__"):

            async def begun() -> None:
                await work

            judged(begun, suite.seconds)


def faults(suite: type[Suite]) -> dict[str, str]:
    """Run every check of ``suite`` without pytest; the faults that were found, by the check's name."""
    found = {}
    for name in dir(suite):
        scenario = getattr(getattr(suite, name), "scenario", None)
        if scenario is not None:
            try:
                run(suite(), scenario)
            except Fault as fault:
                found[name] = str(fault)
            except NotApplicable:
                continue
            except Exception as error:  # noqa: BLE001 - what a subject raises where it must not is a fault
                found[name] = f"it raises {type(error).__name__}: {error}"
    return found


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket (108 bytes); gone afterwards."""
    folder = tempfile.mkdtemp(prefix="kit-", dir="/tmp" if Path("/tmp").is_dir() else None)  # noqa: S108
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _subject(suite: Suite) -> str:
    subject = getattr(suite, "subject_name", None)
    return subject() if callable(subject) else type(suite).__name__
