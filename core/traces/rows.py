"""What of a step goes into the file: redacted, cut off at its bounds, and packed.

A row holds the beginning of a step or its end as one JSON text: a tenth of SQLite's work for as many columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ...hookspecs import Limits
from ..redaction import Redactor

_WAITING_BYTES = 4 * 1024 * 1024

_encode = msgspec.json.Encoder().encode


class StepStart(msgspec.Struct, frozen=True, kw_only=True):
    """A call about to be sent; the fields are those of ``Step``, ``started_at`` in seconds since 1970.

    ``caller`` may be ``packed`` already: most come again and again.
    """

    id: str
    tool: str
    started_at: float
    run: str | None = None
    plugin: str | None = None
    generation: int | None = None
    caller: Mapping[str, Any] | str = "{}"
    decision: str | None = None
    decision_reason: str | None = None
    decision_rule: str | None = None
    arguments: Any = None
    arguments_bytes: int | None = None


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call; the fields are those of ``Step``, times in seconds."""

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
    """Makes rows. ``waiting`` counts the bytes of detail in those that are not written yet; more are left out."""

    def __init__(self, limits: Limits, redactor: Redactor) -> None:
        self._limit = limits.trace_detail_bytes
        self._redactor = redactor
        self.waiting = 0

    def begun(self, start: StepStart) -> tuple[str | None, float, str]:
        """Return the columns ``run``, ``started_at`` and ``begun``; ids are ours and need no redaction."""
        arguments, size = self._detail(start.arguments)
        caller = start.caller if isinstance(start.caller, str) else packed(start.caller)
        row = replace(
            start,
            tool=self.label(start.tool),
            caller=msgspec.Raw(self._redactor.label(caller).encode()),
            decision_reason=self.label(start.decision_reason),
            decision_rule=self.label(start.decision_rule),
            arguments=arguments,
            arguments_bytes=size,
        )
        return start.run, start.started_at, _encode(row).decode()

    def ended(self, end: StepEnd) -> str:
        """Return the column ``ended``."""
        result, size = self._detail(end.result)
        return _encode(replace(end, result=result, result_bytes=size)).decode()

    def label(self, text: str | None) -> str | None:
        """Redact a name or a reason, of which so many characters are kept."""
        return None if text is None else self._redactor.label(text[:1_000])

    def _detail(self, value: Any) -> tuple[str | None, int | None]:
        """Return the redacted JSON of ``value`` as far as it is kept, and how long the whole is."""
        if value is None:
            return None, None
        encoded = _json(value)
        size, limit = len(encoded), self._limit
        kept_bytes = limit if size > limit else size
        if self.waiting + kept_bytes > _WAITING_BYTES:
            return None, size
        self.waiting += kept_bytes
        if size <= limit:
            return self._redactor.redact(encoded.decode("utf-8", "ignore")), size
        # Redacted before it is cut: of a secret that the cut divides, the rest would not be seen as one.
        reach = self._redactor.reach
        kept = self._redactor.redact(encoded[: limit + reach].decode("utf-8", "ignore")).encode()
        end = min(limit, len(kept) - (reach if size > limit + reach else 0))
        return f"{kept[: max(end, 0)].decode('utf-8', 'ignore')}… [cut off, {size} bytes in all]", size


def packed(value: Mapping[str, Any]) -> str:
    """``value`` as the JSON text of a row; an empty object where it is no JSON."""
    return _json(value, "{}").decode()


def _json(value: Any, otherwise: str = '"[not JSON]"') -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return otherwise.encode()  # such a value is refused elsewhere
