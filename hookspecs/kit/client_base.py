"""What the checks of client transports have in common: the subject, its peer, and how a connection is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ..config import Limits
from ..launchers import Launcher
from .connection import Heard, Opened, Opener
from .peers import Peer
from .suite import Suite

KIB = 1024


class ClientTransportBase(Suite):
    """See :class:`ClientTransportSuite`."""

    transport: Any = None
    peer: Any = None

    def backend(self, peer: Peer) -> Mapping[str, Any]:
        """The manifest's keys by which the transport reaches ``peer``."""
        return peer.backend

    def subject_name(self) -> str:
        return f"client transport {getattr(self.transport, 'name', type(self).__name__)!r}"

    @property
    def limits(self) -> Limits:
        """Small ones, so that overrunning is quick, and none that is anyone's default; a slow peer is waited for."""
        return Limits(
            message_bytes=96 * KIB - 3,
            write_queue_bytes=256 * KIB,
            write_seconds=min(self.seconds, 60),
            shutdown_grace_seconds=0.2,
        )

    @property
    def opener(self) -> Opener:
        return Opener(self.given("transport"), self.backend, self.seconds)

    @asynccontextmanager
    async def served(self, folder: Path) -> AsyncIterator[Peer]:
        """A peer that listens."""
        async with self.given("peer")(folder) as peer:
            yield peer

    @asynccontextmanager
    async def opened(
        self, peer: Peer, folder: Path, limits: Limits | None = None, heard: Heard | None = None
    ) -> AsyncIterator[Opened]:
        """One connection to ``peer``."""
        async with self.opener.open(peer, folder, limits or self.limits, local_launcher, heard) as connection:
            yield connection

    @asynccontextmanager
    async def connected(self, folder: Path, limits: Limits | None = None) -> AsyncIterator[Opened]:
        """A peer, and one connection to it."""
        async with self.served(folder) as peer, self.opened(peer, folder, limits) as connection:
            yield connection


def local_launcher() -> Launcher:
    """The built-in launcher ``local``, by the door through which the core finds it."""
    from ...core.bridge import Bridge, lineup_for

    return lineup_for(Bridge().settings).launchers["local"]
