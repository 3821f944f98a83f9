"""What anyone may ask, as bare ASGI: health, readiness and the API's own documents.

A probe that looks every few seconds shall not be why a framework is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ...hookspecs.http_servers import ASGIApp, Receive, Scope, Send
from .answers import HEADERS, Answer, internal, send_answer
from .operations import Handler, Operation, Request, Rest
from .streams import read

log = logging.getLogger(__package__)


class OpenPaths:
    """The app behind the front. ``framework`` answers what it does not."""

    def __init__(self, operations: Sequence[Operation], rest: Rest, framework: ASGIApp) -> None:
        self._rest = rest
        self._framework = framework
        self._handlers = {
            operation.path: operation.handler
            for operation in operations
            if operation.handler and operation.method == "GET" and not operation.scopes
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope["path"]) if scope["method"] == "GET" else None
        if handler is None:
            await self._framework(scope, receive, send)
        elif await read(receive) is not None:
            answer = await self._answer(handler, scope["path"])
            await send_answer(send, replace(answer, headers={**HEADERS, **answer.headers}))

    async def _answer(self, handler: Handler, path: str) -> Answer:
        try:
            return await handler(self._rest, Request({}, {}, b"", None, ""))
        except Exception:
            log.exception("%s broke", path)
            return internal()
