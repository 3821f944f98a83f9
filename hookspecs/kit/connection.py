"""One connection of a client transport under test, held by one task from its begin to its end as the core does it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from ..config import Limits
from ..errors import ChannelClosed
from ..launchers import Child, Launcher, LaunchPlan, LaunchRequest
from ..transports import Channel, ConnectContext
from .faults import Fault, NotApplicable, place, until, words
from .messages import compare
from .peers import Peer, PeerEnd, RawEnd

_PYTHON = {"python": sys.executable, "python3": sys.executable}


class Heard:
    """What a transport told of the server's stderr."""

    def __init__(self) -> None:
        self.errors = b""
        self.lines: list[bytes] = []

    def stderr(self, chunk: bytes) -> None:
        self.errors = (self.errors + chunk)[-65_536:]

    def skipped(self, line: bytes) -> None:
        self.lines.append(line)


class Launches:
    """Starts children as the core does, with the launcher ``local``, and ends them after the connection."""

    def __init__(self, launcher: Callable[[], Launcher], limits: Limits) -> None:
        self._launcher, self._limits = launcher, limits
        self.requests: list[LaunchRequest] = []
        self.children: list[Child] = []

    async def __call__(self, request: LaunchRequest) -> Child:
        self.requests.append(request)
        command, *rest = request.argv
        command = shutil.which(_PYTHON.get(command, command)) or command
        passed = {name: value for name, value in os.environ.items() if name in ("PATH", *request.pass_env)}
        plan = LaunchPlan(Path(command), (command, *rest), request.cwd, {**passed, **request.env}, self._limits)
        child = await self._launcher().launch(plan)
        self.children.append(child)
        return child

    async def end(self) -> None:
        for child in self.children:
            await child.end_tree(0.2)


class Collector:
    """Reads a channel as the core does: one task, until the end. ``end`` says how that came."""

    def __init__(self, channel: Channel) -> None:
        self.messages: list[object] = []
        self.over = False
        self.error: BaseException | None = None
        self.task = asyncio.create_task(self._read(channel), name="reads the channel")

    async def _read(self, channel: Channel) -> None:
        try:
            async for message in channel:
                self.messages.append(message)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raises is what is judged
            self.error = error
        self.over = True

    async def stop(self, seconds: float = 20.0) -> None:
        """Cancel the reading; raise ``Fault`` where that is ignored."""
        self.task.cancel()
        done, _ = await asyncio.wait({self.task}, timeout=seconds)
        if not done:
            raise Fault("it ignores cancellation: a read that waits for a message can't be cancelled")

    def ended_well(self) -> None:
        """Raise ``Fault`` where the end came as another exception than those of the contract."""
        if self.error is not None and not isinstance(self.error, ChannelClosed):
            raise Fault(f"reading ends with {words(self.error)}; raise ChannelClosed or ChannelFault instead")


class Connection:
    """A connection: ``channel`` is the transport's, ``end`` the server's."""

    def __init__(self, open_: Callable[[], Any], seconds: float) -> None:
        self._open, self._seconds = open_, seconds
        loop = asyncio.get_running_loop()
        self._entered: asyncio.Future[Channel] = loop.create_future()
        self._leave: asyncio.Future[None] = loop.create_future()
        self._left = False
        self._task = asyncio.create_task(self._hold(), name="holds the connection")
        self.channel: Channel
        self.end: PeerEnd

    async def _hold(self) -> None:
        async with self._open() as channel:
            self._entered.set_result(channel)
            await self._leave

    async def enter(self) -> None:
        """Wait until it is usable; raises what ``connect`` raises."""
        first: set[asyncio.Future[Any]] = {self._task, self._entered}
        await asyncio.wait(first, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done() and not self._entered.done():
            self._task.result()
            raise Fault("connect ends without yielding a channel")
        if not self._entered.done():
            self._task.cancel()
            raise Fault("connect does not return though the server listens")
        self.channel = self._entered.result()

    async def leave(self, error: BaseException | None = None) -> None:
        """Leave it, in order or with ``error``, once; raise ``Fault`` for how that goes wrong."""
        if self._left:
            return
        self._left = True
        if isinstance(error, asyncio.CancelledError):
            self._task.cancel()
        elif not self._leave.done():
            self._leave.set_exception(error) if error is not None else self._leave.set_result(None)
        done, _ = await asyncio.wait({self._task}, timeout=self._seconds)
        if not done:
            self._task.cancel()
            raise Fault("it never closes: leaving the connection does not come to an end")
        self._judge(error)

    def _judge(self, error: BaseException | None) -> None:
        if self._task.cancelled():
            if not isinstance(error, asyncio.CancelledError):
                raise Fault("leaving the connection raises CancelledError though nobody cancels")
            return
        raised = self._task.exception()
        if error is None and raised is not None:
            raise Fault(f"it raises when it is closed: leaving the connection raises {words(raised)}")
        if error is not None and raised is None:
            what = "a cancellation" if isinstance(error, asyncio.CancelledError) else "an exception"
            raise Fault(f"it swallows {what} that goes through the connection's context")
        if error is not None and raised is not error:
            shown = words(raised) if raised is not None else ""
            raise Fault(f"it raises when it is closed: {words(error)} was under way, and {shown} came out")


class Opened(Connection):
    """A connection with the helpers that checks use."""

    async def send_all(self, messages: list[bytes]) -> None:
        """Send through the transport; what it raises is a fault."""
        for message in messages:
            await self.send(message)

    async def send(self, message: bytes) -> None:
        task = asyncio.ensure_future(self.channel.send(message))
        done, _ = await asyncio.wait({task}, timeout=self._seconds)
        if not done:
            task.cancel()
            raise Fault("send does not return though the server reads")
        if (error := task.exception()) is not None:
            raise Fault(f"send raises {words(error)} though the server reads")

    async def receive(self, messages: list[bytes], sending: Awaitable[Any]) -> None:
        """Let the server say ``messages`` (by ``sending``), and compare what the transport hands over."""
        collector = Collector(self.channel)
        work = asyncio.ensure_future(sending)
        await self._come(collector, len(messages), messages[-1], work)
        await asyncio.wait({work}, timeout=self._seconds)
        if work.done():
            work.result()  # the peer's own trouble
        work.cancel()
        if collector.error is not None and len(collector.messages) < len(messages):
            told = f"{words(collector.error)} ({place(collector.error)})"
            raise Fault(f"reading breaks off with {told} after {len(collector.messages)} messages")
        compare(messages, collector.messages)
        await collector.stop(self._seconds)

    async def _come(self, collector: Collector, count: int, last: bytes, work: asyncio.Future[Any]) -> None:
        def enough() -> bool:
            if work.done() and work.exception() is not None:
                return True
            return collector.over or len(collector.messages) >= count or last in _texts(collector.messages[-3:])

        with suppress(Fault):
            await until(self._seconds, enough, "")
        with suppress(Fault):  # what is late, or comes twice
            await until(0.2, lambda: collector.over or len(collector.messages) > count, "")

    async def reaches_server(self, messages: list[bytes]) -> None:
        """Compare what the server hears with ``messages``."""
        got: list[object] = []
        patience = self._seconds
        while len(got) < len(messages):
            try:
                async with asyncio.timeout(patience):
                    message = await self.end.receive()
            except TimeoutError:
                break
            if not message:
                break
            got.append(message)
            if message == messages[-1]:
                patience = 0.2  # for what is late
        compare(messages, got)


def _texts(messages: list[object]) -> list[bytes]:
    return [message.strip() for message in messages if isinstance(message, bytes)]


class Opener:
    """Opens connections of one transport to one peer."""

    def __init__(self, transport: Any, backend: Callable[[Peer], Mapping[str, Any]], seconds: float) -> None:
        self.transport, self._backend, self._seconds = transport, backend, seconds

    def model(self, peer: Peer) -> Any:
        try:
            return self.transport.backend_model.model_validate(dict(self._backend(peer)))
        except ValueError as error:
            raise Fault(f"its backend_model refuses the peer's backend: {error}; override backend()") from None

    def context(self, folder: Path, limits: Limits, launches: Launches, heard: Heard) -> ConnectContext:
        return ConnectContext("kit", folder, launches, limits, heard)

    @asynccontextmanager
    async def open(
        self, peer: Peer, folder: Path, limits: Limits, launcher: Callable[[], Launcher], heard: Heard | None = None
    ) -> AsyncIterator[Opened]:
        """Open one; what goes wrong while leaving it is a ``Fault``."""
        launches = Launches(launcher, limits)
        context = self.context(folder, limits, launches, heard or Heard())
        backend = self.model(peer)
        connection = Opened(lambda: self.transport.connect(backend, context), self._seconds)
        try:
            await self._entered(connection)
            try:
                async with asyncio.timeout(self._seconds):
                    connection.end = await peer.accept()
            except TimeoutError:
                raise Fault("connect returned, and no connection reached the server") from None
            yield connection
        except BaseException:
            with suppress(Fault):
                await connection.leave()
            raise
        else:
            await connection.leave()
        finally:
            await launches.end()

    async def _entered(self, connection: Opened) -> None:
        try:
            await connection.enter()
        except Fault:
            raise
        except Exception as error:  # noqa: BLE001 - it is what is judged
            raise Fault(f"connect raises {words(error)} ({place(error)}) though the server listens") from None


def raw(end: PeerEnd) -> RawEnd:
    """The same end, if its framing can be taken apart."""
    if all(hasattr(end, name) for name in ("write", "framed")):
        return end  # type: ignore[return-value]
    raise NotApplicable("the peer has no write and framed: its framing can't be taken apart")
