"""Puts the app together: the front, behind it what anyone may ask, and behind that Quart with every other operation.

Quart is imported and its app made at the first request for one of those. Many a bridge never has any: agents call and
probes look after it, and it would hold ten MiB for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from ...hookspecs import BridgeView
from ...hookspecs.http_servers import ASGIApp, Receive, Scope, Send
from . import health, plugins, runs, tools
from .answers import Answer
from .front import Front
from .late import Late
from .open_paths import OpenPaths
from .operations import Operation, Rest
from .own_document import OwnDocument
from .tool_document import ToolDocuments

OPERATIONS: Sequence[Operation] = (*health.OPERATIONS, *plugins.OPERATIONS, *tools.OPERATIONS, *runs.OPERATIONS)
_CLOSE_SECONDS = 2.0


class RestApp:
    """The ASGI app behind the guard."""

    def __init__(self, front: Front, framework: Late, unfinished: Unfinished) -> None:
        self._front = front
        self._framework = framework
        self._unfinished = unfinished

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._front(scope, receive, send)

    async def close(self) -> None:
        """End the streams, then wait for what was begun, within a bound."""
        await self._front.close()
        await self._unfinished.close()
        await self._framework.close()


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
    rest = Rest(bridge, roots, ToolDocuments(), OwnDocument(OPERATIONS, bridge))
    unfinished = Unfinished()
    framework = Late(lambda: _framework(rest, unfinished))
    return RestApp(Front(bridge, OpenPaths(OPERATIONS, rest, framework)), framework, unfinished)


def _framework(rest: Rest, unfinished: Unfinished) -> ASGIApp:
    from .framework import make

    return make(OPERATIONS, rest, unfinished.run)
