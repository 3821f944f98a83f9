"""Strict JSON-RPC 2.0 messages, read and written without I/O.

:func:`decode` reads one line and is where a stranger's bytes first become values, so it refuses whatever
two readers could understand differently: JSON that is not RFC 8259 in UTF-8 (no byte order mark, no NaN, no
lone surrogate, no number that a float can't hold), a ``jsonrpc`` member other than ``"2.0"``, an answer that
is both a result and an error, an id whose type was changed on the way. A repeated key is no such case here:
what goes on is encoded anew from the one value that was decoded, and of two equal keys that is the last.

What costs more than it shows is bounded (:data:`MAX_DEPTH`, :data:`MAX_ELEMENTS`, :data:`MAX_NAMES`,
:data:`MAX_DIGITS`, :data:`MAX_BATCH`); the length of a line is the affair of who frames it. Blank lines are no
messages: who reads lines drops them before.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NoReturn, TypeAlias, overload

import msgspec

from ..hookspecs.errors import McpProtocolError

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

MAX_DEPTH: Final = 64
"""Containers inside one another, the message itself included."""
MAX_ELEMENTS: Final = 200_000
"""Members, items and containers together: 2 MiB of ``[],`` would cost 22 to 36 times their size."""
MAX_NAMES: Final = 150_000
"""Names of members: as many as 2 MiB can hold, each another, would cost 17 to 26 times their size.

The densest lists of real tools have 160,000 elements and 135,000 names in 2 MiB.
"""
MAX_DIGITS: Final = 400
"""Digits in a row of one number: what reads an integer may take the square of its length."""
MAX_BATCH: Final = 100
"""Messages in one array (JSON-RPC batches, MCP 2025-03-26 only)."""


class Request(msgspec.Struct, frozen=True):
    """A call that wants an answer. ``params`` is None where the message holds none."""

    id: int | str
    method: str
    params: Any


class Notification(msgspec.Struct, frozen=True):
    """A call that gets no answer. ``params`` is as it came: an array or a number too."""

    method: str
    params: Any


class Response(msgspec.Struct, frozen=True):
    """The result of a request of ours: our ids are integers."""

    id: int
    result: Any


class ErrorResponse(msgspec.Struct, frozen=True):
    """The error that ended a request of ours. ``error`` is as it came, also where it is no object."""

    id: int
    error: Any


Message: TypeAlias = Request | Notification | Response | ErrorResponse

_read_object = msgspec.json.Decoder(dict[str, Any]).decode
_read_any = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder().encode


@overload
def decode(line: bytes, *, batch: Literal[False] = False) -> Message: ...
@overload
def decode(line: bytes, *, batch: bool) -> Message | list[Message | McpProtocolError]: ...
def decode(line: bytes, *, batch: bool = False) -> Message | list[Message | McpProtocolError]:
    """Read one message, or with ``batch`` also an array of 1 to 100 of them, where one that is none is its fault.

    Raises McpProtocolError; :func:`error_code` tells bad JSON from a bad message.
    """
    if len(line) > MAX_DIGITS:
        _check_bulk(line)
    try:
        value = _read_any(line) if batch else _read_object(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise McpProtocolError(f"not a JSON-RPC message: {error}") from error
    if _may_be_deep(line):
        _check_depth(value)
    if batch and type(value) is list:
        return _batch(value)
    return _message(value)


def error_code(fault: McpProtocolError) -> int:
    """The JSON-RPC error code for a line that :func:`decode` refused."""
    cause = fault.__cause__
    # A ValidationError is well-formed JSON of another type than an object.
    readable = cause is None or isinstance(cause, msgspec.ValidationError)
    return INVALID_REQUEST if readable else PARSE_ERROR


def encode(value: object) -> bytes:
    """Write any JSON value as one line without its newline; a float that is not finite becomes null.

    Raises ValueError where ``value`` is no JSON value, as do the writers below.
    """
    try:
        return _write(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a JSON value: {error}") from error


def encoded(value: object) -> bytes | None:
    """Write any value as :func:`encode` does; ``None`` where it is no JSON, or a number too large for it."""
    try:
        return encode(value)
    except (ValueError, OverflowError):
        return None


def encode_request(id: int | str, method: str, params: object = None) -> bytes:
    """Write a request; no ``params`` member for None."""
    return encode(_call({"jsonrpc": "2.0", "id": id, "method": method}, params))


def encode_notification(method: str, params: object = None) -> bytes:
    """Write a notification; no ``params`` member for None."""
    return encode(_call({"jsonrpc": "2.0", "method": method}, params))


def encode_result(id: int | str, result: object) -> bytes:
    """Write the answer to a request of the peer."""
    return encode({"jsonrpc": "2.0", "id": id, "result": result})


def encode_error(id: int | str | None, code: int, message: str, data: object = None) -> bytes:
    """Write an error answer; id None where the request's own could not be read (JSON-RPC 2.0, section 5)."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return encode({"jsonrpc": "2.0", "id": id, "error": error})


def _call(message: dict[str, object], params: object) -> dict[str, object]:
    if params is not None:
        message["params"] = params
    return message


def _batch(values: list[Any]) -> list[Message | McpProtocolError]:
    if not 1 <= len(values) <= MAX_BATCH:
        _refuse(f"a batch holds 1 to {MAX_BATCH} messages, not {len(values)}")
    return [_member(value) for value in values]


def _member(value: Any) -> Message | McpProtocolError:
    """Read one of many: the others are served all the same (JSON-RPC 2.0, section 6)."""
    try:
        return _message(value)
    except McpProtocolError as fault:
        return fault


def _message(value: Any) -> Message:
    if type(value) is not dict:
        _refuse("a message is an object")
    if value.get("jsonrpc") != "2.0":
        _refuse('the member "jsonrpc" must be "2.0"')
    return _incoming_call(value) if "method" in value else _answer(value)


def _incoming_call(value: dict[str, Any]) -> Request | Notification:
    method = value["method"]
    if type(method) is not str:
        _refuse('"method" must be a string')
    if "result" in value or "error" in value:
        _refuse('a message with a "method" has no "result" and no "error"')
    if "id" not in value:
        return Notification(method, value.get("params"))
    id = value["id"]
    # MCP narrows JSON-RPC here: no null, and no number with a fraction (1.0 would be equal to 1).
    if type(id) is not int and type(id) is not str:
        _refuse("the id of a request must be an integer or a string")
    return Request(id, method, value.get("params"))


def _answer(value: dict[str, Any]) -> Response | ErrorResponse:
    has_result = "result" in value
    if has_result == ("error" in value):
        _refuse('an answer has either a "result" or an "error"')
    id = value.get("id")
    # Compared by type: True == 1 == 1.0 would find the call of somebody else in a dict.
    if type(id) is not int:
        _refuse("the id of an answer must be the integer that the request had")
    return Response(id, value["result"]) if has_result else ErrorResponse(id, value["error"])


# The end of a string is optional and the rest possessive, so that each byte is looked at once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))
_SAMPLE_STEP: Final = 100
_SEARCHED: Final = 4_096
_DIGITS_IN_SAMPLE = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS // _SAMPLE_STEP))


def _check_bulk(line: bytes) -> None:
    if len(line) > MAX_NAMES and _excess(line):
        # A long text may be full of commas: only now is it worth leaving the strings out.
        excess = _excess(_STRING.sub(b"", line))
        if excess:
            _refuse(excess)
    # Every run of 401 digits shows 4 of them in a row when each 100th byte is looked at.
    suspicious = _DIGITS_IN_SAMPLE.search(line[::_SAMPLE_STEP])
    if suspicious and _LONG_NUMBER.search(line) and _LONG_NUMBER.search(_STRING.sub(b"", line)):
        _refuse(f"a number has more than {MAX_DIGITS} digits")


def _excess(text: bytes) -> str | None:
    elements = text.count(b",") + text.count(b"[") + text.count(b"{")
    if elements > MAX_ELEMENTS:
        return f"{elements:,} elements are more than {MAX_ELEMENTS:,}"
    names = text.count(b":")
    return f"{names:,} names are more than {MAX_NAMES:,}" if names > MAX_NAMES else None


def _may_be_deep(line: bytes) -> bool:
    """Whether it has as many brackets as make it too deep. A long text is searched: much faster than to count."""
    if len(line) < _SEARCHED:
        return line.count(b"[") + line.count(b"{") > MAX_DEPTH
    found = 0
    for bracket in b"[", b"{":
        at = line.find(bracket)
        while at >= 0:
            found += 1
            if found > MAX_DEPTH:
                return True
            at = line.find(bracket, at + 1)
    return False


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return
    _refuse(f"more than {MAX_DEPTH} containers inside one another")


def _refuse(what: str) -> NoReturn:
    raise McpProtocolError(f"not a JSON-RPC message: {what}")
