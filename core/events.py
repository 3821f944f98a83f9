"""Tells observers and listeners what happens. Publishing never waits: a slow reader loses events and is told so."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from ..hookspecs import Event, Lost, Observer

log = logging.getLogger(__name__)

_KEPT = 1_000  # events that wait for one reader


class _Reader:
    def __init__(self) -> None:
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
        self.watched = bool(self._observers)

    def publish(self, event: Event) -> None:
        """Tell everyone; what an observer raises is logged and stops no one."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                log.exception("observer %s failed", getattr(observer, "name", observer))
        for reader in self._readers:
            reader.put(event)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[Event]]:
        """Listen from now on."""
        reader = _Reader()
        self._readers.add(reader)
        self.watched = True
        stream = aiter(reader)
        try:
            yield stream
        finally:
            self._readers.discard(reader)
            self.watched = bool(self._readers or self._observers)
