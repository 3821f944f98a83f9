"""Bytes into lines, bounded before a line is whole (N6.5). No I/O here."""

from __future__ import annotations

from ...hookspecs import ChannelFault

_SHORT = 4_096
_SEARCHES = 32  # lines of a chunk that are searched for: in one that has more they are short


class LineFramer:
    """Cuts chunks at 0x0A alone and refuses a line of more than ``limit`` bytes as soon as it can.

    Nothing else ends a line: CR and blanks are JSON's own white space, and U+2028 is plain text.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, without their newlines; raise ``ChannelFault``.

        An overrun is final: what follows it could be the middle of the long line, posing as a message.
        """
        lines = _split(chunk)
        rest = lines.pop()
        if lines and self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
            self._held = 0
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
        if self._held > self._limit or (lines and max(map(len, lines)) > self._limit):
            raise ChannelFault(f"the server sent a message of more than {self._limit:,} bytes")
        return lines

    def finish(self) -> None:
        """Raise ``ChannelFault`` where the stream ended in the middle of a line: it is never read as if whole."""
        if self._parts:
            raise ChannelFault("the server's output ended in the middle of a message")


def _split(chunk: bytes) -> list[bytes]:
    """``chunk.split(b"\\n")``; the end of a long line is searched for, ten times as fast as looking at each byte."""
    if len(chunk) < _SHORT:
        return chunk.split(b"\n")
    lines: list[bytes] = []
    start = 0
    while len(lines) < _SEARCHES:
        end = chunk.find(b"\n", start)
        if end < 0:
            lines.append(chunk[start:])
            return lines
        lines.append(chunk[start:end])
        start = end + 1
    return lines + chunk[start:].split(b"\n")
