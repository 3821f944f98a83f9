"""An operation of the API: what it takes, what it answers, which errors it has, and the handler that does it.

A handler's docstring is the operation's description: its first line is the summary.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from ...hookspecs import BasculeError, BridgeView, Caller, Identity, RequestInvalid, RequestRefused
from .answers import JSON, Answer

if TYPE_CHECKING:
    from .own_document import OwnDocument
    from .tool_document import ToolDocuments

BodyT = TypeVar("BodyT", bound=BaseModel)

OPEN: frozenset[str] = frozenset()
"""Answered without a token."""
READ = frozenset({"read"})
ADMIN = frozenset({"admin"})
CALL = frozenset({"call"})
READ_OR_CALL = READ | CALL

PLATFORM = "rest"
_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Rest:
    """What handlers work on. ``roots`` are the directories that plugins may be installed from."""

    bridge: BridgeView
    roots: Sequence[Path]
    documents: ToolDocuments
    own: OwnDocument


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``path`` and ``query`` are decoded, ``identity`` is ``None`` where no token is needed."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    identity: Identity | None
    address: str

    @property
    def caller(self) -> Caller:
        return caller_of(self.identity, self.address)

    @property
    def owner(self) -> str:
        """The name of the token, to whom runs belong."""
        return "" if self.identity is None else self.identity.name

    def parsed(self, model: type[BodyT]) -> BodyT:
        """The body as a ``model``; an empty one is ``{}``. Raises ``RequestRefused`` or ``RequestInvalid``."""
        try:
            return model.model_validate(decode_json(self.body), strict=True)
        except ValidationError as error:
            raise _invalid(error) from None

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 1 to ``most`` of the query; raises ``RequestInvalid``."""
        text = self.query.get(name, str(default))
        if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most:
            return int(text)
        problem = f"must be a whole number from 1 to {most}"
        raise RequestInvalid(f"{name} {problem}", problems=[{"pointer": f"?{name}", "problem": problem}])


Handler = Callable[[Rest, Request], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query."""

    name: str
    description: str
    schema: Mapping[str, Any]


RUN_HEADER = Parameter("Bascule-Run", "the run that the call belongs to", {"type": "string", "minLength": 1})


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path. ``scopes``: any of them will do. ``answers`` is a type, ``None`` where there is no body.

    ``handler`` is ``None`` where the front answers. An error with another status than its class has is a pair; ``also``
    is a further status of the same answer; ``links`` name operations that take something of it: id, parameter, place.
    """

    id: str
    method: str
    path: str
    tag: str
    scopes: frozenset[str]
    text: str
    answers: Any = None
    status: int = 200
    content_type: str = JSON
    body: type[BaseModel] | None = None
    body_schema: Mapping[str, Any] | None = None
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    errors: tuple[type[BasculeError] | tuple[type[BasculeError], int], ...] = ()
    example: Any = None
    body_example: Any = None
    traced: bool = False
    also_streams: bool = False
    also: tuple[int, str] | None = None
    links: tuple[tuple[str, str, str], ...] = ()
    handler: Handler | None = None

    @property
    def summary(self) -> str:
        return self.text.partition("\n")[0].rstrip(".")

    @property
    def takes_body(self) -> bool:
        return self.body is not None or self.body_schema is not None


def operation(method: str, path: str, tag: str, scopes: frozenset[str], **more: Any) -> Callable[[Handler], Operation]:
    """Make an operation of a handler."""

    def made(handler: Handler) -> Operation:
        name = getattr(handler, "__name__", "")
        return Operation(name, method, path, tag, scopes, getdoc(handler) or "", handler=handler, **more)

    return made


def operations_of(module: Mapping[str, Any]) -> list[Operation]:
    """The operations of a module, by its ``globals()``."""
    return [value for value in module.values() if isinstance(value, Operation)]


def caller_of(identity: Identity | None, address: str) -> Caller:
    """Who calls: all connections of one token from one address are one caller."""
    user = "" if identity is None else identity.name
    return Caller(PLATFORM, user, PLATFORM, PLATFORM, identity, address)


def decode_json(body: bytes) -> Any:
    """Raise ``RequestRefused`` where it is none."""
    if not body:
        return {}
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestRefused(f"the body is no JSON: {str(error)[:200]}", hint="send a JSON object") from None


_decode = msgspec.json.Decoder().decode


def _invalid(error: ValidationError) -> RequestInvalid:
    problems = [
        {"pointer": "".join(f"/{_escape(key)}" for key in each["loc"]), "problem": each["msg"][:300]}
        for each in error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_PROBLEMS]
    ]
    shown = "; ".join(f"{each['pointer'] or 'the body'}: {each['problem']}" for each in problems)
    return RequestInvalid(f"the body does not fit: {shown}", problems=problems)


def _escape(key: object) -> str:
    return str(key)[:100].replace("~", "~0").replace("/", "~1")
