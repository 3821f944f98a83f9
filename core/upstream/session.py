"""The client's side of an MCP session, without I/O: lines in, events out; requests in, bytes out.

========================  ==========================================================================
what comes in             what it means
========================  ==========================================================================
answer to an open id      ``Response`` or ``ErrorResponse``; the id is closed
answer to a cancelled id  dropped, for the last 32,768 of them (2025-11-25, basic/utilities/cancellation)
answer to any other id    fault
progress for an open id   ``Progressed``; for any other token: dropped
message (logging)         ``Logged``
tools/list_changed        ``ToolListChanged``
any other notification    dropped
ping                      ``Reply`` with an empty result
any other request         ``Reply`` with -32601: we declare no capability that would allow one
blank line                dropped
anything else             fault
========================  ==========================================================================

A fault raises ``McpProtocolError``: the connection can't be trusted any more. What comes unasked counts against a rate
(200 a second after a burst of 2,000), beyond which progress is dropped and the rest is a fault.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...hookspecs import JsonObject, Limits, LogMessage, McpProtocolError, Progress
from ..codecs import legacy
from ..jsonrpc import (
    METHOD_NOT_FOUND,
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

_CANCELLED_KEPT = 32_768
"""More than wait for a server at once: its queue's 4 MiB hold fewer calls. A client that leaves many slow calls behind
must not make their late answers a fault, which ends the plugin for everyone."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """A sign of life for the open request ``id``."""

    id: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Logged:
    """What the server says beside its answers; nothing in it tells for which request."""

    message: LogMessage


@dataclass(frozen=True, slots=True)
class ToolListChanged:
    """The server says that its tools are others now."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What we owe the server for a request of its own."""

    message: bytes


Event = Response | ErrorResponse | Progressed | Logged | ToolListChanged | Reply

_ANSWERS = (Response, ErrorResponse)
_NOTHING: tuple[Event, ...] = ()
_TOOLS_CHANGED: tuple[Event, ...] = (ToolListChanged(),)


class _Rate:
    """A token bucket over what a server may send unasked."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._per_second = limits.notifications_per_second
        self._burst = float(limits.notifications_burst)
        self._left = self._burst
        self._clock = clock
        self._at = clock()

    def spend(self) -> bool:
        """Take one; ``False`` where none is left."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Session:
    """One connection's requests and what became of them. ``clock`` gives seconds, monotonic."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._last_id = 0
        self._open: set[int] = set()
        self._cancelled: OrderedDict[int, None] = OrderedDict()
        self._rate = _Rate(limits, clock)
        self.batching = False
        self.dropped = 0

    # --- out ------------------------------------------------------------------------------------------

    def request(self, method: str, params: JsonObject | None = None) -> tuple[int, bytes]:
        """Open a request: its id and its message."""
        request_id = self._next_id()
        message = encode_request(request_id, method, params)
        self._open.add(request_id)
        return request_id, message

    def call(self, name: str, arguments: bytes) -> tuple[int, bytes]:
        """Open a ``tools/call`` with the JSON of its arguments; its id is its progress token, unique by nature."""
        request_id = self._last_id = self._last_id + 1
        self._open.add(request_id)
        return request_id, legacy.call_message(request_id, name, arguments)

    def cancel(self, request_id: int, reason: str) -> bytes | None:
        """Close an open request and say so to the server; ``None`` where it was answered already."""
        if request_id not in self._open:
            return None
        self._open.remove(request_id)
        self._cancelled[request_id] = None
        if len(self._cancelled) > _CANCELLED_KEPT:
            self._cancelled.popitem(last=False)
        return encode_notification("notifications/cancelled", legacy.cancelled_params(request_id, reason))

    def forget(self, request_id: int) -> None:
        """Close a request that was never sent."""
        self._open.discard(request_id)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # --- in -------------------------------------------------------------------------------------------

    def receive(self, line: bytes) -> Sequence[Event]:
        """Take one line; raise ``McpProtocolError`` on a fault."""
        if not line or line.isspace():
            self._unasked("blank lines")
            return _NOTHING
        message = decode(line, batch=self.batching)
        if type(message) is Response and message.id in self._open:  # what nearly all lines are
            self._open.remove(message.id)
            return (message,)
        if isinstance(message, list):
            return [event for each in message for event in self._take(each)]
        return self._take(message)

    def _take(self, message: Message | McpProtocolError) -> Sequence[Event]:
        if isinstance(message, McpProtocolError):
            raise message
        if isinstance(message, _ANSWERS):
            return self._answer(message)
        if isinstance(message, Notification):
            return self._notification(message)
        return self._request(message)

    def _answer(self, message: Response | ErrorResponse) -> Sequence[Event]:
        if message.id in self._open:
            self._open.remove(message.id)
            return (message,)
        if message.id in self._cancelled:
            del self._cancelled[message.id]
            self.dropped += 1
            return _NOTHING
        raise McpProtocolError(f"the server answered a request that is not open (id {message.id})")

    def _notification(self, message: Notification) -> Sequence[Event]:
        if message.method == "notifications/progress":
            return self._progress(message.params)
        if message.method == "notifications/message":
            return self._log(message.params)
        self._unasked("notifications")
        if message.method == "notifications/tools/list_changed":
            return _TOOLS_CHANGED
        return _NOTHING

    def _log(self, params: Any) -> Sequence[Event]:
        self._spend("log messages")
        logged = legacy.read_log(params)
        if logged is None:
            self.dropped += 1
            return _NOTHING
        return (Logged(logged),)

    def _progress(self, params: Any) -> Sequence[Event]:
        read = legacy.read_progress(params)
        if not self._rate.spend() or read is None or read[0] not in self._open:
            self.dropped += 1
            return _NOTHING
        return (Progressed(*read),)

    def _request(self, message: Request) -> Sequence[Event]:
        self._unasked("requests")
        if message.method == "ping":
            return (Reply(encode_result(message.id, {})),)
        return (Reply(encode_error(message.id, METHOD_NOT_FOUND, f"Method not found: {message.method[:100]}")),)

    def _unasked(self, what: str) -> None:
        self.dropped += 1
        self._spend(what)

    def _spend(self, what: str) -> None:
        if not self._rate.spend():
            raise McpProtocolError(f"the server floods us with {what}")
