"""Starting a server below a supervisor, and ending it."""

from __future__ import annotations

import asyncio
import marshal
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ...hookspecs import ByteReader, ByteWriter, LaunchPlan, PluginHostStartFailed
from ...hookspecs.exits import ExitProtocol
from .cgroup import Leaf

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_ASKED_SECONDS = 0.5  # after SIGTERM: whoever did not go for the end of its input seldom goes for this
_GONE_SECONDS = 6.0  # the supervisor bounds its own work at five


@dataclass(frozen=True, slots=True)
class Orders:
    """What the supervisor is to start. ``data`` become files that the child may read by their descriptors' numbers.

    ``inner`` counts the generations of processes below the supervisor that are the sandbox's own. ``limits`` are names
    of the module ``resource``; ``confine`` is what the supervisor itself does to the child before it runs.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    limits: Mapping[str, int]
    inner: int = 0
    keep: Sequence[int] = ()
    confine: Mapping[str, Any] | None = None

    def specification(self, leaf: Leaf | None) -> bytes:
        spec = {
            "executable": self.argv[0],
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": self.cwd,
            "limits": dict(self.limits),
            "inner": self.inner,
            "keep": list(self.keep),
            "confine": self.confine,
            "cgroup": None if leaf is None else str(leaf.path),
        }
        return marshal.dumps(spec)


class SupervisedChild:
    """A server below its supervisor; what this says of the process is what the supervisor says of the server."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, protocol: ExitProtocol, control: int, leaf: Leaf | None
    ) -> None:
        self._transport = transport
        self._protocol = protocol
        self._control: int | None = control
        self._leaf = leaf
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
        """End the server and all that it started; see the package for the order."""
        if self._ended:
            return
        self.stdin.close()
        if not await self._exits_within(grace):
            self._ask()
            await self._exits_within(min(grace, _ASKED_SECONDS))
        self._let_go()
        if not await self._exits_within(_GONE_SECONDS):
            with suppress(ProcessLookupError):
                self._transport.kill()
            await self._exits_within(_GONE_SECONDS)
        if self._leaf is not None:
            await self._leaf.remove()
        self._transport.close()
        self._ended = True
        await asyncio.sleep(0)  # the pipes' own callbacks run in the loop's next turn

    async def _exits_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._protocol.exited.wait()
        return self.returncode is not None

    def _ask(self) -> None:
        if self._control is not None:
            with suppress(OSError):
                os.write(self._control, b"T")

    def _let_go(self) -> None:
        if self._control is not None:
            os.close(self._control)
            self._control = None

    def __del__(self) -> None:
        self._let_go()  # whoever forgets a child must not keep its server alive


def as_file(content: bytes) -> int:
    """Put ``content`` into a file without a name; return its descriptor, at the beginning."""
    fd = os.memfd_create("bascule") if hasattr(os, "memfd_create") else _temporary()
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _temporary() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


async def supervise(plan: LaunchPlan, orders: Orders, leaf: Leaf | None = None) -> SupervisedChild:
    """Start ``orders`` below a supervisor; ``orders.keep`` are closed here, whatever happens.

    Raises ``PluginHostStartFailed``. When cancelled, nothing is left: the control pipe is closed.
    """
    loop = asyncio.get_running_loop()
    passed = [*orders.keep]
    control = -1
    try:
        passed.append(as_file(orders.specification(leaf)))
        theirs, control = os.pipe()
        passed.append(theirs)
        transport, protocol = await loop.subprocess_exec(
            lambda: ExitProtocol(loop),
            sys.executable,
            *("-I", "-S", "-B", "-X", "utf8", str(_SUPERVISOR), str(theirs), str(passed[-2])),
            cwd="/",
            env={},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            pass_fds=passed,
            start_new_session=True,
        )
    except BaseException as error:
        if control >= 0:
            os.close(control)
        if leaf is not None:
            await leaf.remove()
        if isinstance(error, OSError | ValueError):
            raise PluginHostStartFailed(f"the supervisor of {plan.executable} did not start: {error}") from error
        raise
    finally:
        for fd in passed:
            os.close(fd)
    return SupervisedChild(transport, protocol, control, leaf)
