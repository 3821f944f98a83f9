"""What of a step goes into the file: redacted, cut off at its bounds, and packed.

A row holds the beginning of a step or its end as one JSON text: a tenth of SQLite's work for as many columns. What
calls of one kind have in common (the tool, the caller, the decision) is a text of its own that they refer to, so that
it is redacted and written once: what a commit costs is its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from secrets import randbits
from typing import Any

import msgspec
from msgspec.structs import replace

from ...hookspecs import Limits
from ..jsonrpc import encoded
from ..redaction import Redactor

_WAITING_BYTES = 4 * 1024 * 1024
_NO_JSON = b'"[not JSON]"'  # such a value is refused elsewhere
FACTS_KEPT = 4_096
"""Facts that a process writes in that time; the steps of further ones hold them in their own row."""
FACTS_SECONDS = 3_600.0
"""How long steps refer to facts before these are written anew, so that old ones can be deleted."""

_encode = msgspec.json.Encoder().encode


class StepFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, cache_hash=True):
    """What calls of one kind have in common; the fields are those of ``Step``. ``caller`` is ``packed``."""

    tool: str
    plugin: str | None = None
    generation: int | None = None
    caller: str | msgspec.Raw = "{}"
    decision: str | None = None
    decision_reason: str | None = None
    decision_rule: str | None = None


class StepStart(msgspec.Struct, frozen=True, kw_only=True):
    """A call about to be sent; the fields are those of ``Step``, ``started_at`` in seconds since 1970.

    ``arguments`` may be their JSON already.
    """

    id: str
    facts: StepFacts
    started_at: float
    run: str | None = None
    arguments: Any = None


class _Begun(msgspec.Struct, omit_defaults=True):
    id: str
    arguments: str | None = None
    arguments_bytes: int | None = None


class StepEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a call; the fields are those of ``Step``, times in seconds. ``result`` may be its JSON already."""

    outcome: str
    code: str | None = None
    queued: float | None = None
    validating: float | None = None
    upstream: float | None = None
    total: float | None = None
    result: Any = None
    result_bytes: int | None = None
    output_valid: bool | None = None


class Rows:
    """Makes rows. ``waiting`` counts the bytes of detail in those that are not written yet; more are left out.

    ``fresh`` are the texts of facts that are not in the file yet, by the number that steps refer to.
    """

    def __init__(self, limits: Limits, redactor: Redactor) -> None:
        self._limit = limits.trace_detail_bytes
        self._redactor = redactor
        self._facts: dict[StepFacts, int] = {}
        self._renewed = 0.0
        self._secrets = 0
        self.fresh: dict[int, str] = {}
        self.waiting = 0

    def begun(self, start: StepStart) -> tuple[str | None, int | None, float, str]:
        """Return the columns ``run``, ``facts``, ``started_at`` and ``begun``; ids are ours and need no redaction."""
        arguments, size = self._detail(start.arguments)
        text = _encode(_Begun(start.id, arguments, size)).decode()
        at = start.started_at
        if not 0 <= at - self._renewed < FACTS_SECONDS or self._secrets != self._redactor.secrets:
            self._facts.clear()
            self._renewed = at
            self._secrets = self._redactor.secrets
        number = self._facts.get(start.facts)
        if number is None:
            shown = self._shown(start.facts)
            if len(self._facts) < FACTS_KEPT:
                number = self._facts[start.facts] = randbits(63)  # nobody gives the same, whatever seeds `random`
                self.fresh[number] = shown
            else:
                text = f"{text[:-1]},{shown[1:]}"
        return start.run, number, at, text

    def ended(self, end: StepEnd) -> str:
        """Return the column ``ended``."""
        result, size = self._detail(end.result)
        return _encode(replace(end, result=result, result_bytes=size)).decode()

    def _shown(self, facts: StepFacts) -> str:
        row = replace(
            facts,
            tool=self.label(facts.tool),
            caller=msgspec.Raw(self._redactor.label(str(facts.caller)).encode()),
            decision_reason=self.label(facts.decision_reason),
            decision_rule=self.label(facts.decision_rule),
        )
        return _encode(row).decode()

    def label(self, text: str | None) -> str | None:
        """Redact a name or a reason, of which so many characters are kept."""
        return None if text is None else self._redactor.label(text[:1_000])

    def _detail(self, value: Any) -> tuple[str | None, int | None]:
        """Return the redacted JSON of ``value`` as far as it is kept, and how long the whole is."""
        if value is None:
            return None, None
        written = value if type(value) is bytes else encoded(value) or _NO_JSON
        size = len(written)
        if size > self._limit:
            return self._cut(written, size), size
        if self.waiting + size > _WAITING_BYTES:
            return None, size
        self.waiting += size
        return self._redactor.redact(written.decode("utf-8", "ignore")), size

    def _cut(self, written: bytes, size: int) -> str | None:
        """Redact before the text is cut: of a secret that the cut divides, the rest would not be seen as one."""
        limit, reach = self._limit, self._redactor.reach
        if self.waiting + limit > _WAITING_BYTES:
            return None
        self.waiting += limit
        kept = self._redactor.redact(written[: limit + reach].decode("utf-8", "ignore")).encode()
        end = min(limit, len(kept) - (reach if size > limit + reach else 0))
        return f"{kept[: max(end, 0)].decode('utf-8', 'ignore')}… [cut off, {size} bytes in all]"


def packed(value: Mapping[str, Any]) -> str:
    """``value`` as the JSON text of a row; an empty object where it is no JSON."""
    return (encoded(value) or b"{}").decode()
