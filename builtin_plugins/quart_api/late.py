"""An app that is made when it is first asked for something."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...hookspecs.http_servers import ASGIApp, Receive, Scope, Send
from .answers import internal, send_answer

log = logging.getLogger(__package__)

_CLOSE_SECONDS = 2.0


class Late:
    """Made in a thread, so that calls go on meanwhile; what is asked until then waits for the one app.

    Where ``make`` fails, those who waited are told of a fault of ours, and the next request tries again.
    """

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._app: ASGIApp | None = None
        self._making: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            if self._making is None:
                self._making = asyncio.create_task(self._made())
            await asyncio.shield(self._making)  # whoever leaves leaves it to the others
        if self._app is None:
            await send_answer(send, internal())
        else:
            await self._app(scope, receive, send)

    async def close(self) -> None:
        """Wait for what is being made, within a bound: a thread can't be broken off."""
        if self._making is not None:
            await asyncio.wait([self._making], timeout=_CLOSE_SECONDS)

    async def _made(self) -> None:
        try:
            self._app = await asyncio.to_thread(self._make)
        except Exception:
            log.exception("the REST API's framework could not be loaded")
        finally:
            self._making = None
