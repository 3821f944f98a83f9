"""For launchers on asyncio: a process that tells of its own end, whoever still holds its pipes (see ``Child``)."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import SubprocessStreamProtocol

_PIPE_LIMIT = 64 * 1024  # asyncio stops reading a pipe at twice this


class ExitProtocol(SubprocessStreamProtocol):
    """Tells of the process's end itself: on 3.11 ``Process.wait`` also waits for the pipes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_PIPE_LIMIT, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        self.exited.set()
        super().process_exited()
