"""The one road to a tool: find, check, permit, send. Nothing goes around it (N5.5, N6.7).

=======  =====================================================================  =================================
station  question                                                               refusal
=======  =====================================================================  =================================
find     does it exist, and may this caller know it?                            ``TOOL_NOT_FOUND``
check    do the arguments fit its schema?                                       ``TOOL_ARGUMENTS_INVALID``
permit   do all permission checks let it run, and a person where one is asked?  ``TOOL_PERMISSION_DENIED`` …
send     (the step's row is on disk from here on) what does the server answer?  ``MCP_TOOL_CALL_FAILED`` …
=======  =====================================================================  =================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter, time
from typing import Any

import msgspec

from ..hookspecs import (
    Allow,
    Ask,
    AskPerson,
    BasculeError,
    CallEnded,
    Caller,
    CallError,
    CallFacts,
    Deny,
    Exposure,
    ExposurePolicy,
    Limits,
    LogListener,
    PermissionCheck,
    ProgressListener,
    ToolArgumentsInvalid,
    ToolBusy,
    ToolCall,
    ToolCallCancelled,
    ToolCallFailed,
    ToolConfirmationDeclined,
    ToolConfirmationUnavailable,
    ToolDefinition,
    ToolNotFound,
    ToolPermissionDenied,
    ToolResult,
    Verdict,
)
from .combine import VERDICTS, exposed, permitted
from .contracts import NO_JSON, CheckTooExpensive, Problem
from .events import Events
from .jsonrpc import encoded
from .registry import Entry, Outgoing, Registry
from .traces import StepEnd, StepFacts, StepStart, Traces, packed

_CALLERS_KEPT = 1_024


@dataclass(frozen=True, slots=True)
class Guards:
    """Who is asked on the road."""

    checks: Mapping[str, PermissionCheck]
    policies: Mapping[str, ExposurePolicy]
    environment: str


class _Passage(msgspec.Struct, eq=False):
    """One call on the road, and what is known of it so far; times by ``perf_counter``."""

    call: ToolCall
    step: str
    slots: _Slots
    began: float
    checked: float = 0.0
    arguments: bytes | None = None
    entry: Entry | None = None
    outgoing: Outgoing | None = None
    verdict: Verdict | None = None


class _Slots:
    """How many calls of one caller are in flight, the caller as a trace shows him, and what stays from call to call."""

    __slots__ = ("count", "facts", "last_entry", "last_verdict", "shown", "step_facts")

    def __init__(self, caller: Caller) -> None:
        self.count = 0
        self.facts: CallFacts | None = None
        self.last_entry: Entry | None = None
        self.last_verdict: Verdict | None = None
        self.step_facts: StepFacts
        self.shown = packed(
            {
                "platform": caller.platform,
                "user": caller.user,
                "session": caller.session,
                "transport": caller.transport,
                "identity": None if caller.identity is None else caller.identity.name,
                "address": caller.address,
                "client": caller.client,
            }
        )


class Gateway:
    """Holds the road; ``through`` gives a way in its own face of it."""

    def __init__(self, registry: Registry, guards: Guards, traces: Traces, events: Events, limits: Limits) -> None:
        self._registry = registry
        self._guards = guards
        self._traces = traces
        self._events = events
        self._limits = limits
        self._callers: dict[Caller, _Slots] = {}
        self._known: dict[int, tuple[Caller, _Slots]] = {}  # by identity, which lasts as long as the caller is held

    def tools(self, caller: Caller, exposure: Exposure) -> list[ToolDefinition]:
        """Every tool that ``caller`` may know, in the order of their ids."""
        policies = self._guards.policies
        tools = (entry.tool for entry in self._registry.entries())
        return [tool for tool in tools if exposed(policies, tool, caller, exposure)]

    async def call(
        self,
        call: ToolCall,
        exposure: Exposure,
        *,
        progress: ProgressListener | None = None,
        ask: AskPerson | None = None,
        logs: LogListener | None = None,
    ) -> ToolResult:
        """Take one call all the way; raises a ``CallError``, or ``CancelledError`` when its task is cancelled."""
        slots = self._slots(call.caller)
        passage = _Passage(call, self._traces.next_id(), slots, perf_counter())
        slots.count += 1
        try:
            result = await self._pass(passage, exposure, progress, ask, logs)
        except asyncio.CancelledError:
            self._close(passage, error=ToolCallCancelled(f"the caller of {call.tool} no longer waits"))
            raise
        except BasculeError as error:
            if isinstance(error, CallError):
                error.trace_id = passage.step
            self._close(passage, error=error)
            raise
        except Exception as error:
            self._close(passage, error=CallError(f"{type(error).__name__}: {error}"[:500]))
            raise
        finally:
            slots.count -= 1
        self._close(passage, result=result)
        return _traced(result, passage.step)

    async def _pass(
        self,
        passage: _Passage,
        exposure: Exposure,
        progress: ProgressListener | None,
        ask: AskPerson | None,
        logs: LogListener | None,
    ) -> ToolResult:
        call, busy = passage.call, passage.slots.count - 1
        if busy >= self._limits.calls_per_caller:
            raise ToolBusy(f"{busy} calls of yours are in flight", hint="wait for some of them to come back")
        entry = self._find(passage, exposure)
        arguments = self._check(passage, entry)
        verdict = permitted(
            self._guards.checks,
            self._limits.check_seconds,
            call,
            entry.tool,
            self._facts(passage, entry, exposure, ask is not None),
        )
        passage.verdict = verdict = verdict if isinstance(verdict, VERDICTS) else await verdict
        if not isinstance(verdict, Allow):
            await self._not_allowed(verdict, call, entry, ask)
        outgoing = entry.destination.prepare(entry.tool.remote_name, arguments, progress, logs)
        passage.outgoing = outgoing
        self._traces.open(self._start(passage), outgoing.send)
        result = await outgoing.answer()
        if result.failed:
            raise ToolCallFailed(result.text or f"{call.tool} says that it failed", result=result)
        return result

    # --- the stations ---------------------------------------------------------------------------------

    def _slots(self, caller: Caller) -> _Slots:
        """The caller's places on the road; those of callers who come again and again are kept."""
        known = self._known.get(id(caller))  # mostly the very same value: its hash would cost more than this all
        if known is not None:
            return known[1]
        slots = self._callers.get(caller)
        if slots is None:
            if len(self._callers) >= _CALLERS_KEPT:
                self._callers = {caller: slots for caller, slots in self._callers.items() if slots.count}
                self._known.clear()
            slots = self._callers[caller] = _Slots(caller)
        if len(self._known) >= _CALLERS_KEPT:
            self._known.clear()
        self._known[id(caller)] = caller, slots
        return slots

    def _find(self, passage: _Passage, exposure: Exposure) -> Entry:
        call = passage.call
        entry = self._registry.find(call.tool)
        if entry is None or not exposed(self._guards.policies, entry.tool, call.caller, exposure):
            raise ToolNotFound.named(call.tool)
        passage.entry = entry
        return entry

    def _check(self, passage: _Passage, entry: Entry) -> bytes:
        """Return the arguments' JSON, which is written once for all."""
        arguments = passage.call.arguments
        written = passage.arguments = encoded(arguments)
        problems: Sequence[Problem] = (NO_JSON,)
        try:
            if written is not None:
                problems = entry.arguments.problems(arguments, size=len(written))
        except CheckTooExpensive as error:
            raise ToolArgumentsInvalid(f"the arguments of {entry.tool.name} are too expensive to check") from error
        passage.checked = perf_counter()
        if written is None or problems:
            shown = "; ".join(f"{problem.pointer or 'arguments'}: {problem.problem}" for problem in problems)
            raise ToolArgumentsInvalid(
                f"the arguments do not fit {entry.tool.name}: {shown}",
                problems=[{"pointer": problem.pointer, "problem": problem.problem} for problem in problems],
            )
        return written

    def _facts(self, passage: _Passage, entry: Entry, exposure: Exposure, can_ask: bool) -> CallFacts:
        """What the checks are told: mostly the very same as at this caller's last call."""
        last, run = passage.slots.facts, passage.call.run
        if (
            last is not None
            and last.granted is entry.granted
            and last.exposure is exposure
            and last.can_ask is can_ask
            and last.run == run
        ):
            return last
        facts = passage.slots.facts = CallFacts(entry.granted, self._guards.environment, exposure, can_ask, run)
        return facts

    async def _not_allowed(self, verdict: Deny | Ask, call: ToolCall, entry: Entry, ask: AskPerson | None) -> None:
        if isinstance(verdict, Deny):
            raise ToolPermissionDenied(f"{entry.tool.name} may not run: {verdict.reason}")
        await self._confirm(verdict.question, call, ask)

    async def _confirm(self, question: str, call: ToolCall, ask: AskPerson | None) -> None:
        if ask is None:
            raise ToolConfirmationUnavailable(
                f"{call.tool} needs a person's yes, and there is no one to ask here",
                hint="call it from where someone can answer",
            )
        try:
            async with asyncio.timeout(self._limits.confirm_seconds):
                agreed = await ask(question, call)
        except TimeoutError:
            raise ToolConfirmationDeclined(f"no one answered for {call.tool} in time") from None
        if agreed is not True:
            raise ToolConfirmationDeclined(f"{call.tool} was not confirmed")

    # --- the trace ------------------------------------------------------------------------------------

    def _start(self, passage: _Passage) -> StepStart:
        call = passage.call
        return StepStart(
            id=passage.step,
            facts=self._step_facts(passage),
            run=call.run,
            started_at=time() - (perf_counter() - passage.began),
            arguments=call.arguments if passage.arguments is None else passage.arguments,
        )

    def _step_facts(self, passage: _Passage) -> StepFacts:
        """What the trace says of the call's kind: mostly the very same as of this caller's last call."""
        entry, verdict, slots = passage.entry, passage.verdict, passage.slots
        if entry is not None and entry is slots.last_entry and verdict is slots.last_verdict:
            return slots.step_facts
        slots.last_entry, slots.last_verdict = entry, verdict
        slots.step_facts = StepFacts(
            tool=passage.call.tool if entry is None else entry.tool.name,
            plugin=None if entry is None else entry.tool.plugin_id,
            generation=None if entry is None else entry.destination.generation,
            caller=slots.shown,
            decision=None if verdict is None else type(verdict).__name__.lower(),
            decision_reason=_reason(verdict),
            decision_rule=None if verdict is None else verdict.rule,
        )
        return slots.step_facts

    def _close(self, passage: _Passage, *, result: ToolResult | None = None, error: BasculeError | None = None) -> None:
        now = perf_counter()
        outgoing = passage.outgoing
        sent = 0.0 if outgoing is None else outgoing.sent_at
        if isinstance(error, ToolCallFailed):
            result = error.result
        output = None if result is None else result.output
        written = None if output is None else encoded(output)
        end = StepEnd(
            outcome="ok" if error is None else "error",
            code=None if error is None else error.code,
            queued=(sent or now) - passage.began,
            validating=passage.checked - passage.began if passage.checked else None,
            upstream=now - sent if sent else None,
            total=now - passage.began,
            result=output if written is None else written,
            output_valid=self._output_valid(passage, result, written),
        )
        if outgoing is not None:
            self._traces.close(passage.step, end)
        else:
            self._traces.refuse(self._start(passage), end)
        if self._events.wanted(CallEnded):
            tool = passage.call.tool if passage.entry is not None else self._traces.label(passage.call.tool)
            self._events.publish(CallEnded(tool, passage.step, passage.call.run, end.code, now - passage.began))

    def _output_valid(self, passage: _Passage, result: ToolResult | None, written: bytes | None) -> bool | None:
        """A result that breaks its outputSchema is relayed all the same; the trace says so."""
        entry = passage.entry
        if result is None or result.failed or entry is None or entry.output is None:
            return None
        try:
            return entry.output.fits(result.output, None if written is None else len(written))
        except CheckTooExpensive:
            return None

    def through(self, exposure: Exposure) -> Road:
        """The road as one way in sees it."""
        return Road(self, exposure)


def _traced(result: ToolResult, step: str) -> ToolResult:
    """Say where the call's trace is. A new value is nobody else's yet; one that a converter gives again is copied."""
    if result.trace_id is not None:
        return replace(result, trace_id=step)
    object.__setattr__(result, "trace_id", step)
    return result


def _reason(verdict: Verdict | None) -> str | None:
    if verdict is None:
        return None
    return verdict.question if isinstance(verdict, Ask) else verdict.reason


class Road:
    """The gateway for one way in: its exposure decides what is listed and what can be called, alike (A4)."""

    def __init__(self, gateway: Gateway, exposure: Exposure) -> None:
        self._gateway = gateway
        self._exposure = exposure

    def tools(self, caller: Caller) -> Sequence[ToolDefinition]:
        return self._gateway.tools(caller, self._exposure)

    def call(
        self,
        call: ToolCall,
        *,
        progress: ProgressListener | None = None,
        ask: AskPerson | None = None,
        logs: LogListener | None = None,
    ) -> Coroutine[Any, Any, ToolResult]:
        return self._gateway.call(call, self._exposure, progress=progress, ask=ask, logs=logs)
