"""Runs of agents, and what was called."""

from __future__ import annotations

from ...hookspecs import (
    RequestInvalid,
    RunEnded,
    RunLimitReached,
    RunNotFound,
    RunView,
    StateUnavailable,
    Step,
    TraceNotFound,
)
from .answers import Answer
from .operations import ADMIN, CALL, READ, Parameter, Request, Rest, operation, operations_of
from .shapes import Finish, NewRun, RunList, RunTrace

_TAG = "runs"
_MOST = 500

_LIMIT = Parameter("limit", "how many at most; 50 by default", {"type": "integer", "minimum": 1, "maximum": _MOST})
_BEFORE = Parameter("before", "only runs older than the one of this id", {"type": "string"})


@operation(
    "POST",
    "/api/runs",
    _TAG,
    CALL,
    status=201,
    answers=RunView,
    body=NewRun,
    body_example={"agent": "researcher", "purpose": "find the time"},
    errors=(RequestInvalid, RunLimitReached, StateUnavailable),
    links=(("get_run", "run_id", "body#/id"), ("finish_run", "run_id", "body#/id")),
)
async def open_run(rest: Rest, request: Request) -> Answer:
    """Open a run of an agent.

    Calls come under it by the header `Bascule-Run`. It belongs to the token that opened it, and is abandoned when it
    had no call for one hour.
    """
    wanted = request.parsed(NewRun)
    run = await rest.bridge.runs.open(wanted.agent, purpose=wanted.purpose, owner=request.owner)
    return Answer(run, 201, {"Location": f"/api/runs/{run.id}"})


@operation("GET", "/api/runs", _TAG, READ, answers=RunList, query=(_LIMIT, _BEFORE), errors=(RequestInvalid,))
async def list_runs(rest: Rest, request: Request) -> Answer:
    """List the newest runs."""
    limit = request.number("limit", 50, _MOST)
    return Answer({"runs": await rest.bridge.traces.runs(limit=limit, before=request.query.get("before"))})


@operation("GET", "/api/runs/{run_id}", _TAG, READ, answers=RunTrace, errors=(TraceNotFound,))
async def get_run(rest: Rest, request: Request) -> Answer:
    """Show a run with its steps in order."""
    run, steps = await rest.bridge.traces.run(request.path["run_id"])
    return Answer({"run": run, "steps": steps})


@operation(
    "POST",
    "/api/runs/{run_id}/finish",
    _TAG,
    CALL | ADMIN,
    answers=RunView,
    body=Finish,
    body_example={"state": "finished"},
    errors=(RequestInvalid, RunNotFound, RunEnded, StateUnavailable),
)
async def finish_run(rest: Rest, request: Request) -> Answer:
    """End a run: one's own, or any with the scope `admin`."""
    state = request.parsed(Finish).state
    admin = request.identity is not None and "admin" in request.identity.scopes
    owner = None if admin else request.owner
    return Answer(await rest.bridge.runs.finish(request.path["run_id"], state=state, owner=owner))


@operation("GET", "/api/traces/{trace_id}", _TAG, READ, answers=Step, errors=(TraceNotFound,))
async def get_trace(rest: Rest, request: Request) -> Answer:
    """Show one call."""
    return Answer(await rest.bridge.traces.trace(request.path["trace_id"]))


OPERATIONS = operations_of(globals())
