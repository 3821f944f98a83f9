"""The last door before the disk: redacts and cuts off every text of a row."""

from __future__ import annotations

from typing import Any

from ..redaction import Redactor
from .records import Detail, EndRow, StartRow

_LABEL_BYTES = 1024
_CALLER_BYTES = 4096
_REMEMBERED = 1024

Labels = tuple[str | None, str, bytes, str | None, str | None]


class Cleaner:
    """Makes rows fit to be kept; used by the writer alone."""

    def __init__(self, redactor: Redactor, detail_bytes: int) -> None:
        self._redactor = redactor
        self._limit = detail_bytes
        self._labels: dict[Labels, tuple[str | None, ...]] = {}
        self._version = redactor.version

    def start(self, row: StartRow) -> tuple[Any, ...]:
        """Return ``row`` as it may stand in the file."""
        step, run, tool, plugin, generation, at, caller, decision, reason, rule, detail, size = row
        # The same few callers, tools and rules come again and again.
        labels = self._clean_labels((run, tool, caller, reason, rule))
        run, tool_shown, caller_shown, reason, rule = labels
        arguments = None if detail is None else self.excerpt(detail, self._limit)
        return step, run, tool_shown, plugin, generation, at, caller_shown, decision, reason, rule, arguments, size

    def end(self, row: EndRow) -> tuple[Any, ...]:
        """Return ``row`` as it may stand in the file."""
        detail = row[6]
        return row if detail is None else (*row[:6], self.excerpt(detail, self._limit), *row[7:])

    def run(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a run's ``row`` (id, agent, purpose, …) as it may stand in the file."""
        return row[0], self._label(row[1]), self._label(row[2]), *row[3:]

    def excerpt(self, detail: Detail, limit: int) -> str:
        """Redact a text and cut it off after ``limit`` bytes, with a note of how long it was."""
        window, total = detail
        text = self._redactor.redact(window.decode("utf-8", "ignore"))
        if len(window) == total:
            if total <= limit or len(text.encode()) <= limit:
                return text
        else:
            # A secret that the window's end cuts in two was not seen as one; it is shorter than this.
            text = text[: -max(self._redactor.reach, len(window) - limit)]
        return f"{text.encode()[:limit].decode('utf-8', 'ignore')}… [cut off, {total} bytes in all]"

    def _clean_labels(self, labels: Labels) -> tuple[str | None, ...]:
        if self._version != self._redactor.version or len(self._labels) > _REMEMBERED:
            self._labels.clear()
            self._version = self._redactor.version
        clean = self._labels.get(labels)
        if clean is None:
            run, tool, caller, reason, rule = labels
            whose = self.excerpt((caller, len(caller)), _CALLER_BYTES) if len(caller) <= _CALLER_BYTES else "{}"
            clean = self._label(run), self._label(tool), whose, self._label(reason), self._label(rule)
            self._labels[labels] = clean
        return clean

    def _label(self, text: str | None) -> str | None:
        if text is None:
            return None
        encoded = text.encode("utf-8", "replace")
        return self.excerpt((encoded, len(encoded)), _LABEL_BYTES)
