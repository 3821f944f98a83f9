"""A request's head that came before on the same connection: what was found out about it still holds.

A client that keeps its connection sends one and the same head again and again; only the length of what follows
differs. Equal bytes are parsed to equal values, so such a request needs no parser.
"""

from __future__ import annotations

import re

from ...hookspecs import Prompt

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]+)(?=\r\n)", re.IGNORECASE)
_DIGITS = 6


class KnownHead:
    """What stands before and behind the digits of a head's length, and who answers the bodies that come with it."""

    __slots__ = ("_after", "_before", "answer")

    def __init__(self, before: bytes, after: bytes, answer: Prompt) -> None:
        self._before = before
        self._after = after
        self.answer = answer

    @classmethod
    def of(cls, request: bytes, answer: Prompt) -> KnownHead | None:
        """Learn from a request that is whole; ``None`` where its length is written in a way that is not looked for."""
        end = request.find(_END)
        found = _LENGTH.search(request, 0, end + 2)
        if end < 0 or found is None or len(request) - end - len(_END) != int(found[1]):
            return None
        return cls(request[: found.start(1)], request[found.end(1) : end + len(_END)], answer)

    def body(self, data: bytes) -> bytes | None:
        """The body where ``data`` is this head and a body, whole and alone."""
        before = self._before
        if not data.startswith(before):
            return None
        at = len(before)
        end = data.find(b"\r", at, at + _DIGITS + 1)
        digits = data[at:end] if end > 0 else b""
        if not digits.isdigit() or not data.startswith(self._after, end):
            return None
        body = data[end + len(self._after) :]
        return body if len(body) == int(digits) else None
