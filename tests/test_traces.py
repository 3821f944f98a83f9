"""Every call leaves its step, before it is sent and whatever comes after; and no secret reaches the disk."""

import asyncio
import dataclasses
import inspect
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bascule.core.redaction import REDACTED, Redactor
from bascule.core.traces import StepEnd, StepFacts, StepStart, Traces, packed, recorder, rows, upkeep
from bascule.hookspecs.config import Limits
from bascule.hookspecs.errors import StateUnavailable, TraceNotFound

OK = StepEnd(outcome="ok")


def traces(path: Path, redactor: Redactor | None = None, **limits: object) -> Traces:
    return Traces(path, dataclasses.replace(Limits(), **limits), redactor or Redactor())


def start(of: Traces, **changes: object) -> StepStart:
    facts = {"tool": "echo.say", **{name: changes.pop(name) for name in StepFacts.__struct_fields__ if name in changes}}
    facts["caller"] = packed(facts.get("caller", {}))
    return StepStart(**{"id": of.next_id(), "facts": StepFacts(**facts), "started_at": time.time(), **changes})


async def written(kept: Traces, begun: StepStart) -> None:
    """Open a step and wait for its row."""
    waiter = asyncio.get_running_loop().create_future()

    def told(error: Exception | None) -> None:
        if not waiter.done():
            waiter.set_result(None) if error is None else waiter.set_exception(error)

    kept.open(begun, told)
    await waiter


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bascule.db"


def look(path: Path, query: str) -> list[tuple[object, ...]]:
    """Look into the file as any other process would."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


OUTCOMES = "SELECT ended ->> 'outcome', count(*) FROM steps LEFT JOIN ends USING (seq) GROUP BY 1"


def on_disk(path: Path) -> bytes:
    return b"".join(part.read_bytes() for part in path.parent.glob(f"{path.name}*"))


# --- steps and runs ---------------------------------------------------------------------------------------------


@pytest.mark.req("N5.5", "N9")
def test_a_step_is_there_before_its_call_is_sent_and_complete_after_it(path):
    async def main():
        async with traces(path, trace_days=36_500.0) as kept:
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
            await written(kept, begun)
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


def test_when_open_returns_another_process_sees_the_step(path):
    async def main():
        async with traces(path) as kept:
            for _ in range(3):
                begun = start(kept)
                await written(kept, begun)
                seen.append(look(path, "SELECT begun ->> 'id', ended FROM steps LEFT JOIN ends USING (seq)")[-1])
                kept.close(begun.id, OK)
                ids.append(begun.id)

    seen: list[tuple[object, ...]] = []
    ids: list[str] = []
    asyncio.run(main())
    assert seen == [(each, None) for each in ids]
    assert look(path, OUTCOMES) == [("ok", 3)]


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
            opening = asyncio.create_task(written(kept, begun))
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
                kept.refuse(start(kept, arguments=arguments, tool="x\ud800", caller={"user": "\ud800"}), OK)
            return await kept.steps()

    assert [(step.arguments, step.tool, step.caller, step.outcome) for step in asyncio.run(main())] == [
        ('"[not JSON]"', "x?", {}, "ok")
    ] * 2


def test_an_end_that_comes_twice_or_for_no_step_is_left_alone(path):
    async def main():
        async with traces(path) as kept:
            begun = start(kept)
            await written(kept, begun)
            kept.close(begun.id, OK)
            kept.close(begun.id, StepEnd(outcome="error"))
            kept.close("nonesuch", OK)
            return await kept.steps()

    [step] = asyncio.run(main())
    assert step.outcome == "ok"


@pytest.mark.parametrize("turns", [1, 2], ids=["before it is written", "after it was written"])
def test_a_call_that_is_cancelled_while_its_step_is_written_has_one_step_with_its_end(path, turns):
    async def main():
        async with traces(path) as kept:
            begun = start(kept)
            opening = asyncio.create_task(written(kept, begun))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            kept.close(begun.id, StepEnd(outcome="error", code="TOOL_CALL_CANCELLED"))
            return await kept.steps()

    [step] = asyncio.run(main())
    assert step.code == "TOOL_CALL_CANCELLED"


def test_two_bridges_never_give_the_same_id(path):
    many, others = traces(path), traces(path)
    ids = {each.next_id() for _ in range(1000) for each in (many, others)}
    assert len(ids) == 2000


def test_closed_traces_take_no_more_calls(path):
    async def main():
        async with traces(path) as kept:
            await written(kept, start(kept))
        kept.refuse(start(kept), OK)  # to no effect
        await written(kept, start(kept))

    with pytest.raises(StateUnavailable, match="closed"):
        asyncio.run(main())
    assert look(path, "SELECT count(*) FROM steps") == [(1,)]


def test_a_file_that_can_not_be_opened_is_told_on_entering(path):
    async def main():
        async with traces(path):
            pass

    path.write_bytes(b"no database at all, not even a little" * 50)
    with pytest.raises(StateUnavailable, match="not a database"):
        asyncio.run(main())


# --- secrets ----------------------------------------------------------------------------------------------------


@pytest.mark.req("N9")
def test_no_secret_ever_reaches_the_disk(path):
    known, named, shaped = "known-v4lue-of-the-vault", "hunter2-by-name", "ghp_" + "a1B2" * 9
    texts = {"password": named, "note": f"it is {known}", "deep": [{"x": shaped, "y": known.encode().hex()}]}

    async def main():
        redactor = Redactor()
        async with traces(path, redactor) as kept:
            await written(kept, start(kept, tool="echo.say", caller={"user": "x"}))  # a label that is remembered
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
            await written(kept, begun)
            found.append(on_disk(path))
            kept.close(begun.id, StepEnd(outcome="ok", result=texts))
            kept.refuse(start(kept, arguments=texts), StepEnd(outcome="ok", result=texts))
            await kept.flush()
            found.append(on_disk(path))
            return await kept.steps(run=run)

    found: list[bytes] = []
    [step] = asyncio.run(main())
    found.append(on_disk(path))
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


def test_no_part_of_a_secret_stays_where_a_long_text_is_cut(path):
    secret = "aQ9-" * 200

    async def main():
        async with traces(path, Redactor([secret]), trace_detail_bytes=1000) as kept:
            for before in range(0, 6000, 97):
                kept.refuse(start(kept, arguments=["." * before, secret, "z" * 9000]), OK)

    asyncio.run(main())
    assert b"aQ9-aQ9-" not in on_disk(path)
    assert look(path, "SELECT count(*) FROM steps WHERE begun ->> 'arguments' LIKE '%cut off%'") == [(62,)]


# --- bounds -----------------------------------------------------------------------------------------------------


def test_a_full_queue_gives_up_detail_but_no_step(path, monkeypatch):
    async def main():
        async with traces(path) as kept:
            begun = [start(kept, arguments={"text": "x" * 100}) for _ in range(50)]
            await asyncio.gather(*(written(kept, each) for each in begun))  # all in one turn of the loop
            for each in begun:
                kept.close(each.id, StepEnd(outcome="ok", result={"text": "y" * 100}))
            await kept.flush()
            later = start(kept, arguments={"text": "x" * 100})  # there is room again
            kept.refuse(later, OK)
            return await kept.steps(limit=100)

    monkeypatch.setattr(rows, "_WAITING_BYTES", 500)
    last, *steps = asyncio.run(main())
    assert [step.outcome for step in steps] == ["ok"] * 50
    assert sum(step.arguments is not None for step in steps) == 4
    assert sum(step.result is not None for step in steps) == 4
    assert {step.arguments_bytes for step in steps} == {111}
    assert last.arguments is not None


def test_refused_calls_beyond_all_bounds_leave_no_trace(path, monkeypatch):
    async def main():
        async with traces(path) as kept:
            for _ in range(30):
                kept.refuse(start(kept), OK)
            await written(kept, start(kept))  # any other call has its step
            return await kept.steps(limit=100)

    monkeypatch.setattr(recorder, "_WAITING_STEPS", 10)
    assert len(asyncio.run(main())) == 11


def test_only_the_newest_steps_are_kept_and_runs_go_with_their_steps(path):
    async def fill():
        async with traces(path) as kept:
            old, lasting, _ = [await kept.begin_run(agent) for agent in ("old", "lasting", "idle")]
            kept.refuse(start(kept, run=old), OK)
            await kept.end_run(old, "finished")
            for number in range(3000):
                kept.refuse(start(kept, tool=f"echo.t{number}"), OK)
            kept.refuse(start(kept, run=lasting, tool="echo.last"), OK)
            await kept.end_run(lasting, "finished")
            return old

    async def reopen(old):
        async with traces(path, traces=50) as kept:
            await kept._upkeep
            with pytest.raises(TraceNotFound):
                await kept.run(old)
            return await kept.steps(limit=1000), await kept.runs()

    steps, runs = asyncio.run(reopen(asyncio.run(fill())))
    assert [step.tool for step in steps] == ["echo.last", *(f"echo.t{number}" for number in range(2999, 2950, -1))]
    assert {step.outcome for step in steps} == {"ok"}
    assert [run.agent for run in runs] == ["idle", "lasting"]
    assert look(path, "SELECT count(*) FROM ends") == [(50,)]


def test_only_the_newest_runs_are_kept(path):
    async def main():
        async with traces(path, traces=3) as kept:
            _, *others = [await kept.begin_run(f"a{number}") for number in range(9)]
            for run in others:
                await kept.end_run(run, "finished")
            await asyncio.to_thread(upkeep.tidy, kept._spare, kept._limits)
            return [run.agent for run in await kept.runs()]

    assert asyncio.run(main()) == ["a8", "a7", "a6", "a0"]  # one that is running stays


def test_old_steps_go_when_the_traces_are_opened(path):
    async def fill():
        async with traces(path, trace_days=100.0) as kept:
            for age in (40, 31, 29, 0):
                kept.refuse(start(kept, tool=f"echo.d{age}", started_at=time.time() - age * 86_400), OK)

    async def reopen():
        async with traces(path, trace_days=30.0):
            pass

    asyncio.run(fill())
    assert look(path, "SELECT count(*) FROM steps") == [(4,)]
    asyncio.run(reopen())
    assert look(path, "SELECT facts.facts ->> 'tool' FROM steps JOIN facts ON id = steps.facts ORDER BY seq") == [
        ("echo.d29",),
        ("echo.d0",),
    ]


def test_the_end_of_a_step_that_is_no_longer_kept_does_not_turn_up_elsewhere(path):
    async def main():
        async with traces(path, traces=2) as kept:
            lasting = start(kept)
            await written(kept, lasting)
            for _ in range(9):
                kept.refuse(start(kept), OK)
            await kept.flush()
            await asyncio.to_thread(upkeep.tidy, kept._spare, kept._limits)
            kept.close(lasting.id, StepEnd(outcome="error"))
            await kept.flush()
            await asyncio.to_thread(upkeep.tidy, kept._spare, kept._limits)

    asyncio.run(main())
    assert look(path, "SELECT count(*) FROM steps") == look(path, "SELECT count(*) FROM ends") == [(2,)]


def test_the_file_and_its_wal_stay_small_under_steady_load(path):
    async def main():
        async with traces(path, traces=1000) as kept:
            left = iter(range(30_000))

            async def calls():
                for _ in left:
                    begun = start(kept, arguments={"message": "hello"})
                    await written(kept, begun)
                    kept.close(begun.id, StepEnd(outcome="ok", result={"message": "hello"}))

            async def watch():
                while not working.done():
                    sizes.append(wal.stat().st_size)
                    await asyncio.sleep(0.01)

            working = asyncio.gather(*(calls() for _ in range(32)))
            await asyncio.gather(working, watch())
            await kept.flush()

    wal = path.with_name(f"{path.name}-wal")
    sizes: list[int] = []
    asyncio.run(main())
    assert max(sizes) < 16 * 1024 * 1024  # of about 40 MiB that were written
    assert path.stat().st_size < 8 * 1024 * 1024
    assert look(path, OUTCOMES)[0][1] < 5_000


# --- trouble ----------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(recorder, "_ANSWER_SECONDS", 2.0)


def hold(path: Path) -> sqlite3.Connection:
    """Write and write, as another process might; until closed."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


async def turns_beside(work: "asyncio.Task[object]") -> int:
    """Return how often the event loop went round while ``work`` went on."""
    turns = 0
    while not work.done():
        await asyncio.sleep(0.001)
        turns += 1
    return turns


def test_a_file_that_another_process_holds_refuses_calls_and_loses_no_end(path, impatient, caplog):
    async def main():
        async with traces(path) as kept:
            await kept._upkeep
            open_before = start(kept)
            await written(kept, open_before)
            other = hold(path)
            try:
                kept.close(open_before.id, OK)
                refused = start(kept)
                failing = asyncio.create_task(written(kept, refused))
                turns = await turns_beside(failing)
                with pytest.raises(StateUnavailable, match="locked"):
                    await failing
                kept.close(refused.id, StepEnd(outcome="error", code="STATE_UNAVAILABLE"))
                with pytest.raises(StateUnavailable, match="locked"):
                    await written(kept, start(kept))
                assert [step.outcome for step in await kept.steps()] == [None]  # what is there can be read
            finally:
                other.close()
            again = start(kept)
            await written(kept, again)
            kept.close(again.id, OK)
            return turns, await kept.steps()

    turns, steps = asyncio.run(main())
    assert turns > 10  # whoever waited on the loop would let it go round once or twice in the two seconds of an answer
    assert [(step.outcome, step.code) for step in steps] == [("ok", None), ("error", "STATE_UNAVAILABLE"), ("ok", None)]
    assert "calls are refused" in caplog.text


def test_a_file_that_another_process_holds_for_a_moment_delays_calls_and_refuses_none(path):
    async def main():
        async with traces(path) as kept:
            await kept._upkeep
            other = hold(path)
            opening = [asyncio.create_task(written(kept, start(kept))) for _ in range(5)]
            beginning = asyncio.create_task(kept.begin_run("a"))
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in opening)
            other.close()
            await asyncio.gather(*opening, beginning)
            return await kept.steps()

    assert len(asyncio.run(main())) == 5


def test_traces_that_can_not_be_written_can_be_closed(path, impatient, caplog):
    async def main():
        async with traces(path) as kept:
            await kept._upkeep
            other = hold(path)
            kept.refuse(start(kept), OK)
        other.close()

    asyncio.run(main())
    assert "the last steps are not in the traces" in caplog.text


FULL = f"""
from __future__ import annotations
import asyncio, resource, sys, time
from pathlib import Path
from bascule.core.redaction import Redactor
from bascule.core.traces import StepEnd, StepFacts, StepStart, Traces, recorder
from bascule.hookspecs.config import Limits
from bascule.hookspecs.errors import StateUnavailable

recorder._ANSWER_SECONDS = 0.5

{inspect.getsource(written)}

async def call(kept):
    facts = StepFacts(tool="echo.say")
    begun = StepStart(id=kept.next_id(), facts=facts, started_at=time.time(), arguments=["x" * 4000])
    await written(kept, begun)
    kept.close(begun.id, StepEnd(outcome="ok", result=["y" * 4000]))

async def main():
    async with Traces(Path(sys.argv[1]), Limits(), Redactor()) as kept:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        sent = 0
        try:
            while sent < 1000:
                await call(kept)
                sent += 1
        except StateUnavailable as error:
            print(sent + 1, error.where, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await call(kept)

asyncio.run(main())
"""


def test_a_disk_that_takes_no_more_refuses_calls_and_loses_no_end(path):
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    sent, where = done.stdout.strip().split(maxsplit=1)
    assert 1 < int(sent) < 1000
    assert where == str(path)
    assert look(path, OUTCOMES) == [("ok", int(sent))]


def test_a_row_that_can_never_be_written_does_not_stand_in_the_way_of_others(path, caplog):
    async def main():
        async with traces(path) as kept:
            good = [start(kept, tool=f"echo.t{number}") for number in range(5)]
            good.insert(2, start(kept, started_at=float("nan")))  # NULL to SQLite, which the column takes not
            results = await asyncio.gather(*(written(kept, each) for each in good), return_exceptions=True)
            for each in good:
                kept.close(each.id, OK)
            kept.refuse(start(kept, started_at=float("nan")), OK)
            kept.refuse(start(kept, tool="echo.last"), OK)
            return results, await kept.steps()

    results, steps = asyncio.run(main())
    assert [type(result) for result in results] == [*[type(None)] * 2, StateUnavailable, *[type(None)] * 3]
    assert "NOT NULL" in str(results[2])
    assert [step.tool for step in steps] == ["echo.last", *(f"echo.t{number}" for number in (4, 3, 2, 1, 0))]
    assert {step.outcome for step in steps} == {"ok"}
    assert "does not fit" in caplog.text


# --- several processes ------------------------------------------------------------------------------------------

CHILD = f"""
from __future__ import annotations
import asyncio, sys, time
from pathlib import Path
from bascule.core.redaction import Redactor
from bascule.core.traces import StepEnd, StepFacts, StepStart, Traces
from bascule.hookspecs.config import Limits

{inspect.getsource(written)}

async def call(kept, run):
    facts = StepFacts(tool="echo.say")
    begun = StepStart(id=kept.next_id(), facts=facts, started_at=time.time(), run=run, arguments={{"a": 1}})
    await written(kept, begun)
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


def test_several_processes_write_into_one_file(path):
    children = [subprocess.Popen([sys.executable, "-c", MANY, str(path)]) for _ in range(3)]
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0]
    assert look(path, OUTCOMES) == [("ok", 900)]
    assert look(path, "SELECT count(DISTINCT begun ->> 'id') FROM steps") == [(900,)]
    assert look(path, "SELECT state, count(*) FROM runs GROUP BY state") == [("finished", 3)]


def test_a_killed_process_leaves_its_open_step_and_a_crashed_run(path):
    async def look():
        async with traces(path) as kept:
            return await kept.run(run)

    with subprocess.Popen([sys.executable, "-c", STUCK, str(path)], stdout=subprocess.PIPE, text=True) as child:
        run, step = child.stdout.readline().split()
        alive, _ = asyncio.run(look())
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=30)
    dead, steps = asyncio.run(look())
    assert alive.state == "running"
    assert dead.state == "crashed"
    assert dead.steps == 2
    assert [(each.outcome, each.id == step) for each in steps] == [("ok", False), (None, True)]


def test_a_later_process_with_the_same_number_is_not_the_one_that_began_the_run(path):
    async def main():
        async with traces(path) as kept:
            run = await kept.begin_run("a")
            states = [(await kept.run(run))[0].state]
            connection = sqlite3.connect(path)
            connection.execute("UPDATE runs SET process = ? || ' 1'", (os.getpid(),))
            connection.commit()
            connection.close()
            states.append((await kept.run(run))[0].state)
            return states

    assert asyncio.run(main()) == ["running", "crashed"]


def test_traces_of_a_file_that_is_new_are_empty(path):
    async def main():
        async with traces(path) as kept:
            return await kept.runs(), await kept.steps()

    assert asyncio.run(main()) == ([], [])
