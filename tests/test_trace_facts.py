"""What calls of one kind have in common is written once (N9)."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from bascule.core import database
from bascule.core.database import Database
from bascule.core.redaction import Redactor
from bascule.core.traces import StepEnd, StepFacts, StepStart, Traces, rows, upkeep
from bascule.hookspecs import Limits

OK = StepEnd(outcome="ok")


def step(kept: Traces, tool: str = "echo.say", at: float | None = None) -> StepStart:
    facts = StepFacts(tool=tool, plugin="echo", generation=3, caller='{"user":"ada"}', decision="allow")
    return StepStart(id=kept.next_id(), facts=facts, started_at=time.time() if at is None else at)


def facts_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [text for (text,) in connection.execute("SELECT facts FROM facts ORDER BY kept_at, facts")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bascule.db"


@pytest.mark.req("N9")
def test_calls_of_one_kind_share_their_facts(path):
    async def main():
        async with Traces(path, Limits(), Redactor()) as kept:
            for tool in ("echo.say", "echo.say", "echo.other", "echo.say"):
                kept.refuse(step(kept, tool), OK)
            return await kept.steps()

    steps = asyncio.run(main())
    assert [each.tool for each in steps] == ["echo.say", "echo.other", "echo.say", "echo.say"]
    assert {(each.plugin, each.generation, each.caller["user"], each.decision) for each in steps} == {
        ("echo", 3, "ada", "allow")
    }
    assert len(facts_in(path)) == 2


def test_who_makes_ever_new_facts_fills_the_steps_rows_alone(path, monkeypatch):
    monkeypatch.setattr(rows, "FACTS_KEPT", 3)

    async def main():
        async with Traces(path, Limits(), Redactor()) as kept:
            for number in range(10):
                kept.refuse(step(kept, f"no.{number}"), OK)
            return await kept.steps()

    assert [each.tool for each in asyncio.run(main())] == [f"no.{number}" for number in range(9, -1, -1)]
    assert len(facts_in(path)) == 3


def test_facts_are_written_anew_after_a_while_and_when_another_secret_is_known(path):
    redactor = Redactor()

    async def main():
        async with Traces(path, Limits(), redactor) as kept:
            kept.refuse(step(kept, "no.hunter2hunter2"), OK)
            redactor.add("hunter2hunter2")
            kept.refuse(step(kept, "no.hunter2hunter2"), OK)
            kept.refuse(step(kept, "no.hunter2hunter2", time.time() + rows.FACTS_SECONDS + 1), OK)
            return await kept.steps()

    assert [each.tool for each in asyncio.run(main())] == ["no.[redacted]", "no.[redacted]", "no.hunter2hunter2"]
    assert len(facts_in(path)) == 3


def test_facts_go_once_no_step_refers_to_them(path):
    old = 2 * rows.FACTS_SECONDS + 1

    async def main():
        async with Traces(path, Limits(), Redactor()) as kept:
            for tool in ("echo.gone", "echo.kept"):
                kept.refuse(step(kept, tool), OK)
            await kept.flush()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("DELETE FROM steps WHERE seq = 1")
            await asyncio.to_thread(upkeep.tidy, kept._spare, Limits())
            young = facts_in(path)
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("UPDATE facts SET kept_at = kept_at - ?", (old,))
            await asyncio.to_thread(upkeep.tidy, kept._spare, Limits(), whole=False)
            unasked = facts_in(path)
            await asyncio.to_thread(upkeep.tidy, kept._spare, Limits())
            return young, unasked, await kept.steps()

    young, unasked, [left] = asyncio.run(main())
    assert len(young) == len(unasked) == 2
    assert left.tool == "echo.kept"
    assert len(facts_in(path)) == 1


def test_steps_of_the_format_before_are_read_as_ever(path, monkeypatch):
    everything = database.MIGRATIONS
    monkeypatch.setattr(database, "MIGRATIONS", everything[:3])
    Database(path).close()
    begun = '{"id":"00000000000000aa","tool":"echo.say","started_at":1.5,"run":null,"plugin":"echo","generation":1,'
    begun += '"caller":{"user":"x"},"decision":"allow","decision_reason":null,"decision_rule":null,"arguments":"{}"}'
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO steps (run, started_at, begun) VALUES (NULL, ?, ?)", (time.time(), begun))
        connection.execute("INSERT INTO ends VALUES (1, ?)", ('{"outcome":"ok","code":null,"total":0.5}',))
    monkeypatch.setattr(database, "MIGRATIONS", everything)

    async def main():
        async with Traces(path, Limits(), Redactor()) as kept:
            kept.refuse(step(kept), OK)
            return await kept.steps(), await kept.trace("00000000000000aa")

    (_, old), same = asyncio.run(main())
    assert old == same
    assert (old.tool, old.plugin, old.caller, old.outcome, old.total) == ("echo.say", "echo", {"user": "x"}, "ok", 0.5)


def test_a_step_whose_facts_are_lost_is_shown_with_what_is_left(path):
    async def main():
        async with Traces(path, Limits(), Redactor()) as kept:
            kept.refuse(step(kept), OK)
            await kept.flush()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("DELETE FROM facts")
            return await kept.steps()

    [left] = asyncio.run(main())
    assert (left.tool, left.plugin, left.outcome) == ("", None, "ok")
