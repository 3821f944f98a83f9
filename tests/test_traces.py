"""Every call leaves its step, before it is sent and whatever comes after; and no secret reaches the disk."""

import asyncio
import dataclasses
import json
import logging
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bascule.core import database
from bascule.core.redaction import REDACTED, Redactor
from bascule.core.traces import StepEnd, StepStart, StoredTraces, Traces
from bascule.hookspecs.config import Limits
from bascule.hookspecs.errors import StateUnavailable, TraceNotFound

OK = StepEnd(outcome="ok")


def traces(
    path: Path | None, redactor: Redactor | None = None, *, bounds: dict[str, int] | None = None, **limits: object
):
    return Traces(path, dataclasses.replace(Limits(), **limits), redactor or Redactor(), **(bounds or {}))


def start(of: Traces, **changes: object) -> StepStart:
    return StepStart(**{"id": of.next_id(), "tool": "echo.say", "started_at": time.time(), **changes})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bascule.db"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "bascule.db"


def rows(file: Path, query: str) -> list[tuple[object, ...]]:
    """Look into the file as any other process would."""
    connection = sqlite3.connect(file)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def on_disk(file: Path) -> bytes:
    return b"".join(part.read_bytes() for part in file.parent.glob(f"{file.name}*"))


# --- steps and runs ---------------------------------------------------------------------------------------------


@pytest.mark.req("N5.5", "N9")
def test_a_step_is_there_before_its_call_is_sent_and_complete_after_it(path):
    async def main():
        async with traces(path) as kept:
            run = await kept.begin_run("researcher", "look around")
            begun = start(
                kept,
                run=run,
                plugin="echo",
                generation=2,
                started_at=1_700_000_000.25,
                caller={"platform": "mcp", "user": "ann", "identity": None},
                decision="allow",
                decision_reason="granted",
                decision_rule="grants",
                arguments={"text": "hi", "n": None},
            )
            await kept.open(begun)
            [before] = (await kept.run(run))[1]
            kept.close(
                begun.id,
                StepEnd(
                    outcome="error",
                    code="MCP_TOOL_CALL_FAILED",
                    queued=0.1,
                    validating=0.2,
                    upstream=0.3,
                    total=0.4,
                    result=[{"type": "text", "text": "no"}],
                    output_valid=False,
                ),
            )
            [after] = (await kept.run(run))[1]
            return begun, run, before, after

    begun, run, before, after = asyncio.run(main())
    assert before.outcome is None
    assert dataclasses.asdict(after) == {
        "id": begun.id,
        "run": run,
        "tool": "echo.say",
        "plugin": "echo",
        "generation": 2,
        "started_at": "2023-11-14T22:13:20.250Z",
        "caller": {"platform": "mcp", "user": "ann", "identity": None},
        "decision": "allow",
        "decision_reason": "granted",
        "decision_rule": "grants",
        "outcome": "error",
        "code": "MCP_TOOL_CALL_FAILED",
        "queued": 0.1,
        "validating": 0.2,
        "upstream": 0.3,
        "total": 0.4,
        "arguments": '{"text":"hi","n":null}',
        "arguments_bytes": 22,
        "result": '[{"type":"text","text":"no"}]',
        "result_bytes": 29,
        "output_valid": False,
    }


def test_when_open_returns_another_process_sees_the_step(file):
    async def main():
        async with traces(file) as kept:
            for _ in range(3):
                begun = start(kept)
                await kept.open(begun)
                seen.append((begun.id, None) in rows(file, "SELECT id, outcome FROM steps"))
                kept.close(begun.id, OK)

    seen: list[bool] = []
    asyncio.run(main())
    assert seen == [True] * 3
    assert rows(file, "SELECT outcome, count(*) FROM steps GROUP BY outcome") == [("ok", 3)]


def test_a_refused_step_is_kept_whole_although_it_was_never_sent(path):
    async def main():
        async with traces(path) as kept:
            kept.refuse(
                start(kept, tool="nothing.here", arguments={"a": 1}), StepEnd(outcome="error", code="TOOL_NOT_FOUND")
            )
            return await kept.steps()

    [step] = asyncio.run(main())
    assert (step.tool, step.outcome, step.code, step.arguments) == (
        "nothing.here",
        "error",
        "TOOL_NOT_FOUND",
        '{"a":1}',
    )


def test_runs_are_listed_newest_first_with_their_state_and_their_steps(path):
    async def main():
        async with traces(path) as kept:
            first, second, third = [await kept.begin_run(agent) for agent in "abc"]
            for run in (first, second, second):
                kept.refuse(start(kept, run=run), OK)
            await kept.end_run(first, "finished")
            await kept.end_run(second, "failed")
            return await kept.runs(), await kept.runs(limit=1), (first, second, third)

    views, limited, ids = asyncio.run(main())
    assert [(view.id, view.agent, view.state, view.steps) for view in views] == [
        (ids[2], "c", "running", 0),
        (ids[1], "b", "failed", 2),
        (ids[0], "a", "finished", 1),
    ]
    assert views[0].ended_at is None
    assert views[1].ended_at >= views[1].started_at
    assert limited == views[:1]


def test_a_run_that_is_not_kept_is_told_so(path):
    async def main():
        async with traces(path) as kept:
            await kept.run("nonesuch")

    with pytest.raises(TraceNotFound, match="nonesuch"):
        asyncio.run(main())


def test_steps_are_listed_newest_first_and_a_runs_own_in_order(path):
    async def main():
        async with traces(path) as kept:
            run = await kept.begin_run("a")
            for number in range(6):
                kept.refuse(start(kept, tool=f"echo.t{number}", run=run if number % 2 else None), OK)
            return (
                [step.tool for step in await kept.steps(limit=3)],
                [step.tool for step in await kept.steps(run=run)],
                [step.tool for step in (await kept.run(run))[1]],
            )

    newest, own, in_order = asyncio.run(main())
    assert newest == ["echo.t5", "echo.t4", "echo.t3"]
    assert own == ["echo.t5", "echo.t3", "echo.t1"]
    assert in_order == ["echo.t1", "echo.t3", "echo.t5"]


def test_arguments_are_kept_as_they_were_when_the_call_was_sent(path):
    async def main():
        async with traces(path) as kept:
            arguments = {"list": [1]}
            begun = start(kept, arguments=arguments)
            opening = asyncio.create_task(kept.open(begun))
            await asyncio.sleep(0)  # the task has run up to where it waits
            arguments["list"].append(2)
            await opening
            kept.close(begun.id, OK)
            return await kept.steps()

    [step] = asyncio.run(main())
    assert step.arguments == '{"list":[1]}'


def test_what_can_not_be_encoded_costs_its_own_text_alone(path):
    async def main():
        async with traces(path) as kept:
            for arguments in ({"a": object()}, {"a": "\ud800"}):
                kept.refuse(start(kept, arguments=arguments, tool="x\ud800"), OK)
            return await kept.steps()

    assert [(step.arguments, step.tool, step.outcome) for step in asyncio.run(main())] == [
        ('"[not JSON]"', "x?", "ok")
    ] * 2


def test_an_end_that_comes_twice_or_for_no_step_is_left_alone(path):
    async def main():
        async with traces(path) as kept:
            begun = start(kept)
            await kept.open(begun)
            kept.close(begun.id, OK)
            kept.close(begun.id, StepEnd(outcome="error"))
            kept.close("nonesuch", OK)
            return await kept.steps()

    [step] = asyncio.run(main())
    assert step.outcome == "ok"


def test_a_call_that_is_cancelled_while_its_step_is_written_has_one_step_with_its_end(path):
    async def main():
        async with traces(path) as kept:
            begun = start(kept)
            opening = asyncio.create_task(kept.open(begun))
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            kept.refuse(begun, StepEnd(outcome="error", code="TOOL_CALL_CANCELLED"))
            return await kept.steps()

    [step] = asyncio.run(main())
    assert step.code == "TOOL_CALL_CANCELLED"


def test_two_bridges_never_give_the_same_id():
    many, others = Traces(None, Limits(), Redactor()), Traces(None, Limits(), Redactor())
    ids = {each.next_id() for _ in range(1000) for each in (many, others)}
    assert len(ids) == 2000


def test_closed_traces_take_no_more_calls(path):
    async def main():
        async with traces(path) as kept:
            pass
        await kept.open(start(kept))

    with pytest.raises(StateUnavailable, match="closed"):
        asyncio.run(main())


def test_a_file_that_can_not_be_opened_is_told_on_entering(file):
    async def main():
        async with traces(file):
            pass

    file.write_bytes(b"no database at all, not even a little" * 50)
    with pytest.raises(StateUnavailable, match="not a database"):
        asyncio.run(main())
    assert not [thread for thread in threading.enumerate() if thread.name == "bascule-traces" and thread.is_alive()]


# --- secrets ----------------------------------------------------------------------------------------------------


@pytest.mark.req("N9")
def test_no_secret_ever_reaches_the_disk(file):
    known, named, shaped = "known-v4lue-of-the-vault", "hunter2-by-name", "ghp_" + "a1B2" * 9
    texts = {"password": named, "note": f"it is {known}", "deep": [{"x": shaped, "y": known.encode().hex()}]}

    async def main():
        redactor = Redactor()
        async with traces(file, redactor) as kept:
            await kept.open(start(kept, tool="echo.say", caller={"user": "x"}))  # a label that is remembered
            redactor.add(known)
            run = await kept.begin_run(f"agent {known}", f"to use {shaped}")
            begun = start(
                kept,
                run=run,
                tool=f"no.{known}",
                arguments=texts,
                caller={"user": known, "token": named},
                decision_reason=f"for {known}",
                decision_rule=shaped,
            )
            await kept.open(begun)
            found.append(on_disk(file))
            kept.close(begun.id, StepEnd(outcome="ok", result=texts))
            kept.refuse(start(kept, arguments=texts), StepEnd(outcome="ok", result=texts))
            await kept.flush()
            found.append(on_disk(file))
            return await kept.steps(run=run)

    found: list[bytes] = []
    [step] = asyncio.run(main())
    found.append(on_disk(file))
    for content in found:
        assert REDACTED.encode() in content
        for secret in (known, named, shaped):
            assert secret.encode() not in content
            assert secret.encode().hex().encode() not in content
    assert json.loads(step.arguments) == {
        "password": REDACTED,
        "note": f"it is {REDACTED}",
        "deep": [{"x": REDACTED, "y": REDACTED}],
    }
    assert step.caller == {"user": REDACTED, "token": REDACTED}


def test_long_texts_are_cut_off_with_a_note_of_their_length(path):
    async def main():
        async with traces(path, trace_detail_bytes=100) as kept:
            for text in ("x" * 1000, "é" * 1000, "x" * 50_000, "é" * 80, "x" * 80):
                kept.refuse(start(kept, arguments=[text]), StepEnd(outcome="ok", result={"t": text}))
            return await kept.steps()

    fits, shorter, longest, wide, long = reversed([(s.arguments, s.result) for s in asyncio.run(main())])
    assert fits == (
        '["' + "x" * 98 + "… [cut off, 1004 bytes in all]",
        '{"t":"' + "x" * 94 + "… [cut off, 1008 bytes in all]",
    )
    assert shorter[0] == '["' + "é" * 49 + "… [cut off, 2004 bytes in all]"
    assert longest[0] == '["' + "x" * 98 + "… [cut off, 50004 bytes in all]"
    assert wide[0] == '["' + "é" * 49 + "… [cut off, 164 bytes in all]"
    assert long[0] == '["' + "x" * 80 + '"]'


def test_no_part_of_a_secret_stays_where_a_long_text_is_cut(file):
    secret = "aQ9-" * 200

    async def main():
        async with traces(file, Redactor([secret]), trace_detail_bytes=1000) as kept:
            for before in range(0, 6000, 97):
                kept.refuse(start(kept, arguments=["." * before, secret, "z" * 9000]), OK)

    asyncio.run(main())
    assert b"aQ9-aQ9-" not in on_disk(file)
    assert rows(file, "SELECT count(*) FROM steps WHERE arguments LIKE '%cut off%'") == [(62,)]


# --- bounds -----------------------------------------------------------------------------------------------------


def test_a_full_queue_gives_up_detail_but_no_step(path):
    async def main():
        async with traces(path, bounds={"queue_bytes": 500}) as kept:
            begun = [start(kept, arguments={"text": "x" * 100}) for _ in range(50)]
            await asyncio.gather(*(kept.open(each) for each in begun))  # all in one round of the loop
            for each in begun:
                kept.close(each.id, StepEnd(outcome="ok", result={"text": "y" * 100}))
            await kept.flush()
            later = start(kept, arguments={"text": "x" * 100})  # there is room again
            kept.refuse(later, OK)
            return await kept.steps(limit=100)

    last, *steps = asyncio.run(main())
    assert [step.outcome for step in steps] == ["ok"] * 50
    assert sum(step.arguments is not None for step in steps) == 4
    assert sum(step.result is not None for step in steps) == 4
    assert last.arguments is not None


def test_where_there_is_no_room_for_one_more_step_open_waits_for_an_end(path):
    async def main():
        async with traces(path, bounds={"queue_steps": 2}) as kept:
            first, second, third = [start(kept) for _ in range(3)]
            await asyncio.gather(kept.open(first), kept.open(second))
            opening = asyncio.create_task(kept.open(third))
            await kept.flush()
            assert [step.id for step in await kept.steps()] == [second.id, first.id]
            assert not opening.done()
            kept.close(first.id, OK)
            await asyncio.wait_for(opening, 30)
            kept.close(second.id, OK)
            kept.close(third.id, OK)
            return await kept.steps()

    assert [step.outcome for step in asyncio.run(main())] == ["ok"] * 3


def test_open_does_not_wait_for_room_for_ever(path, monkeypatch):
    async def main():
        async with traces(path, bounds={"queue_steps": 1}) as kept:
            await kept.open(start(kept))
            monkeypatch.setattr(writing, "ANSWER_SECONDS", 0.05)
            with pytest.raises(StateUnavailable, match="1 steps wait"):
                await kept.open(start(kept))

    asyncio.run(main())


def test_refused_calls_beyond_all_bounds_are_counted_as_lost_once(path, caplog):
    async def main():
        async with traces(path, bounds={"queue_steps": 5}) as kept:
            for _ in range(30):
                kept.refuse(start(kept), OK)
            return await kept.steps(limit=100)

    assert len(asyncio.run(main())) == 10
    assert [record.message for record in caplog.records] == [
        "more refused calls than can be written down: some leave no trace"
    ]


def eventually(file: Path, query: str, expected: object) -> None:
    """Wait, with a bound, until the file answers so."""
    deadline = time.monotonic() + 30
    while (found := rows(file, query)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_only_the_newest_steps_are_kept_and_runs_go_with_their_steps(file):
    async def main():
        async with traces(file, traces=50) as kept:
            old = await kept.begin_run("old")
            kept.refuse(start(kept, run=old), OK)
            await kept.end_run(old, "finished")
            lasting = await kept.begin_run("lasting")
            for number in range(3000):
                kept.refuse(start(kept, tool=f"echo.t{number}"), OK)
            kept.refuse(start(kept, run=lasting, tool="echo.last"), OK)
            await kept.end_run(lasting, "finished")
            await asyncio.to_thread(eventually, file, "SELECT count(*) FROM steps", [(50,)])
            await asyncio.to_thread(eventually, file, "SELECT agent FROM runs", [("lasting",)])
            return await kept.steps(limit=1000), old

    async def look(run):
        stored = StoredTraces(file)
        try:
            with pytest.raises(TraceNotFound):
                await stored.run(run)
        finally:
            stored.close()

    steps, old = asyncio.run(main())
    assert [step.tool for step in steps] == ["echo.last", *(f"echo.t{number}" for number in range(2999, 2950, -1))]
    asyncio.run(look(old))


def test_old_steps_go_when_the_traces_are_opened(file):
    async def fill():
        async with traces(file, trace_days=100.0) as kept:
            for age in (40, 31, 29, 0):
                kept.refuse(start(kept, tool=f"echo.d{age}", started_at=time.time() - age * 86_400), OK)

    async def reopen():
        async with traces(file, trace_days=30.0):
            await asyncio.to_thread(
                eventually, file, "SELECT tool FROM steps ORDER BY seq", [("echo.d29",), ("echo.d0",)]
            )

    asyncio.run(fill())
    assert rows(file, "SELECT count(*) FROM steps") == [(4,)]
    asyncio.run(reopen())


# --- trouble ----------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.5)


async def longest_pause(work: "asyncio.Task[object]") -> float:
    """Return for how long the event loop stood still at most while ``work`` went on."""
    longest, last = 0.0, time.monotonic()
    while not work.done():
        await asyncio.sleep(0.001)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    return longest


def test_a_file_that_another_process_holds_refuses_calls_and_loses_no_end(file, impatient, caplog):
    async def main():
        async with traces(file) as kept:
            open_before = start(kept)
            await kept.open(open_before)
            other = sqlite3.connect(file, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            try:
                kept.close(open_before.id, OK)
                refused = start(kept)
                failing = asyncio.create_task(kept.open(refused))
                pause = await longest_pause(failing)
                with pytest.raises(StateUnavailable, match="locked"):
                    await failing
                kept.refuse(refused, StepEnd(outcome="error", code="STATE_UNAVAILABLE"))
                with pytest.raises(StateUnavailable, match="locked"):
                    await kept.open(start(kept))
                assert [step.outcome for step in await kept.steps()] == [None]  # what is there can be read
            finally:
                other.close()
            again = start(kept)
            await kept.open(again)
            kept.close(again.id, OK)
            return pause, await kept.steps()

    with caplog.at_level(logging.WARNING):
        pause, steps = asyncio.run(main())
    assert pause < 0.4  # the writer alone waited its half second for the lock
    assert [(step.outcome, step.code) for step in steps] == [("ok", None), ("error", "STATE_UNAVAILABLE"), ("ok", None)]
    errors = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "can't be written" in errors[0]
    assert "traces are written again" in caplog.text


FULL = """
import asyncio, resource, sys, time
from pathlib import Path
from bascule.core.redaction import Redactor
from bascule.core.traces import StepEnd, StepStart, Traces
from bascule.hookspecs.config import Limits
from bascule.hookspecs.errors import StateUnavailable

async def main():
    async with Traces(Path(sys.argv[1]), Limits(), Redactor()) as kept:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        sent = 0
        try:
            while sent < 1000:
                begun = StepStart(id=kept.next_id(), tool="echo.say", started_at=time.time(), arguments=["x" * 4000])
                await kept.open(begun)
                sent += 1
                kept.close(begun.id, StepEnd(outcome="ok", result=["y" * 4000]))
        except StateUnavailable as error:
            print(sent, error.where, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_a_disk_that_takes_no_more_refuses_calls_and_loses_no_end(file):
    done = subprocess.run([sys.executable, "-c", FULL, str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    sent, where = done.stdout.rstrip().split(maxsplit=1)
    assert 0 < int(sent) < 1000
    assert where == str(file)
    assert rows(file, "SELECT outcome, count(*) FROM steps GROUP BY outcome") == [("ok", int(sent))]


def test_a_writer_that_never_answers_holds_no_call_for_ever(monkeypatch):
    async def main():
        async with traces(None) as kept:
            begun = start(kept)
            release, held = threading.Event(), threading.Event()

            def hold():
                with kept.reader._database.reading():  # in memory, the one connection and its lock
                    held.set()
                    release.wait(60)

            holder = threading.Thread(target=hold)
            holder.start()
            held.wait(60)
            try:
                monkeypatch.setattr(writing, "ANSWER_SECONDS", 0.2)
                with pytest.raises(StateUnavailable, match="no answer"):
                    await kept.open(begun)
                kept.refuse(begun, StepEnd(outcome="error", code="STATE_UNAVAILABLE"))
            finally:
                release.set()
                holder.join()
            return await kept.steps()

    [step] = asyncio.run(main())
    assert step.code == "STATE_UNAVAILABLE"


def test_a_row_that_can_never_be_written_does_not_stand_in_the_way_of_others(path, caplog):
    async def main():
        async with traces(path) as kept:
            with pytest.raises(StateUnavailable, match="OverflowError"):
                await kept.open(start(kept, generation=2**70))
            begun = start(kept)
            await kept.open(begun)
            kept.close(begun.id, OK)
            return begun.id, await kept.steps()

    good, steps = asyncio.run(main())
    assert [(step.id, step.outcome) for step in steps] == [(good, "ok")]
    assert "1 beginnings and 0 ends of calls are not in the traces" in caplog.text


# --- several processes ------------------------------------------------------------------------------------------

CHILD = """
import asyncio, sys, time
from pathlib import Path
from bascule.core.redaction import Redactor
from bascule.core.traces import StepEnd, StepStart, Traces
from bascule.hookspecs.config import Limits

async def call(kept, run):
    begun = StepStart(id=kept.next_id(), tool="echo.say", started_at=time.time(), run=run, arguments={"a": 1})
    await kept.open(begun)
    return begun.id

async def main():
    async with Traces(Path(sys.argv[1]), Limits(), Redactor()) as kept:
        run = await kept.begin_run("child")
"""

MANY = (
    CHILD
    + """
        async def calls():
            for _ in range(60):
                kept.close(await call(kept, run), StepEnd(outcome="ok", result=[1]))
        await asyncio.gather(*(calls() for _ in range(5)))
        await kept.end_run(run, "finished")
asyncio.run(main())
"""
)

STUCK = (
    CHILD
    + """
        kept.close(await call(kept, run), StepEnd(outcome="ok"))
        await kept.flush()
        print(run, await call(kept, run), flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""
)


def test_several_processes_write_into_one_file(file):
    children = [subprocess.Popen([sys.executable, "-c", MANY, str(file)]) for _ in range(3)]
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0]
    assert rows(file, "SELECT outcome, count(*), count(DISTINCT id) FROM steps GROUP BY outcome") == [("ok", 900, 900)]
    assert rows(file, "SELECT state, count(*) FROM runs GROUP BY state") == [("finished", 3)]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_process_leaves_its_open_step_and_a_crashed_run(file):
    async def look():
        stored = StoredTraces(file)
        try:
            return await stored.run(run)
        finally:
            stored.close()

    with subprocess.Popen([sys.executable, "-c", STUCK, str(file)], stdout=subprocess.PIPE, text=True) as child:
        run, step = child.stdout.readline().split()
        alive, _ = asyncio.run(look())
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=30)
    dead, steps = asyncio.run(look())
    assert alive.state == "running"
    assert dead.state == "crashed"
    assert dead.steps == 2
    assert [(each.outcome, each.id == step) for each in steps] == [("ok", False), (None, True)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_later_process_with_the_same_number_is_not_the_one_that_began_the_run(file):
    async def main():
        async with traces(file) as kept:
            run = await kept.begin_run("a")
            states = [(await kept.run(run))[0].state]
            connection = sqlite3.connect(file)
            connection.execute("UPDATE runs SET process_start = '1'")
            connection.commit()
            connection.close()
            states.append((await kept.run(run))[0].state)
            return states

    assert asyncio.run(main()) == ["running", "crashed"]


def test_traces_of_a_file_that_is_new_are_empty(file):
    async def main():
        stored = StoredTraces(file)
        try:
            return await stored.runs(), await stored.steps()
        finally:
            stored.close()

    assert asyncio.run(main()) == ([], [])
