"""How many hook plugins' answers become one. What fails, fails closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any

from ..hookspecs import (
    Allow,
    Ask,
    Caller,
    CallFacts,
    Deny,
    Exposure,
    ExposurePolicy,
    PermissionCheck,
    ToolCall,
    ToolDefinition,
    Verdict,
)

log = logging.getLogger(__name__)

_SILENCE = Deny("no permission check allows this call", "silence")


async def permitted(
    checks: Mapping[str, PermissionCheck], seconds: float, call: ToolCall, tool: ToolDefinition, facts: CallFacts
) -> Verdict:
    """Ask all checks at once, ``seconds`` each: Deny outweighs Ask outweighs Allow; silence of all is no."""
    if len(checks) == 1:
        ((name, check),) = checks.items()
        answer = _begin(name, check, call, tool, facts)
        return (await _within(seconds, name, answer) if isinstance(answer, _Rest) else answer) or _SILENCE
    return weigh(
        await asyncio.gather(*(_ask(name, check, seconds, call, tool, facts) for name, check in checks.items()))
    )


def weigh(answers: Sequence[Verdict | None]) -> Verdict:
    """Combine the checks' answers."""
    for kind in (Deny, Ask, Allow):
        for answer in answers:
            if isinstance(answer, kind):
                return answer
    return _SILENCE


class _Rest:
    """What is left of a check that waits for something: ``first`` is what its iterator waits for.

    A check that is alone and answers without waiting, as most do, is run on the spot and costs no timer. Several
    are tasks from the start: what a check begins in one task it may not end in another.
    """

    __slots__ = ("_first", "_iterator")

    def __init__(self, iterator: Generator[Any, Any, Any], first: Any) -> None:
        self._iterator = iterator
        self._first = first

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited = self._first
        while True:
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - a cancellation above all: it is the check's to handle
                step = partial(self._iterator.throw, error)
            else:
                step = partial(self._iterator.send, None)
            try:
                awaited = step()
            except StopIteration as done:
                return done.value


async def _ask(
    name: str, check: PermissionCheck, seconds: float, call: ToolCall, tool: ToolDefinition, facts: CallFacts
) -> Verdict | None:
    answer = _begin(name, check, call, tool, facts)
    return await _within(seconds, name, answer) if isinstance(answer, _Rest) else answer


def _begin(
    name: str, check: PermissionCheck, call: ToolCall, tool: ToolDefinition, facts: CallFacts
) -> Verdict | _Rest | None:
    try:
        iterator = check(call, tool, facts).__await__()
        return _Rest(iterator, next(iterator))
    except StopIteration as done:
        return _checked(name, done.value)
    except Exception:  # noqa: BLE001 - it is logged, and denies
        return _failed(name)


async def _within(seconds: float, name: str, rest: _Rest) -> Verdict | None:
    try:
        async with asyncio.timeout(seconds):
            return _checked(name, await rest)
    except TimeoutError:
        return Deny(f"the permission check {name} did not answer within {seconds:g} s", name)
    except Exception:  # noqa: BLE001 - it is logged, and denies
        return _failed(name)


def _failed(name: str) -> Deny:
    log.exception("permission check %s failed", name)
    return Deny(f"the permission check {name} failed", name)


def _checked(name: str, answer: Any) -> Verdict | None:
    if answer is None or isinstance(answer, Allow | Deny | Ask):
        return answer
    log.error("permission check %s answered with %s", name, type(answer).__name__)
    return Deny(f"the permission check {name} gave an answer that is none", name)


def exposed(policies: Mapping[str, ExposurePolicy], tool: ToolDefinition, caller: Caller, exposure: Exposure) -> bool:
    """Whether all policies agree to show ``tool``; one that raises hides it; no policy at all shows nothing."""
    for name, policy in policies.items():
        try:
            if policy(tool, caller, exposure) is not True:
                return False
        except Exception:
            log.exception("exposure policy %s failed", name)
            return False
    return bool(policies)
