"""A deadline that costs no timer where nothing is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar, cast

T = TypeVar("T")


def begin(work: Awaitable[T]) -> tuple[T, None] | tuple[None, Awaitable[T]]:
    """Run ``work`` up to where it waits: its result, or what is left of it, to be awaited in this same task."""
    iterator = work.__await__()
    try:
        first = next(iterator)
    except StopIteration as done:
        return done.value, None
    return None, _Rest[T](iterator, first)


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Await ``work``; raise ``TimeoutError`` after ``seconds``.

    What is done at once, as most permission checks and most reads of a request's body are, is run on the spot; only
    what really waits is given a timer, which costs more than many a call's whole way.
    """
    result, rest = begin(work)
    if rest is None:
        return cast(T, result)
    async with asyncio.timeout(seconds):
        return await rest


class WouldWait(Exception):
    """What was to be done at once would have to wait."""


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of what waits for nothing; what would wait is given up, and ``WouldWait`` raised."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise WouldWait


class _Rest(Awaitable[T]):
    """What is left of something that waits: ``first`` is what its iterator waits for."""

    __slots__ = ("_first", "_iterator")

    def __init__(self, iterator: Generator[Any, Any, T], first: Any) -> None:
        self._iterator = iterator
        self._first = first

    def __await__(self) -> Generator[Any, Any, T]:
        awaited = self._first
        while True:
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - a cancellation above all: it is the work's to handle
                step = partial(self._iterator.throw, error)
            else:
                step = partial(self._iterator.send, None)
            try:
                awaited = step()
            except StopIteration as done:
                result: T = done.value
                return result
