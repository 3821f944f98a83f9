"""What stands before every HTTP app, whatever server runs it and whoever wrote it: plain ASGI.

The order of its answers: protocol (505), framing (400, 431), Host (400, 421), Origin and Sec-Fetch-Site (403),
content type (415), token (401), scope (403), body (413, 408). Sources: MCP 2025-11-25, basic/transports ("Security
Warning": Origin, binding) and basic/authorization (401 with WWW-Authenticate; no tokens in the query); RFC 9110, 9112.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ..hookspecs import (
    ASGIApp,
    Bind,
    HttpPolicy,
    Identities,
    Identity,
    Limits,
    Prompt,
    PromptAnswer,
    RequestRefused,
    ScopeRequired,
    TokenRequired,
)
from ..hookspecs.http_servers import Message, Receive, Scope, Send
from .eager import WouldWait, at_once, within

log = logging.getLogger(__name__)

Mask = Callable[[str], str]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
LOCAL_IDENTITY = Identity("mcp-client", frozenset({"call"}))
"""Who calls over loopback without a token (A5)."""

_MAX_HEADERS = 100
_MAX_HEADER_BYTES = 16 * 1024
_ONCE = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"authorization", b"origin", b"content-type", b"upgrade"}
)
_LENGTH_DIGITS = 18
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class _Refused(Exception):
    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, code: str = RequestRefused.code
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}
        self.code = code


@dataclass(frozen=True, slots=True)
class Guard:
    """Wraps ``app``. The identity that it found stands in ``scope["bascule.identity"]``."""

    app: ASGIApp
    policy: HttpPolicy
    hosts: frozenset[str]
    origins: frozenset[str]
    tokens_required: bool
    identities: Identities
    limits: Limits
    mask: Mask = str  # takes the secrets out of problem documents
    body_seconds: float = 10.0
    send_seconds: float = 15.0  # a reader that takes nothing for so long is gone

    @classmethod
    def around(
        cls, app: ASGIApp, bind: Bind, policy: HttpPolicy, identities: Identities, limits: Limits, mask: Mask = str
    ) -> Guard:
        """Derive from the bound address whom to answer; anything but loopback needs tokens."""
        loopback = bind.unix is not None or bind.host in LOOPBACK
        hosts = {_authority(host, bind.port) for host in (LOOPBACK if loopback else {bind.host})}
        hosts |= {host.lower() for host in policy.allowed_hosts}
        origins = {f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")}
        return cls(
            app,
            policy,
            frozenset(hosts),
            frozenset(origins | {origin.lower() for origin in policy.allowed_origins}),
            policy.tokens_required or not loopback,
            identities,
            limits,
            mask,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = self._check_request(scope)
            scope["bascule.identity"] = await self._identify(scope["path"], headers)
            body = _Body(receive, headers, self.limits.http_body_bytes, self.body_seconds)
            parting = b"upgrade" in headers  # nothing is upgraded here, and what follows is in no protocol for sure
        except _Refused as refusal:
            await _refuse(scope, refusal, send)
            return
        answer = _Answer(_parting(send) if parting else send, self.send_seconds, self.mask)
        try:
            await self.app(scope, body, answer)
        except _Refused as refusal:
            if not answer.started:
                await _refuse(scope, refusal, send)
        except Exception:
            if not answer.in_time:
                return  # who reads nothing is left
            if answer.started:
                raise  # the server breaks off what it can't end in order
            log.exception("an app broke on %r", f"{scope['method'][:20]} {scope['path'][:100]}")
            await _refuse(
                scope, _Refused(500, "a fault of Bascule's own; its log says more", None, "INTERNAL_ERROR"), send
            )

    def prompt(self, scope: Scope) -> Prompt | None:
        """Let the app answer on the spot (see ``PromptApp``) what passes here; all else goes the ordinary road."""
        ask: Callable[[Scope], Prompt | None] | None = getattr(self.app, "prompt", None)
        if ask is None:
            return None
        try:
            headers = self._check_request(scope)
            _check_length(headers, self.limits.http_body_bytes)
            identity = scope["bascule.identity"] = at_once(self._identify(scope["path"], headers))
        except (_Refused, WouldWait):
            return None  # the ordinary road asks again, and says why not
        answer = None if b"transfer-encoding" in headers else ask(scope)
        if answer is None:
            return None
        path, most = scope["path"], self.limits.http_body_bytes

        def answer_anyone(body: bytes) -> PromptAnswer | None:
            return answer(body) if len(body) <= most else None

        def answer_known(body: bytes) -> PromptAnswer | None:
            return answer_anyone(body) if self._is_still(identity, path, headers) else None

        return answer_known if b"authorization" in headers else answer_anyone

    def _is_still(self, identity: Identity | None, path: str, headers: dict[bytes, bytes]) -> bool:
        """Whether the token that came with a head still is that of ``identity``, with its scopes."""
        try:
            return at_once(self._identify(path, headers)) == identity
        except (_Refused, WouldWait):
            return False

    def _check_request(self, scope: Scope) -> dict[bytes, bytes]:
        if str(scope.get("http_version", "1.1")).startswith("2") and scope.get("scheme") == "http":
            raise _Refused(505, "cleartext HTTP/2 is not spoken here")
        headers = _read_headers(scope["headers"])
        _check_framing(headers, scope)
        if not scope["path"].startswith("/") or not scope.get("raw_path", b"/").startswith(b"/"):
            raise _Refused(400, "the request's target is no path")
        self._check_origin(headers)
        if scope["method"] in _WITH_BODY:
            _check_content_type(headers)
        return headers

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host")
        if host is None:
            raise _Refused(400, "the request names no host")
        if host.decode("latin-1").lower() not in self.hosts:
            raise _Refused(421, "this host is not served here; see allowed_hosts")
        origin = headers.get(b"origin")
        if origin is not None:
            if origin.decode("latin-1").lower() not in self.origins:
                raise _Refused(403, "this origin may not call; see allowed_origins")
        elif headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise _Refused(403, "requests of other sites are not answered")

    async def _identify(self, path: str, headers: dict[bytes, bytes]) -> Identity | None:
        scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        needed = self._scope_of(path)
        if not scheme:
            if path in self.policy.open_paths:
                return None
            if self.tokens_required or needed not in ("", *LOCAL_IDENTITY.scopes):
                raise _unauthorized("a bearer token is needed")
            return LOCAL_IDENTITY
        identity = await self.identities.verify(secret.strip()) if scheme.lower() == "bearer" else None
        if identity is None:
            raise _unauthorized("this token is not known, or was revoked", error="invalid_token")
        if needed and needed not in identity.scopes and path not in self.policy.open_paths:
            raise _Refused(
                403,
                f"this needs a token with the scope {needed}",
                {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{needed}"'},
                ScopeRequired.code,
            )
        return identity

    def _scope_of(self, path: str) -> str:
        """The scope of the longest prefix that ``path`` has; ``call`` where the policy says nothing."""
        prefixes = [prefix for prefix in self.policy.scopes if path.startswith(prefix)]
        return self.policy.scopes[max(prefixes, key=len)] if prefixes else "call"


class _Body:
    """The app's ``receive``: bounded in bytes and in time."""

    __slots__ = ("_deadline", "_left", "_receive", "_seconds", "_whole")

    def __init__(self, receive: Receive, headers: dict[bytes, bytes], limit: int, seconds: float) -> None:
        _check_length(headers, limit)
        self._receive = receive
        self._left = limit
        self._seconds = seconds
        self._whole = False
        self._deadline: float | None = None

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._seconds
        try:
            message = await within(self._deadline - loop.time(), self._receive())
        except TimeoutError:
            raise _Refused(408, "the request's body did not come in time", {"Connection": "close"}) from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_large(0)
        self._whole = not message.get("more_body", False)
        return message


class _Answer:
    """The app's ``send``: whoever does not read is left. A problem document goes out whole, without its secrets."""

    __slots__ = ("_mask", "_problem", "_seconds", "_send", "_text", "in_time", "started")

    def __init__(self, send: Send, seconds: float, mask: Mask) -> None:
        self._send = send
        self._seconds = seconds
        self._mask = mask
        self._problem: Message | None = None
        self._text = b""
        self.started = False
        self.in_time = True

    async def __call__(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start":
            if message["status"] >= 400 and _is_problem(message):
                self._problem = message
                return
        elif self._problem is not None:
            self._text += message.get("body", b"")
            if message.get("more_body", False):
                return
            start, self._problem = self._problem, None
            message = {"type": "http.response.body", "body": self._mask(self._text.decode("utf-8", "replace")).encode()}
            await self._pass(_of_length(start, len(message["body"])) if self._text else start)
        await self._pass(message)

    async def _pass(self, message: Message) -> None:
        try:
            await within(self._seconds, self._send(message))
        except TimeoutError:
            self.in_time = False
            raise


def _is_problem(start: Message) -> bool:
    return any(name.lower() == b"content-type" and b"problem+json" in value for name, value in start.get("headers", ()))


def _of_length(start: Message, length: int) -> Message:
    headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
    return {**start, "headers": [*headers, (b"content-length", str(length).encode())]}


def _read_headers(lines: Any) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    size = count = 0
    for name, value in lines:
        count += 1
        size += len(name) + len(value)
        if name in headers and name in _ONCE:
            raise _in_doubt(f"the header {name.decode('latin-1')} stands there twice")
        headers[name] = value
    if count > _MAX_HEADERS or size > _MAX_HEADER_BYTES:
        raise _Refused(431, "the request's headers are too large")
    return headers


def _check_length(headers: dict[bytes, bytes], limit: int) -> None:
    length = headers.get(b"content-length")
    if length is None:
        return
    if not length.isdigit():
        raise _in_doubt("the request's length is no number")
    if len(length) > _LENGTH_DIGITS or int(length) > limit:
        raise _too_large(limit)


def _check_framing(headers: dict[bytes, bytes], scope: Scope) -> None:
    """Refuse a message that two readers may end at two places (RFC 9112, 6.1 and 11.2); nothing behind it is read."""
    coding = headers.get(b"transfer-encoding")
    if coding is None:
        return
    if b"content-length" in headers:
        raise _in_doubt("a message has one length")
    if coding.lower() != b"chunked" or scope.get("http_version") == "1.0":
        raise _in_doubt("the only coding that is taken is chunked, of HTTP/1.1")


def _check_content_type(headers: dict[bytes, bytes]) -> None:
    kind = headers.get(b"content-type", b"").decode("latin-1").lower().split(";", 1)
    if kind[0].strip() != "application/json":
        bodiless = headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        if bodiless and not kind[0]:
            return
        raise _Refused(415, "only application/json is taken")


def _authority(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown.lower() if port in (0, 80) else f"{shown.lower()}:{port}"


def _unauthorized(detail: str, *, error: str | None = None) -> _Refused:
    challenge = {"WWW-Authenticate": f'Bearer error="{error}"' if error else "Bearer"}
    return _Refused(401, detail, challenge, TokenRequired.code)


def _in_doubt(detail: str) -> _Refused:
    return _Refused(400, detail, {"Connection": "close"})


def _parting(send: Send) -> Send:
    """Close the connection behind the answer."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return sent


def _too_large(limit: int) -> _Refused:
    return _Refused(413, f"a body may have {limit:,} bytes" if limit else "the body is too large")


async def _refuse(scope: Scope, refusal: _Refused, send: Send) -> None:
    peer, port = scope.get("client") or ("a local socket", 0)
    wanted = f"{scope['method'][:20]} {scope['path'][:100]}"
    log.warning("%r of %s:%s was refused, %d: %s", wanted, peer, port, refusal.status, refusal.detail)
    problem = {
        "type": f"urn:bascule:error:{refusal.code}",
        "title": HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "code": refusal.code,
        "detail": refusal.detail,
    }
    body = json.dumps(problem).encode()
    headers = {"Content-Type": "application/problem+json", "Content-Length": str(len(body)), **refusal.headers}
    await send(
        {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Receive, send: Send) -> None:
    """Apps here need no lifespan: what they hold is opened around the server."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
