"""Puts the app together: the front, and behind it Quart with every other operation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from quart import Quart, Response, request
from werkzeug.exceptions import HTTPException

from ...hookspecs import BasculeError, BridgeView, Identity, RequestRefused, ScopeRequired
from ...hookspecs.http_servers import ASGIApp, Receive, Scope, Send
from . import health, plugins, runs, tools
from .answers import Answer, encode, internal, refusal
from .front import Front
from .openapi import api_document
from .operations import Operation, Request, Rest
from .page import page
from .tool_document import ToolDocuments

log = logging.getLogger(__name__)

OPERATIONS: Sequence[Operation] = (*health.OPERATIONS, *plugins.OPERATIONS, *tools.OPERATIONS, *runs.OPERATIONS)
_CLOSE_SECONDS = 2.0


class RestApp:
    """The ASGI app behind the guard."""

    def __init__(self, front: Front, unfinished: Unfinished) -> None:
        self._front = front
        self._unfinished = unfinished

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._front(scope, receive, send)

    async def close(self) -> None:
        """End the streams, then wait for what was begun, within a bound."""
        await self._front.close()
        await self._unfinished.close()


class Unfinished:
    """What changes plugins goes on when whoever asked for it leaves: half a start is no start."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Answer]] = set()

    async def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        """Whoever left hears nothing of an error, but it is no news to the log either: plugins tell their own."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def build(bridge: BridgeView, roots: Sequence[Path]) -> RestApp:
    """Make the app of ``bridge``; plugins are installed from below ``roots``."""
    unfinished = Unfinished()
    return RestApp(
        Front(bridge, cast("ASGIApp", _framework(Rest(bridge, roots, ToolDocuments()), unfinished))), unfinished
    )


def _framework(rest: Rest, unfinished: Unfinished) -> Quart:
    app = Quart(__name__, static_folder=None, template_folder=None)
    app.config.update(MAX_CONTENT_LENGTH=None, BODY_TIMEOUT=None, RESPONSE_TIMEOUT=None)  # the guard has bounds
    app.url_map.merge_slashes = False
    documents = _documents(rest)
    for operation in OPERATIONS:
        rule = operation.path.replace("{", "<").replace("}", ">")
        view = documents.get(operation.id) or _view(operation, rest, unfinished)
        app.add_url_rule(rule, operation.id, view, methods=[operation.method], provide_automatic_options=False)
    app.register_error_handler(HTTPException, _refused)
    return app


View = Callable[..., Awaitable[Response]]


def _view(operation: Operation, rest: Rest, unfinished: Unfinished) -> View:
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
            return _response(await (work if operation.method == "GET" else unfinished.run(_as_coroutine(work))))
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


def _documents(rest: Rest) -> dict[str, View]:
    """What stays as it is while the bridge runs, made when it is first asked for."""

    @cache
    def document() -> dict[str, Any]:
        return api_document(OPERATIONS, rest.bridge.status().version, sorted(rest.bridge.converters))

    @cache
    def as_json() -> Answer:
        return Answer(encode(document()))

    @cache
    def as_page() -> Answer:
        return page(document())

    async def get_openapi() -> Response:
        return _response(as_json())

    async def get_page() -> Response:
        return _response(as_page())

    return {"get_openapi": get_openapi, "get_page": get_page}


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
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **answer.headers}
    response = Response(answer.body, answer.status, headers, content_type=answer.content_type)
    if answer.status == 204:
        del response.headers["Content-Type"]
    return response
