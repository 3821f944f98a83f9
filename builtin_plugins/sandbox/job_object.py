"""The launcher ``job_object``, for Windows: a job that ends with the bridge, bounded. It isolates nothing. Untested.

Written from Microsoft's documents (Job Objects, ``JOBOBJECT_EXTENDED_LIMIT_INFORMATION``) and never seen to work: no
one may use it before the owner's settings say ``allow_untested_launchers: true``. The server is born suspended, put
into its job, and let run; a job's processes can't leave it, and the system kills them when the last handle to it is
closed, which is when the bridge ends. Files and network are as open as under ``local``; hence isolation ``none``.
"""

from __future__ import annotations

import asyncio
import ctypes
import struct
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from ...hookspecs import (
    ByteReader,
    ByteWriter,
    Isolation,
    IsolationRequest,
    Launcher,
    LaunchPlan,
    PluginHostStartFailed,
    hookimpl,
)
from ...hookspecs.exits import ExitProtocol

_GONE_SECONDS = 5.0
_CREATE_SUSPENDED, _CREATE_NEW_PROCESS_GROUP, _CREATE_NO_WINDOW = 0x4, 0x200, 0x08000000
_EXTENDED_LIMITS = 9
_KILL_ON_CLOSE, _DIE_ON_EXCEPTION, _ACTIVE_PROCESSES, _JOB_MEMORY = 0x2000, 0x400, 0x8, 0x200


def limits(isolation: IsolationRequest) -> bytes:
    """``JOBOBJECT_EXTENDED_LIMIT_INFORMATION`` of a 64-bit system."""
    flags = _KILL_ON_CLOSE | _DIE_ON_EXCEPTION | _ACTIVE_PROCESSES | _JOB_MEMORY
    basic = struct.pack("=qqI4xQQI4xQII", 0, 0, flags, 0, 0, isolation.processes, 0, 0, 0)
    memory = isolation.memory_mb * 1024 * 1024
    return basic + bytes(48) + struct.pack("=QQQQ", 0, memory, 0, 0)


class JobObjectLauncher:
    """Starts the server in a job of its own."""

    name = "job_object"
    isolation = Isolation.NONE
    untested = True

    def available(self) -> str | None:
        """Look at the system."""
        return None if sys.platform == "win32" else "job objects are a part of Windows"

    async def launch(self, plan: LaunchPlan) -> JobChild:
        kernel: Any = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined,unused-ignore]
        kernel.CreateJobObjectW.restype = ctypes.c_void_p
        job = kernel.CreateJobObjectW(None, None)
        information = limits(plan.isolation)
        kernel.SetInformationJobObject(ctypes.c_void_p(job), _EXTENDED_LIMITS, information, len(information))
        loop = asyncio.get_running_loop()
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
                creationflags=_CREATE_SUSPENDED | _CREATE_NEW_PROCESS_GROUP | _CREATE_NO_WINDOW,
            )
        except (OSError, ValueError) as error:
            kernel.CloseHandle(ctypes.c_void_p(job))
            raise PluginHostStartFailed(f"{plan.executable} did not start: {error}") from error
        process = ctypes.c_void_p(int(transport.get_extra_info("subprocess")._handle))
        child = JobChild(transport, protocol, kernel, job)
        if not kernel.AssignProcessToJobObject(ctypes.c_void_p(job), process):
            transport.kill()
            await child.end_tree(0)
            raise PluginHostStartFailed(f"{plan.executable} could not be put into a job")
        ctypes.WinDLL("ntdll").NtResumeProcess(process)  # type: ignore[attr-defined,unused-ignore]
        return child


class JobChild:
    """A server and its job."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: ExitProtocol, kernel: Any, job: int) -> None:
        self._transport = transport
        self._protocol = protocol
        self._kernel = kernel
        self._job: int | None = job
        self.stdin = cast(ByteWriter, protocol.stdin)
        self.stdout = cast(ByteReader, protocol.stdout)
        self.stderr = cast(ByteReader, protocol.stderr)
        self.pid: int = transport.get_pid() or -1

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    async def wait(self) -> int:
        await self._protocol.exited.wait()
        code = self.returncode
        return -1 if code is None else code

    async def end_tree(self, grace: float) -> None:
        """Close stdin, wait the grace, end the job: Windows has no way to ask a process that shows no window."""
        if self._job is None:
            return
        self.stdin.close()
        await self._exits_within(grace)
        self._kernel.TerminateJobObject(ctypes.c_void_p(self._job), 1)
        await self._exits_within(_GONE_SECONDS)
        self._kernel.CloseHandle(ctypes.c_void_p(self._job))
        self._job = None
        self._transport.close()
        await asyncio.sleep(0)

    async def _exits_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._protocol.exited.wait()


@hookimpl
def bascule_launchers() -> Iterable[Launcher]:
    """Offer ``job_object``."""
    return [JobObjectLauncher()]
