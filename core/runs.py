"""Runs of agents: each call that an agent makes leaves its step in the run's trace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..hookspecs import AskPerson, Caller, ProgressListener, Step, ToolCall, ToolDefinition, ToolResult
from .gateway import Road
from .traces import Traces


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

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressListener | None = None,
        ask: AskPerson | None = None,
    ) -> ToolResult:
        """Call ``tool``; raises a ``CallError``. Cancelling the task that awaits this cancels the call."""
        call = ToolCall(tool, {} if arguments is None else arguments, self._caller, self.id)
        return await self._road.call(call, progress=progress, ask=ask)

    async def trace(self) -> Sequence[Step]:
        """The steps so far, in order; what was called is complete here, whatever is still being written."""
        await self._traces.flush()
        _, steps = await self._traces.run(self.id)
        return steps


class AgentRuns:
    """Begins runs for callers of one way in."""

    def __init__(self, road: Road, traces: Traces, *, platform: str, transport: str) -> None:
        self._road = road
        self._traces = traces
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
