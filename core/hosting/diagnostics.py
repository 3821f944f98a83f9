"""What only the owner may see of a server: the end of its stderr, and lines that were no messages (N6.4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_SKIPPED_KEPT = 5
_SKIPPED_BYTES = 200
_TAIL_LINES = 12


class HostDiagnostics:
    """A ring of ``limit`` bytes; what is older is gone. ``mask`` hides the secrets in what is shown of it."""

    def __init__(self, limit: int, mask: Callable[[str], str]) -> None:
        self._limit = limit
        self._mask = mask
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self.stderr_bytes = 0
        self.skipped_lines = 0
        self._skipped: list[bytes] = []
        self._fatal: bytes | None = None

    def stderr(self, chunk: bytes) -> None:
        """Keep ``chunk``, drop what is too old."""
        self.stderr_bytes += len(chunk)
        self._chunks.append(chunk[-self._limit :])
        self._held += len(self._chunks[-1])
        while self._held - len(self._chunks[0]) >= self._limit:
            self._held -= len(self._chunks.popleft())

    def skipped(self, line: bytes) -> None:
        """Count a line that is no protocol message; the first few are kept."""
        self.skipped_lines += 1
        if len(self._skipped) < _SKIPPED_KEPT:
            self._skipped.append(line[:_SKIPPED_BYTES])

    def broke(self, line: bytes) -> None:
        """Keep the beginning of the line that ended the connection."""
        self._fatal = line[:_SKIPPED_BYTES]

    def text(self) -> str:
        """The end of stderr, then what was skipped, then what the connection ended over."""
        kept = b"".join(self._chunks)[-self._limit :].decode("utf-8", "replace")
        if self.skipped_lines:
            shown = "\n".join(line.decode("utf-8", "replace") for line in self._skipped)
            kept += f"\n[{self.skipped_lines} lines on stdout were no JSON and were skipped; the first:]\n{shown}\n"
        if self._fatal is not None:
            kept += f"\n[the connection ended over this line on stdout:]\n{self._fatal.decode('utf-8', 'replace')}\n"
        return self._mask(kept)

    def tail(self) -> str:
        """The last few lines, for an error's diagnosis."""
        return "\n".join(self.text().strip().splitlines()[-_TAIL_LINES:])
