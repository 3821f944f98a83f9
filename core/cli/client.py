"""Talks to a running bridge over its REST API: bounded in time and size, following nothing anywhere else."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from ...hookspecs import BasculeError, BridgeUnreachable, Progress, SettingsInvalid, ToolCallFailed, ToolResult
from ...hookspecs import errors as known_errors

_MOST_BYTES = 64 * 1024 * 1024
_SECONDS = 30.0
LONG_SECONDS = 700.0
"""For what may start a server (300 s, see ``limits``) after another start of it was waited for."""

CALL_SECONDS = 86_400.0
"""For a call: how long it may take is the bridge's affair."""


class Api:
    """The REST API at ``url``; every method raises what the bridge says, or ``BridgeUnreachable``."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsInvalid(f"{url!r} is no address of a bridge", hint="such as --url http://127.0.0.1:7860")
        self.url = url.rstrip("/")
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        try:
            self._place = (parts.hostname, parts.port)
        except ValueError as error:
            raise SettingsInvalid(f"{url!r} has no proper port: {error}") from error
        if token is not None and not (token.isascii() and token.isprintable()):
            raise SettingsInvalid("the token has characters that none has", hint="give it as it was printed")
        self._prefix = parts.path.rstrip("/")
        self._token = token

    def get(self, path: str) -> Any:
        return self.send("GET", path)

    def send(self, method: str, path: str, body: Any = None, *, seconds: float = _SECONDS) -> Any:
        """Return the answer's JSON, ``None`` where it has no body."""
        with self._answer(method, path, body, seconds, {"Accept": "application/json"}) as answer:
            return _json(_read(answer), self.url)

    def call(
        self, tool: str, arguments: Mapping[str, Any], run: str, progress: Callable[[Progress], None]
    ) -> dict[str, Any]:
        """Call a tool under ``run``; returns ``output``, ``content``, ``failed`` and ``trace_id``."""
        headers = {"Accept": "text/event-stream, application/json", "Bascule-Run": run}
        with self._answer("POST", f"/api/tools/{quoted(tool)}/call", dict(arguments), CALL_SECONDS, headers) as answer:
            if not answer.headers.get_content_type().endswith("event-stream"):
                return dict(_json(_read(answer), self.url))
            for name, data in _events(answer, self.url):
                if name == "progress":
                    progress(Progress(data["progress"], data.get("total"), data.get("message")))
                elif name == "error":
                    raise error_from(data, 500)
                elif name == "result":
                    return dict(data)
        raise BridgeUnreachable("the bridge broke off before there was a result", where=self.url)

    @contextmanager
    def _answer(
        self, method: str, path: str, body: Any, seconds: float, headers: dict[str, str]
    ) -> Iterator[HTTPResponse]:
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        if method != "GET":
            headers["Content-Type"] = "application/json"
        host, port = self._place
        try:
            with closing(self._kind(host, port, timeout=seconds)) as connection:
                connection.request(method, self._prefix + path, data, headers)
                answer = connection.getresponse()
                if answer.status >= 300:
                    raise error_from(_json(_read(answer), self.url), answer.status)
                yield answer
        except (OSError, HTTPException, UnicodeError) as error:
            text = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
            hint = "does it still run? See bascule status, or name it with --url and --token"
            raise BridgeUnreachable(f"the bridge can't be asked: {text}", where=self.url, hint=hint) from error


def quoted(name: str) -> str:
    """``name`` as one part of a path."""
    return quote(name, safe="")


def error_from(problem: Any, status: int) -> BasculeError:
    """The error that a problem document (RFC 9457) tells of, as the same class that it was over there."""
    shown = problem if isinstance(problem, dict) else {}
    code = str(shown.get("code") or "BASCULE_ERROR")
    kind = _kinds().get(code, BasculeError)
    error = kind.__new__(kind)
    told = str(shown.get("detail") or f"the bridge answered {status}")
    BasculeError.__init__(error, told, where=_text(shown.get("where")), hint=_text(shown.get("hint")))
    error.__dict__.update(code=code, status=status, trace_id=_text(shown.get("trace_id")))
    error.__dict__.update(problems=tuple(shown.get("errors") or ()), difference=(), result=None)
    if isinstance(error, ToolCallFailed) and "content" in shown:
        error.result = ToolResult(shown.get("output"), shown["content"], True, trace_id=error.trace_id)
    return error


def _kinds() -> dict[str, type[BasculeError]]:
    """Every error of ours by its code; of two with one code the first will do."""
    found: dict[str, type[BasculeError]] = {}
    for _, kind in inspect.getmembers(known_errors, inspect.isclass):
        if issubclass(kind, BasculeError) and "code" in vars(kind):
            found.setdefault(kind.code, kind)
    return found


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _read(answer: HTTPResponse) -> bytes:
    data = answer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise HTTPException(f"its answer takes more than {_MOST_BYTES:,} bytes")
    return data


def _json(data: bytes, url: str) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BridgeUnreachable("what answers there is no bridge", where=url, hint="is the port right?") from error


def _events(answer: HTTPResponse, url: str) -> Iterator[tuple[str, Any]]:
    """Read server-sent events as the bridge writes them: one line of ``data`` each."""
    name = ""
    deadline = time.monotonic() + CALL_SECONDS
    while time.monotonic() < deadline and (line := answer.readline(_MOST_BYTES)):
        word, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
        if word == "event":
            name = value
        elif word == "data":
            yield name, _json(value.encode(), url)
