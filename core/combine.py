"""How many hook plugins' answers become one. What fails, fails closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence

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
from .eager import begin, within

log = logging.getLogger(__name__)

VERDICTS = (Allow, Deny, Ask)  # a union would be made anew at each call
_SILENCE = Deny("no permission check allows this call", "silence")


def permitted(
    checks: Mapping[str, PermissionCheck], seconds: float, call: ToolCall, tool: ToolDefinition, facts: CallFacts
) -> Verdict | Awaitable[Verdict]:
    """Ask all checks at once, ``seconds`` each: Deny outweighs Ask outweighs Allow; silence of all is no.

    The verdict of a single check that waits for nothing is there at once, and costs no coroutine; else it is awaited.
    """
    if len(checks) != 1:
        return _ask_all(checks, seconds, call, tool, facts)
    [(name, check)] = checks.items()
    try:
        answer, rest = begin(check(call, tool, facts))
    except Exception as error:  # noqa: BLE001 - a hook plugin's
        return _no_answer(name, seconds, error)
    return _one_later(name, seconds, rest) if rest is not None else _checked(name, answer) or _SILENCE


async def _ask_all(
    checks: Mapping[str, PermissionCheck], seconds: float, call: ToolCall, tool: ToolDefinition, facts: CallFacts
) -> Verdict:
    questions = [_ask(name, seconds, _put(check, call, tool, facts)) for name, check in checks.items()]
    return weigh(await asyncio.gather(*questions))


async def _put(check: PermissionCheck, call: ToolCall, tool: ToolDefinition, facts: CallFacts) -> Verdict | None:
    return await check(call, tool, facts)


async def _one_later(name: str, seconds: float, question: Awaitable[Verdict | None]) -> Verdict:
    return await _ask(name, seconds, question) or _SILENCE


def weigh(answers: Sequence[Verdict | None]) -> Verdict:
    """Combine the checks' answers."""
    for kind in (Deny, Ask, Allow):
        for answer in answers:
            if isinstance(answer, kind):
                return answer
    return _SILENCE


async def _ask(name: str, seconds: float, question: Awaitable[Verdict | None]) -> Verdict | None:
    try:
        return _checked(name, await within(seconds, question))
    except Exception as error:  # noqa: BLE001 - a hook plugin's
        return _no_answer(name, seconds, error)


def _no_answer(name: str, seconds: float, error: Exception) -> Deny:
    if isinstance(error, TimeoutError):
        return Deny(f"the permission check {name} did not answer within {seconds:g} s", name)
    log.error("permission check %s failed", name, exc_info=error)
    return Deny(f"the permission check {name} failed", name)


def _checked(name: str, answer: Verdict | None) -> Verdict | None:
    if answer is None or isinstance(answer, VERDICTS):
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
