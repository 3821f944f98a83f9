"""Requests that are answered on the spot: what an app offers for it, and what an HTTP server needs to take it up.

A client that keeps its connection sends one and the same head again and again; only the length of what follows
differs. Equal bytes are parsed to equal values, so such a request needs no parser (:class:`KnownHead`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from .http_servers import Receive, Scope, Send

log = logging.getLogger(__name__)

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]+)(?=\r\n)", re.IGNORECASE)
_DIGITS = 5  # of a body that is taken so: a larger one comes in pieces anyway


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """A whole answer as plain text."""

    status: int
    body: bytes


Prompt = Callable[[bytes], PromptAnswer | None]

_FAILED = PromptAnswer(500, b"Internal Server Error")


class PromptApp(Protocol):
    """An ``ASGIApp`` that can answer some requests on the spot, without a task of their own.

    A server that knows of it shows the head of a request to ``prompt`` and, once the body is whole and its connection
    owes no other answer, the body to what came back; ``None`` from either = the request goes the ordinary road, through
    the app itself. Neither may block, nor have done anything when it answers ``None``. The server may keep what came
    back and show it the bodies of later requests on the same connection whose heads differ in nothing but
    ``content-length``: whatever else may have changed since, a revoked token say, it looks at anew each time.
    """

    def prompt(self, scope: Scope) -> Prompt | None: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


def show_head(app: object, scope: Scope) -> Prompt | None:
    """Show a request's head to ``app``; its fault is logged, and answered with 500."""
    prompt: Callable[[Scope], Prompt | None] | None = getattr(app, "prompt", None)
    try:
        return None if prompt is None else prompt(scope)
    except Exception:
        log.exception("a prompt answer failed")
        return lambda _: _FAILED


def answer_body(prompt: Prompt, body: bytes) -> bytes | None:
    """What to write where ``prompt`` answers ``body``; its fault is logged, and answered with 500."""
    try:
        answer = prompt(body)
    except Exception:
        log.exception("a prompt answer failed")
        answer = _FAILED
    return None if answer is None else _written(answer)


class KnownHead:
    """A head that came before, without the digits of its length, and who answers the bodies that come with it.

    It holds for one connection, and only as long as nothing but such requests, each whole and alone in what was read,
    came there since.
    """

    __slots__ = ("_after", "_before", "_prompt")

    def __init__(self, before: bytes, after: bytes, prompt: Prompt) -> None:
        self._before = before
        self._after = after
        self._prompt = prompt

    @classmethod
    def of(cls, request: bytes, prompt: Prompt) -> KnownHead | None:
        """Learn from a plain POST that was read at once: HTTP/1.1, on a connection that is kept, nothing to negotiate.

        ``None`` where more was read than that, or where its length is written in a way that is not looked for.
        """
        end = request.find(_END) + 2
        found = _LENGTH.search(request, 0, end)
        if found is None or not request.startswith(b"POST ") or len(request) - end - 2 != int(found[1]):
            return None
        if request.count(b"\n", 0, end) != request.count(b"\r\n", 0, end):  # some take that for the end of a line
            return None
        return cls(request[: found.start(1)], request[found.end(1) : end + 2], prompt)

    def answer(self, data: bytes) -> bytes | None:
        """What to write where ``data`` is this head and a body, whole and alone, that is answered on the spot."""
        if not data.startswith(self._before):
            return None
        at = len(self._before)
        end = data.find(b"\r", at, at + _DIGITS + 1)
        digits = data[at:end] if end > 0 else b""
        if not digits.isdigit() or not data.startswith(self._after, end):
            return None
        body = data[end + len(self._after) :]
        return answer_body(self._prompt, body) if len(body) == int(digits) else None


@lru_cache(maxsize=64)
def _written(answer: PromptAnswer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(answer.body)}\r\n\r\n"
    )
    return head.encode() + answer.body
