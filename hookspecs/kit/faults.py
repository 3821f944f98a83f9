"""What the kit says when something is wrong, and how it waits."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Fault(AssertionError):
    """What the subject does wrong, in words that its author can act on."""


class NotApplicable(Exception):
    """This check has nothing to say about this subject; the reason is shown."""


async def within(seconds: float, work: Awaitable[T], otherwise: str) -> T:
    """Await ``work``; raise ``Fault(otherwise)`` where it takes longer, also if it ignores being cancelled."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return await task
    task.cancel()
    raise Fault(otherwise)


async def until(seconds: float, condition: Callable[[], Any], otherwise: str | Callable[[], str]) -> None:
    """Wait for something that has no event of its own; raise ``Fault(otherwise)`` where it does not come."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        if loop.time() > end:
            raise Fault(otherwise if isinstance(otherwise, str) else otherwise())
        await asyncio.sleep(0.005)


def words(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def place(error: BaseException) -> str:
    """Where it was raised: file and line, the innermost that is no library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((sys.base_prefix, os.path.dirname(__file__)))]
    frame = next(reversed(own or frames), None)
    return f"{os.path.basename(frame.filename)}:{frame.lineno}" if frame is not None else "somewhere"
