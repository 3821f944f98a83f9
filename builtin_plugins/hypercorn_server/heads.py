"""Requests on Hypercorn that are answered without its parser: those whose head came before on their connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h11 import IDLE
from h11 import Connection as Parser

from ...hookspecs import KnownHead, show_head

if TYPE_CHECKING:
    from hypercorn.asyncio.tcp_server import TCPServer

    from .connection import Connection, Running

_MOST_BYTES = 32 * 1024  # of a request that a head is learned from
_NEGOTIATING = frozenset({b"connection", b"expect", b"upgrade", b"transfer-encoding"})


class Heads:
    """Answers requests whose head came before. ``server`` is the connection as Hypercorn has it.

    A head is learned from a request that Hypercorn took for one, whole and alone in what was read, and was done with
    when the next one came.
    """

    __slots__ = ("_begun", "_connection", "_known", "_last", "_running", "_server")

    def __init__(self, running: Running, connection: Connection, server: TCPServer) -> None:
        self._running = running
        self._connection = connection
        self._server = server
        self._known: KnownHead | None = None
        self._last: bytes | None = None  # what was read, where it may be a request that a head is learned from
        self._begun = 0

    def answered(self, data: bytes) -> bool:
        """Whether that was all; else Hypercorn reads ``data``."""
        if self._last is not None:
            self._known = self._learned(self._last)
            self._want(None)
        if self._known is not None:
            answer = self._known.answer(data) if self._connection.has_room() else None
            if answer is not None:
                self._connection.write(answer)
                return True
            self._known = None
        if data.startswith(b"POST ") and len(data) < _MOST_BYTES and self._at_rest():
            self._want(data)
        return False

    def _want(self, request: bytes | None) -> None:
        self._last, self._begun = request, self._running.begun
        self._running.wanted, self._running.scope = request is not None, None

    def _learned(self, request: bytes) -> KnownHead | None:
        running = self._running
        scope = running.scope
        if running.begun != self._begun + 1 or not self._at_rest() or scope["http_version"] != "1.1":
            return None
        if any(name in _NEGOTIATING for name, _ in scope["headers"]):
            return None
        prompt = show_head(running.app, scope)
        return None if prompt is None else KnownHead.of(request, prompt)

    def _at_rest(self) -> bool:
        """Whether the connection owes no answer, and all that came was read."""
        parser: Any = getattr(self._server.protocol.protocol, "connection", None)
        return (
            isinstance(parser, Parser)
            and parser.our_state is IDLE
            and parser.their_state is IDLE
            and not parser.trailing_data[0]
            and self._running.requests == 0
        )
