"""Quart, with every operation that is not answered before it. Imported when the first of them is asked for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast

from quart import Quart, Response, request
from werkzeug.exceptions import HTTPException

from ...hookspecs import BasculeError, Identity, RequestRefused, ScopeRequired
from ...hookspecs.http_servers import ASGIApp
from .answers import HEADERS, Answer, internal, refusal
from .operations import Operation, Request, Rest

log = logging.getLogger(__package__)  # there before: masking reaches no logger that is made after the way in was opened

View = Callable[..., Awaitable[Response]]
Finish = Callable[[Coroutine[Any, Any, Answer]], Awaitable[Answer]]
"""Does work to its end, also where whoever asked for it leaves."""


def make(operations: Sequence[Operation], rest: Rest, finish: Finish) -> ASGIApp:
    """Make the app of ``operations``."""
    app = Quart(log.name, static_folder=None, template_folder=None)
    app.config.update(MAX_CONTENT_LENGTH=None, BODY_TIMEOUT=None, RESPONSE_TIMEOUT=None)  # the guard has bounds
    app.url_map.merge_slashes = False
    for operation in operations:
        rule = operation.path.replace("{", "<").replace("}", ">")
        view = _view(operation, rest, finish)
        app.add_url_rule(rule, operation.id, view, methods=[operation.method], provide_automatic_options=False)
    app.register_error_handler(HTTPException, _refused)
    return cast("ASGIApp", app)


def _view(operation: Operation, rest: Rest, finish: Finish) -> View:
    handler = operation.handler

    async def view(**path: str) -> Response:
        if handler is None:  # the front answers this, but for names that it lets through
            return _response(refusal(_no_path()))
        try:
            identity: Identity | None = request.scope["bascule.identity"]  # type: ignore[typeddict-item]
            _admit(operation, identity)
            body = cast("bytes", await request.get_data())
            wanted = Request(path, request.args, body, identity, request.remote_addr or "a local socket")
            work = handler(rest, wanted)
            return _response(await (work if operation.method == "GET" else finish(_as_coroutine(work))))
        except BasculeError as error:
            return _response(refusal(error))
        except HTTPException:
            raise
        except Exception:
            log.exception("%s broke", operation.id)
            return _response(internal())

    return view


async def _as_coroutine(work: Awaitable[Answer]) -> Answer:
    return await work


def _admit(operation: Operation, identity: Identity | None) -> None:
    if operation.scopes and (identity is None or not operation.scopes & identity.scopes):
        raise ScopeRequired(f"this needs a token with the scope {' or '.join(sorted(operation.scopes))}")


def _no_path() -> RequestRefused:
    return RequestRefused("there is nothing at this path", status=404, hint="see /openapi.json")


async def _refused(error: HTTPException) -> Response:
    """What Quart refuses: no such path, no such method there."""
    if error.code == 404:
        return _response(refusal(_no_path()))
    answer = _response(refusal(RequestRefused(error.name.lower(), status=error.code or 400, hint="see /openapi.json")))
    for name, value in error.get_headers():
        if name.lower() == "allow":
            answer.headers["Allow"] = value
    return answer


def _response(answer: Answer) -> Response:
    headers = {**HEADERS, **answer.headers}
    response = Response(answer.body, answer.status, headers, content_type=answer.content_type)
    if answer.status == 204:
        del response.headers["Content-Type"]
    return response
