"""The launcher ``local``: a plain child process in a session of its own. It isolates nothing.

``end_tree``, written first: close stdin, wait the grace; SIGTERM to the group, wait again; SIGKILL to the group –
always, since a leader that left by itself may have left others behind; wait until the group is gone. Every wait is
bounded and looks at the return code, not at the pipes, which a grandchild may hold.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from ..hookspecs import (
    ByteReader,
    ByteWriter,
    Isolation,
    Launcher,
    LaunchPlan,
    PluginHostStartFailed,
    hookimpl,
)
from ..hookspecs.exits import ExitProtocol

_GONE_SECONDS = 2.0
_POLL_SECONDS = 0.01
_HAS_GROUPS = os.name == "posix"


class LocalChild:
    """A child process that leads its own process group."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: ExitProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self.stdin = cast(ByteWriter, protocol.stdin)
        self.stdout = cast(ByteReader, protocol.stdout)
        self.stderr = cast(ByteReader, protocol.stderr)
        self.pid: int = transport.get_pid() or -1
        self._ended = False

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    async def wait(self) -> int:
        await self._protocol.exited.wait()
        code = self.returncode
        return -1 if code is None else code

    async def end_tree(self, grace: float) -> None:
        """End the process and its group; see the module for the order."""
        if self._ended:
            return
        self.stdin.close()
        if not await self._exits_within(grace):
            self._signal_group(terminate=True)
            await self._exits_within(grace)
        self._signal_group(terminate=False)
        await self._exits_within(_GONE_SECONDS)
        await self._group_is_gone()
        self._transport.close()
        self._ended = True
        await asyncio.sleep(0)  # the pipes' own callbacks run in the loop's next turn

    async def _exits_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._protocol.exited.wait()
        return self.returncode is not None

    def _signal_group(self, *, terminate: bool) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if _HAS_GROUPS:
                os.killpg(self.pid, signal.SIGTERM if terminate else signal.SIGKILL)
            elif terminate:
                self._transport.terminate()
            else:
                self._transport.kill()

    async def _group_is_gone(self) -> None:
        if not _HAS_GROUPS:
            return
        for _ in range(int(_GONE_SECONDS / 2 / _POLL_SECONDS)):
            try:
                os.killpg(self.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            await asyncio.sleep(_POLL_SECONDS)


class LocalLauncher:
    """Starts the server with the bridge's own rights."""

    name = "local"
    isolation = Isolation.NONE

    async def launch(self, plan: LaunchPlan) -> LocalChild:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = (
            {"start_new_session": True}
            if _HAS_GROUPS
            else {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
        )
        if _HAS_GROUPS and not isinstance(loop, asyncio.BaseEventLoop):
            options["preexec_fn"] = _keep_to_ourselves
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: ExitProtocol(loop),
                *plan.argv,
                executable=str(plan.executable),
                cwd=plan.cwd,
                env=dict(plan.env),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                **options,
            )
        except (OSError, ValueError) as error:
            raise _start_failed(plan, error) from error
        return LocalChild(transport, protocol)


def _keep_to_ourselves() -> None:
    """In the new process, let no descriptor but the three pass: asyncio closes the others itself, uvloop does not.

    Among them are copies of the server's own pipes, which would hide that it closed them.
    """
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the listing's own
                os.set_inheritable(int(name), False)


def _start_failed(plan: LaunchPlan, error: OSError | ValueError) -> PluginHostStartFailed:
    hints = {
        errno.ENOEXEC: "it is no program of this machine; does it lack its first line '#!…'?",
        errno.EACCES: "make it executable",
        errno.ENOENT: "it, or the interpreter that its first line names, does not exist",
        errno.E2BIG: "its arguments and environment are too long for this system",
        errno.EMFILE: "this process has no file descriptors left; raise its limit (ulimit -n)",
    }
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    hint = hints.get(error.errno or 0) if isinstance(error, OSError) else None
    return PluginHostStartFailed(f"{plan.executable} did not start: {reason}", hint=hint)


@hookimpl
def bascule_launchers() -> Iterable[Launcher]:
    """Offer ``local``."""
    return [LocalLauncher()]
