"""How many hook plugins' answers become one. What fails, fails closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

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
from .eager import within

log = logging.getLogger(__name__)

_SILENCE = Deny("no permission check allows this call", "silence")


async def permitted(
    checks: Mapping[str, PermissionCheck], seconds: float, call: ToolCall, tool: ToolDefinition, facts: CallFacts
) -> Verdict:
    """Ask all checks at once, ``seconds`` each: Deny outweighs Ask outweighs Allow; silence of all is no."""
    questions = [_ask(name, check, seconds, call, tool, facts) for name, check in checks.items()]
    if len(questions) == 1:
        return await questions[0] or _SILENCE
    return weigh(await asyncio.gather(*questions))


def weigh(answers: Sequence[Verdict | None]) -> Verdict:
    """Combine the checks' answers."""
    for kind in (Deny, Ask, Allow):
        for answer in answers:
            if isinstance(answer, kind):
                return answer
    return _SILENCE


async def _ask(
    name: str, check: PermissionCheck, seconds: float, call: ToolCall, tool: ToolDefinition, facts: CallFacts
) -> Verdict | None:
    try:
        answer = await within(seconds, check(call, tool, facts))
    except TimeoutError:
        return Deny(f"the permission check {name} did not answer within {seconds:g} s", name)
    except Exception:
        log.exception("permission check %s failed", name)
        return Deny(f"the permission check {name} failed", name)
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
