"""The suites for permission checks and exposure policies."""

from __future__ import annotations

import asyncio
import copy
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..exposure import Exposure
from ..permissions import Allow, Ask, CallFacts, Deny
from ..tools import Caller, ToolCall, ToolDefinition
from .faults import Fault, NotApplicable, words
from .suite import Suite, check
from .values import callers, calls, explore, exposures, facts, tools
from .watch import no_blocking_calls

Case = tuple[ToolCall, ToolDefinition, CallFacts]


class PermissionCheckSuite(Suite):
    """Checks one permission check: that it answers, in a kind that counts, and fails closed.

    ``permission_check`` is the check. Say what it is for: ``denies`` and ``allows`` are cases that it must deny and
    must not deny, each a call, a tool and facts; ``broken`` is the same check where what it relies on is missing
    (its file, its command, its server): it must raise or deny then.

    Example::

        class TestReadOnly(PermissionCheckSuite):
            permission_check = ReadOnly({"files.write"})
            denies = [(call, writing_tool, facts)]
    """

    permission_check: Any = None
    denies: Iterable[Case] = ()
    allows: Iterable[Case] = ()
    broken: Any = None
    examples = 40

    def subject_name(self) -> str:
        return f"permission check {getattr(self.permission_check, 'name', type(self).__name__)!r}"

    async def _answer(self, case: Case, subject: Any = None) -> Any:
        subject = subject if subject is not None else self.given("permission_check")
        before = copy.deepcopy(case)
        work = subject(*case)
        if not hasattr(work, "__await__"):
            raise Fault(f"calling it returns a {type(work).__name__}, not something to await; make it async")
        answer = await self.within(work, "it does not answer: a check that is late denies the call")
        if case != before:
            raise Fault("it changes the call, the tool or the facts")
        if answer is not None and not isinstance(answer, Allow | Deny | Ask):
            raise Fault(f"it answers with a {type(answer).__name__}; answer Allow, Deny, Ask or None")
        if isinstance(answer, Deny) and not answer.reason:
            raise Fault("it denies without a reason, which the caller and the trace are to see")
        if isinstance(answer, Ask) and not answer.question:
            raise Fault("it asks nothing: the question is empty")
        return answer

    @check
    def test_it_answers_every_call_in_a_kind_that_counts(self, folder: Path) -> None:
        def one(call: ToolCall, tool: ToolDefinition, known: CallFacts) -> None:
            async def ask() -> None:
                try:
                    await self._answer((call, tool, known))
                except Fault:
                    raise
                except Exception as error:  # noqa: BLE001 - it is what is judged
                    raise Fault(f"it raises {words(error)}, which denies; say Deny with a reason") from None

            _on_a_loop(ask())

        explore(one, calls, tools(), facts, examples=self.examples)

    @check
    async def test_it_says_what_it_is_for(self, folder: Path) -> None:
        for number, case in enumerate(self.denies):
            if not isinstance(answer := await self._answer(case), Deny):
                raise Fault(f"it does not deny case {number + 1} of denies: it says {answer!r}")
        for number, case in enumerate(self.allows):
            if isinstance(answer := await self._answer(case), Deny):
                raise Fault(f"it denies case {number + 1} of allows: {answer.reason}")

    @check
    async def test_it_fails_closed(self, folder: Path) -> None:
        if self.broken is None:
            raise NotApplicable("the suite says no broken")
        for case in (*self.allows, *self.denies) or [_plain()]:
            try:
                answer = await self._answer(case, self.broken)
            except Fault:
                raise
            except Exception:  # noqa: BLE001, S112 - whatever it raises denies
                continue
            if not isinstance(answer, Deny):
                raise Fault(
                    f"it fails open: without what it relies on it says {answer!r}, neither Deny nor an exception"
                )

    @check
    async def test_calls_at_once_get_their_own_answers(self, folder: Path) -> None:
        case = next(iter((*self.denies, *self.allows)), _plain())
        first = await self._answer(case)
        answers = await asyncio.gather(*(self._answer(case) for _ in range(20)))
        if any(type(answer) is not type(first) for answer in answers):
            raise Fault("asked many times at once, it answers one and the same call in different ways")

    @check
    async def test_it_can_be_cancelled_and_leaves_nothing(self, folder: Path) -> None:
        for steps in range(6):
            task = asyncio.ensure_future(self.given("permission_check")(*_plain()))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=self.seconds)
            if not done:
                raise Fault("it ignores cancellation: a check that is late is cancelled, and this one goes on")
            if not task.cancelled():
                task.exception()

    @check
    async def test_it_does_not_block_the_event_loop(self, folder: Path) -> None:
        await self._answer(_plain())
        with no_blocking_calls():
            await self._answer(_plain())


def _plain() -> Case:
    caller = Caller("mcp", "kit", "kit", "kit")
    tool = ToolDefinition("kit.echo", "Say it again", {"type": "object"}, plugin_id="kit", remote_name="echo")
    known = CallFacts(frozenset({"tools.call"}), "production", Exposure())
    return ToolCall("kit.echo", {"text": "x"}, caller), tool, known


def _on_a_loop(work: Any) -> None:
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


# --- exposure policies ------------------------------------------------------------------------------------


class ExposurePolicySuite(Suite):
    """Checks one exposure policy: a plain yes or no, the same for the same values, without I/O.

    ``policy`` is the policy; one that looks at the clock takes it as an argument, so that a test may hold it still.
    ``shows`` and ``hides`` are cases, each a tool, a caller and an exposure.

    Example::

        class TestOfficeHours(ExposurePolicySuite):
            policy = OfficeHours(8, 18, clock=lambda: time(12))
    """

    policy: Any = None
    shows: Iterable[tuple[ToolDefinition, Caller, Exposure]] = ()
    hides: Iterable[tuple[ToolDefinition, Caller, Exposure]] = ()

    def subject_name(self) -> str:
        return f"exposure policy {getattr(self.policy, 'name', type(self).__name__)!r}"

    _warm = False

    def _answer(self, tool: ToolDefinition, caller: Caller, exposure: Exposure) -> bool:
        policy = self.given("policy")
        if not self._warm:  # what is imported late is imported now
            self._warm = True
            with suppress(Exception):
                getattr(policy(tool, caller, exposure), "close", bool)()
        before = copy.deepcopy((tool, caller, exposure))
        try:
            with no_io():
                answer = policy(tool, caller, exposure)
        except Fault:
            raise
        except Exception as error:  # noqa: BLE001 - it is what is judged
            raise Fault(f"it raises {words(error)}, which hides the tool; answer False") from None
        if hasattr(answer, "__await__"):
            answer.close()
            raise Fault("it is a coroutine; a policy is synchronous, and a coroutine counts as no")
        if answer is not True and answer is not False:
            raise Fault(f"it answers {answer!r}; only a plain True shows a tool")
        if (tool, caller, exposure) != before:
            raise Fault("it changes the tool, the caller or the exposure")
        return answer

    @check
    def test_it_says_a_plain_yes_or_no_without_io(self, folder: Path) -> None:
        def one(tool: ToolDefinition, caller: Caller, exposure: Exposure) -> None:
            self._answer(tool, caller, exposure)

        explore(one, tools(), callers, exposures)

    @check
    def test_it_says_the_same_for_the_same_values(self, folder: Path) -> None:
        def one(tool: ToolDefinition, other: ToolDefinition, caller: Caller, exposure: Exposure) -> None:
            first = self._answer(tool, caller, exposure)
            again = self._answer(tool, caller, exposure)
            self._answer(other, caller, exposure)
            if not first == again == self._answer(tool, caller, exposure):
                raise Fault("it is not pure: asked again, it says another thing; listing and calling would differ")

        explore(one, tools(), tools(), callers, exposures)

    @check
    def test_it_shows_and_hides_what_it_is_for(self, folder: Path) -> None:
        for number, case in enumerate(self.shows):
            if not self._answer(*case):
                raise Fault(f"it hides case {number + 1} of shows")
        for number, case in enumerate(self.hides):
            if self._answer(*case):
                raise Fault(f"it shows case {number + 1} of hides")


_IO = ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "sqlite3.connect", "os.listdir")
_judging: list[list[str]] = []
_watched_thread = threading.get_ident()
_installed = False


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if _judging and event in _IO and threading.get_ident() == _watched_thread:
        _judging[-1].append(f"{event} {arguments[0] if arguments else ''}")


@contextmanager
def no_io() -> Iterator[None]:
    """Raise ``Fault`` where what runs meanwhile opens, connects or starts something."""
    global _installed, _watched_thread
    if not _installed:
        sys.addaudithook(_heard)  # it can't be taken away, only be silent
        _installed = True
    _watched_thread = threading.get_ident()
    seen: list[str] = []
    _judging.append(seen)
    try:
        yield
    finally:
        _judging.remove(seen)
        if seen:
            raise Fault(f"it does I/O: {seen[0]}; a policy is asked at every listing and every call")
