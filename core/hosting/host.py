"""One connection to one plugin's server, from start to end.

A host lives once: a restart makes a new one, with the next generation. One task owns the connection; whoever starts
or stops the host only talks to that task. The way down, written first::

    stop asked, or the reader ended          the owner task wakes
    on_lost(error)                           tools leave the registry, before anything else (N4.2)
    waiters are failed                       PLUGIN_HOST_UNAVAILABLE, each with an error of its own
    the transport's context is left          stdin closed, grace, terminate, kill: bounded by the launcher
    children that the transport forgot       are ended here, the same way
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from ...hookspecs import (
    BasculeError,
    ChannelClosed,
    ChannelFault,
    Child,
    ClientTransport,
    ConnectContext,
    JsonObject,
    LaunchRequest,
    Limits,
    LogListener,
    McpProtocolError,
    PluginHostStartFailed,
    PluginHostUnavailable,
    ProgressListener,
    ToolConverter,
)
from ..manifest import Manifest
from ..upstream import OutgoingCall, Upstream
from .diagnostics import HostDiagnostics

log = logging.getLogger(__name__)

_MAX_LISTINGS = 5
_RELIST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HostSpec:
    """What a host is made from. ``launch`` passes the environment gate and the owner's launcher (N6.9)."""

    manifest: Manifest
    transport: ClientTransport
    converter: ToolConverter
    launch: Callable[[LaunchRequest], Awaitable[Child]]
    limits: Limits
    client_version: str
    mask: Callable[[str], str]


class Host:
    """The running side of a plugin, once. ``on_lost`` is told when a ready server goes away by itself.

    ``on_relisted`` is given what a server lists after it announced other tools; without it such a server is lost.
    """

    def __init__(
        self,
        spec: HostSpec,
        generation: int,
        on_lost: Callable[[Host, BasculeError, bool], None],
        on_relisted: Callable[[Host, Sequence[JsonObject]], Awaitable[None]] | None = None,
    ) -> None:
        self._spec = spec
        self._on_lost = on_lost
        self._on_relisted = on_relisted
        self._announced = asyncio.Event()
        self._upstream: Upstream | None = None
        self._stop = asyncio.Event()
        self._lost: BasculeError | None = None
        self._children: list[Child] = []
        self._startup: asyncio.Timeout | None = None
        self._owner: asyncio.Task[None] | None = None
        self._listed: asyncio.Future[list[JsonObject]] = asyncio.get_running_loop().create_future()
        self._admitted = False
        self._changed = False
        self.generation = generation
        self.diagnostics = HostDiagnostics(spec.limits.stderr_bytes, spec.mask)
        self.started_at: float | None = None

    @property
    def plugin_id(self) -> str:
        return self._spec.manifest.id

    @property
    def upstream(self) -> Upstream | None:
        """The session, for what it knows of the server; ``None`` before there is one."""
        return self._upstream

    @property
    def instructions(self) -> str | None:
        """What the server says of itself as a whole."""
        info = None if self._upstream is None else self._upstream.info
        return None if info is None else info.instructions

    # --- start and stop -------------------------------------------------------------------------------

    async def start(self) -> Sequence[JsonObject]:
        """Connect, shake hands and list the tools, within the manifest's start-up time (N4.1.3–N4.1.7).

        Raises ``PluginHostStartFailed``, an ``McpError`` or what the gate says; nothing is left behind then,
        nor when this is cancelled.
        """
        self._owner = asyncio.create_task(self._own(), name=f"host {self.plugin_id}")
        try:
            return await asyncio.shield(self._listed)
        except BaseException:
            await self.stop()
            raise

    def admitted(self) -> None:
        """The tools stand in the registry from now on: losing the server is ``on_lost``'s affair."""
        if self._lost is not None:
            raise self._as_start_failure(self._lost)
        self._admitted = True

    def give_up(self) -> None:
        """Ask the server to be ended, whatever it is about; ``start`` then fails."""
        self._stop.set()
        if self._startup is not None:
            with suppress(RuntimeError):  # the start is over
                self._startup.reschedule(asyncio.get_running_loop().time())

    async def stop(self) -> None:
        """End the server and all it started; returns when nothing is left. Survives being cancelled."""
        self.give_up()
        cancelled = False
        while self._owner is not None and not self._owner.done():
            try:
                await asyncio.shield(self._owner)
            except asyncio.CancelledError:
                cancelled = not self._owner.cancelled()
        if cancelled:
            raise asyncio.CancelledError

    async def _own(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._end_children)
                reader = await self._connect(stack)
                await self._until_over(reader)
        except Exception as error:  # noqa: BLE001 - whoever started is told, in words
            self._settle(error)
        finally:
            self._settle(PluginHostUnavailable(f"{self.plugin_id} was stopped"))

    def _settle(self, error: Exception) -> None:
        """Tell whoever started why it failed, once nothing of the start is left."""
        if not self._listed.done():
            self._listed.set_exception(self._start_failure(error))
            self._listed.exception()  # whoever started may be gone: this is no forgotten error

    async def _connect(self, stack: AsyncExitStack) -> asyncio.Task[None]:
        """Start, in the task that will also leave the connection: contexts may demand that."""
        spec = self._spec
        manifest = spec.manifest
        context = ConnectContext(manifest.id, manifest.directory, self._launch, spec.limits, self.diagnostics)
        try:
            async with asyncio.timeout(0 if self._stop.is_set() else manifest.startup_seconds) as self._startup:
                channel = await stack.enter_async_context(spec.transport.connect(manifest.backend, context))
                upstream = self._upstream = Upstream(
                    channel, spec.limits, on_tools_changed=self._tools_changed, on_fault=self.diagnostics.broke
                )
                reader = asyncio.create_task(upstream.run(), name=f"reader {self.plugin_id}")
                stack.push_async_callback(_end_task, reader)
                tools = await self._negotiate(upstream, reader)
        except TimeoutError:
            raise self._not_in_time() from None
        self.started_at = time.time()
        if self._on_relisted is not None:
            stack.push_async_callback(_end_task, asyncio.create_task(self._relist(upstream, self._on_relisted)))
        self._listed.set_result(tools)
        return reader

    def _not_in_time(self) -> BasculeError:
        if self._stop.is_set():
            return PluginHostUnavailable(f"{self.plugin_id} was stopped while it started")
        return PluginHostStartFailed(
            f"the server was not ready within {self._spec.manifest.startup_seconds:g} s",
            hint="does it answer initialize on stdout, unbuffered? See also backend.startup_timeout_seconds",
        )

    async def _until_over(self, reader: asyncio.Task[None]) -> None:
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({reader, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                self._went_away(reader.exception() or ChannelClosed("the server closed the connection"))
            elif self._upstream is not None:
                self._upstream.fail(lambda: PluginHostUnavailable(f"{self.plugin_id} was stopped"))
        finally:
            stopped.cancel()

    async def _negotiate(self, upstream: Upstream, reader: asyncio.Task[None]) -> list[JsonObject]:
        """Shake hands and list while the reader lives; its end is the reason why not."""
        talk = asyncio.create_task(self._talk(upstream))
        try:
            await asyncio.wait({talk, reader}, return_when=asyncio.FIRST_COMPLETED)
            if not talk.done():
                raise reader.exception() or ChannelClosed("the server closed the connection")
            return talk.result()
        finally:
            talk.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await talk

    async def _talk(self, upstream: Upstream) -> list[JsonObject]:
        """Servers announce changes while they still set themselves up: list again until one list stands."""
        await upstream.initialize(self._spec.client_version)
        for _ in range(_MAX_LISTINGS):
            self._changed = False
            tools = await upstream.list_tools()
            if not self._changed:
                return tools
        raise McpProtocolError(f"the server announced other tools during each of {_MAX_LISTINGS} listings")

    async def _launch(self, request: LaunchRequest) -> Child:
        child = await self._spec.launch(request)
        self._children.append(child)
        return child

    async def _end_children(self) -> None:
        for child in self._children:
            await child.end_tree(self._spec.limits.shutdown_grace_seconds)

    # --- losing the server ----------------------------------------------------------------------------

    def _tools_changed(self) -> None:
        """Without approved tools to measure it by, the new set is not trusted: the host is lost (N4.2.3)."""
        self._changed = True
        if self._on_relisted is not None:
            self._announced.set()
        elif self._listed.done() and not self._stop.is_set():
            self._lose(McpProtocolError("the server announced other tools", hint="restart it to look at them"), True)
            self._stop.set()

    async def _relist(
        self, upstream: Upstream, relisted: Callable[[Host, Sequence[JsonObject]], Awaitable[None]]
    ) -> None:
        """List again whenever other tools are announced, not more often than makes sense."""
        try:
            while True:
                await self._announced.wait()
                self._announced.clear()
                async with asyncio.timeout(self._spec.manifest.startup_seconds):
                    listed = await upstream.list_tools()
                await relisted(self, listed)
                await asyncio.sleep(_RELIST_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it is, the set is not known any more
            why = error.message if isinstance(error, BasculeError) else type(error).__name__
            self._lose(McpProtocolError(f"the server announced other tools, and listing them failed: {why}"), True)
            self._stop.set()

    def _went_away(self, error: BaseException) -> None:
        if isinstance(error, BasculeError):
            self._lose(error, False)
        else:
            log.error("the transport of %s failed", self.plugin_id, exc_info=error)
            self._lose(ChannelClosed(f"its transport failed: {type(error).__name__}: {error}"[:500]), False)

    def _lose(self, error: BasculeError, changed: bool) -> None:
        if self._lost is not None:
            return
        text = f"{self.plugin_id} is not available: {error.message}"
        lost = self._lost = PluginHostUnavailable(
            text, hint=f"restart it: the plugin {self.plugin_id}", diagnosis=self.diagnostics.tail() or None
        )
        if self._admitted:
            self._on_lost(self, lost, changed)
        if self._upstream is not None:
            self._upstream.fail(lambda: PluginHostUnavailable(text, hint=lost.hint))

    def _start_failure(self, error: Exception) -> BasculeError:
        """What to say of a start that failed: protocol faults keep their code, an end is a failed start."""
        failure = self._as_start_failure(error)
        if failure.diagnosis is None:
            failure.diagnosis = self.diagnostics.tail() or None
        return failure

    def _as_start_failure(self, error: Exception) -> BasculeError:
        if isinstance(error, ChannelFault):
            return McpProtocolError(error.message)
        if isinstance(error, ChannelClosed):
            return PluginHostStartFailed(f"{error.message} before it was ready", hint="see the end of its stderr")
        if isinstance(error, BasculeError):
            return error
        log.error("the transport of %s failed", self.plugin_id, exc_info=error)
        return PluginHostStartFailed(f"its transport failed: {type(error).__name__}: {error}"[:500])

    # --- calls ----------------------------------------------------------------------------------------

    def prepare(
        self, remote_name: str, arguments: bytes, progress: ProgressListener | None, logs: LogListener | None
    ) -> OutgoingCall:
        """Make a call ready to be sent; see ``Upstream.prepare`` for what is raised."""
        if self._upstream is None:
            raise PluginHostUnavailable(f"{self.plugin_id} is not available: it has not started")
        manifest = self._spec.manifest
        return self._upstream.prepare(
            remote_name,
            arguments,
            self._spec.converter.read_result,
            seconds=manifest.tool_seconds,
            idle_seconds=manifest.progress_idle_seconds,
            progress=progress,
            logs=logs,
        )


async def _end_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
