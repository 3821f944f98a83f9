"""What goes out: JSON of our values, and problems (RFC 9457) of our errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import PurePath
from typing import Any

import msgspec

from ...hookspecs import BasculeError, CallError, ScopeRequired, ToolCallFailed
from ...hookspecs.http_servers import Send

JSON = "application/json"
PROBLEM = "application/problem+json"
TRACE_HEADER = "Bascule-Trace"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Of every answer but those of calls and events."""


def _other(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


encode = msgspec.json.Encoder(enc_hook=_other).encode


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. ``value`` becomes JSON, or is sent as it is where it is ``bytes``; ``None`` = no body."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON

    @property
    def body(self) -> bytes:
        if self.value is None:
            return b""
        return self.value if isinstance(self.value, bytes) else encode(self.value)


def phrase(status: int) -> str:
    """HTTP's own words for ``status``."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Client Closed Request" if status == 499 else "Error"


def problem(error: BasculeError) -> dict[str, Any]:
    """What anyone may see of ``error``; a tool that failed adds its own answer in the words of a success."""
    shown: dict[str, Any] = {
        "type": f"urn:bascule:error:{error.code}",
        "title": phrase(error.status),
        "status": error.status,
        "code": error.code,
        "detail": error.message,
    }
    found: dict[str, Any] = {"hint": error.hint, "where": error.where, "errors": _places(error)}
    if isinstance(error, CallError):
        found["trace_id"] = error.trace_id
    if isinstance(error, ToolCallFailed) and error.result is not None:
        found |= {"output": error.result.output, "content": error.result.content, "failed": True}
    return shown | {key: value for key, value in found.items() if value is not None}


def _places(error: BasculeError) -> list[dict[str, Any]] | None:
    """Each fault with the place where it stands, as RFC 9457 has it: the words are in ``detail``."""
    problems = getattr(error, "problems", ())
    return [{("detail" if key == "problem" else key): each[key] for key in each} for each in problems] or None


def refusal(error: BasculeError) -> Answer:
    """The answer that ``error`` becomes."""
    headers = {}
    if isinstance(error, ScopeRequired):
        headers["WWW-Authenticate"] = 'Bearer error="insufficient_scope"'
    if isinstance(error, CallError) and error.trace_id is not None:
        headers[TRACE_HEADER] = error.trace_id
    return Answer(problem(error), error.status, headers, PROBLEM)


def internal() -> Answer:
    """A fault of ours: the log has it, the caller only learns that."""
    shown = {"type": "urn:bascule:error:INTERNAL_ERROR", "title": phrase(500), "status": 500, "code": "INTERNAL_ERROR"}
    return Answer({**shown, "detail": "a fault of Bascule's own; its log says more"}, 500, {}, PROBLEM)


async def send_answer(send: Send, answer: Answer) -> None:
    """Send ``answer`` as ASGI messages."""
    body = answer.body
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers += [(b"content-type", answer.content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
