"""Runs of agents: each call that an agent makes leaves its step in the run's trace.

A run that an agent in this process begins ends with its context. A run that a remote agent opens belongs to a token,
ends when it is finished, outlives a restart of the bridge, and counts as abandoned once it has been idle for too long.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ..hookspecs import (
    AskPerson,
    Caller,
    Limits,
    ProgressListener,
    RunEnded,
    RunLimitReached,
    RunNotFound,
    RunView,
    StateUnavailable,
    Step,
    ToolCall,
    ToolDefinition,
    ToolResult,
)
from .gateway import Road
from .traces import USES_KEPT, Traces

_ENDS = frozenset({"finished", "failed"})


class AgentRun:
    """One agent's run; made by :meth:`Runs.begin`."""

    def __init__(self, run_id: str, caller: Caller, road: Road, traces: Traces) -> None:
        self.id = run_id
        self._caller = caller
        self._road = road
        self._traces = traces

    async def tools(self) -> Sequence[ToolDefinition]:
        """The tools that this agent may call, in the order of their ids."""
        return self._road.tools(self._caller)

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressListener | None = None,
        ask: AskPerson | None = None,
    ) -> Coroutine[Any, Any, ToolResult]:
        """Call ``tool``; raises a ``CallError``. Cancelling the task that awaits this cancels the call."""
        call = ToolCall(tool, {} if arguments is None else arguments, self._caller, self.id)
        return self._road.call(call, progress=progress, ask=ask)

    async def trace(self) -> Sequence[Step]:
        """The steps so far, in order; what was called is complete here, whatever is still being written."""
        await self._traces.flush()
        _, steps = await self._traces.run(self.id)
        return steps


@dataclass(slots=True)
class _Open:
    """A run that is open; times are in seconds since 1970."""

    owner: str
    used_at: float
    kept_at: float


class OpenRuns:
    """The runs that remote agents have open, of all ways in of one bridge."""

    def __init__(self, traces: Traces, limits: Limits) -> None:
        self._traces = traces
        self._idle = limits.run_idle_seconds
        self._most = limits.runs_per_owner
        self._open: dict[str, _Open] = {}

    async def take_over(self, owners: frozenset[str]) -> None:
        """Go on with the runs that an earlier bridge left open; those whose owner has no token any more crashed."""
        for run_id, owner, used_at in self._traces.open_runs():
            if owner and owner not in owners:
                await self._traces.end_run(run_id, "crashed", used_at)
            else:
                self._open[run_id] = _Open(owner, used_at, used_at)
        await self._sweep()

    async def open(self, agent: str, purpose: str | None, owner: str) -> RunView:
        """See ``Runs.open``."""
        await self._sweep()
        if sum(run.owner == owner for run in self._open.values()) >= self._most:
            raise RunLimitReached(f"{self._most} runs of yours are open", hint="finish some of them first")
        run_id = await self._traces.open_run(agent, purpose, owner)
        now = time.time()
        self._open[run_id] = _Open(owner, now, now)
        return await self._traces.run_view(run_id)

    def owned(self, run_id: str, owner: str | None) -> None:
        """See ``Runs.owned``."""
        run = self._find(run_id, owner)
        run.used_at = time.time()
        if run.used_at - run.kept_at > self._idle / USES_KEPT:
            run.kept_at = run.used_at
            self._traces.use_run(run_id, run.used_at)

    async def finish(self, run_id: str, state: str, owner: str | None) -> RunView:
        """See ``Runs.finish``."""
        if state not in _ENDS:
            raise ValueError(f"a run does not end as {state!r}")
        run = self._find(run_id, owner)
        del self._open[run_id]
        try:
            await self._traces.end_run(run_id, state)
        except StateUnavailable:
            self._open[run_id] = run
            raise
        return await self._traces.run_view(run_id)

    async def close(self) -> None:
        """Write down when each was last used; they stay open."""
        for run_id, run in self._open.items():
            if run.kept_at < run.used_at:
                self._traces.use_run(run_id, run.used_at)

    def _find(self, run_id: str, owner: str | None) -> _Open:
        run = self._open.get(run_id)
        if run is None or (owner is not None and run.owner != owner):
            state = self._traces.run_ended(run_id, owner)
            if state in (None, "running"):  # the latter: of another bridge's, and so unknown here
                raise RunNotFound(f"no run {run_id!r} is open", hint="open one: the id stands in the answer")
            raise RunEnded(f"the run {run_id} is {state}", hint="open another")
        if self._expired(run):
            raise RunEnded(f"the run {run_id} is abandoned: it had no call for {self._idle:g} s", hint="open another")
        return run

    def _expired(self, run: _Open) -> bool:
        return time.time() - run.used_at > self._idle

    async def _sweep(self) -> None:
        """Let go of those that were idle for too long."""
        for run_id, run in [(run_id, run) for run_id, run in self._open.items() if self._expired(run)]:
            if self._open.pop(run_id, None) is not None:
                await self._traces.end_run(run_id, "abandoned", run.used_at)


class AgentRuns:
    """Runs for callers of one way in."""

    def __init__(self, road: Road, traces: Traces, open_runs: OpenRuns, *, platform: str, transport: str) -> None:
        self._road = road
        self._traces = traces
        self._open_runs = open_runs
        self._platform = platform
        self._transport = transport

    @asynccontextmanager
    async def begin(self, agent: str, *, purpose: str | None = None) -> AsyncIterator[AgentRun]:
        """Open a run: left in order = ``finished``, left by an exception = ``failed``."""
        run_id = await self._traces.begin_run(agent, purpose)
        caller = Caller(self._platform, agent, run_id, self._transport)
        state = "failed"
        try:
            yield AgentRun(run_id, caller, self._road, self._traces)
            state = "finished"
        finally:
            await self._traces.end_run(run_id, state)

    async def open(self, agent: str, *, purpose: str | None = None, owner: str = "") -> RunView:
        return await self._open_runs.open(agent, purpose, owner)

    def owned(self, run_id: str, owner: str) -> None:
        self._open_runs.owned(run_id, owner)

    async def finish(self, run_id: str, *, state: str = "finished", owner: str | None = None) -> RunView:
        return await self._open_runs.finish(run_id, state, owner)
