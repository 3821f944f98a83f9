"""Tells observers and listeners what happens. Publishing never waits: a slow reader loses events and is told so."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import get_args

from ..hookspecs import Event, Lost, Observer

log = logging.getLogger(__name__)

_KEPT = 1_000  # events that wait for one reader


class _Reader:
    def __init__(self, kinds: tuple[type[Event], ...]) -> None:
        self.kinds = kinds
        self._waiting: deque[Event] = deque()
        self._lost = 0
        self._due = asyncio.Event()

    def put(self, event: Event) -> None:
        if len(self._waiting) >= _KEPT:
            self._lost += 1
        else:
            self._waiting.append(event)
        self._due.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            await self._due.wait()
            self._due.clear()
            while self._waiting:
                yield self._waiting.popleft()
            if self._lost:
                lost, self._lost = self._lost, 0
                yield Lost(lost)


class Events:
    """The one place where events are published."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)
        self._readers: set[_Reader] = set()
        self._wanted: dict[type[Event], bool] = {}

    def wanted(self, kind: type[Event]) -> bool:
        """Whether anyone listens to such events: the road asks at every call, and most have no listener."""
        found = self._wanted.get(kind)
        if found is None:
            found = bool(self._observers) or any(kind in reader.kinds for reader in self._readers)
            self._wanted[kind] = found
        return found

    def publish(self, event: Event) -> None:
        """Tell everyone who wants to know; what an observer raises is logged and stops no one."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                log.exception("observer %s failed", getattr(observer, "name", observer))
        for reader in self._readers:
            if type(event) in reader.kinds:
                reader.put(event)

    @asynccontextmanager
    async def listen(self, *kinds: type[Event]) -> AsyncIterator[AsyncIterator[Event]]:
        """Listen from now on: to events of ``kinds``, to all where none is named."""
        reader = _Reader(kinds or get_args(Event))
        self._readers.add(reader)
        self._wanted.clear()
        stream = aiter(reader)
        try:
            yield stream
        finally:
            self._readers.discard(reader)
            self._wanted.clear()
