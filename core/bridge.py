"""The bridge: puts the rooms together and lives as an async context manager.

An agent in the process uses it like this::

    async with Bridge(Settings.load(None), plugins=[Path("fixtures/mcp-echo")], grant=True) as bridge:
        async with bridge.run(agent="researcher") as run:
            result = await run.call("mcp-fixture.echo", {"message": "hello"})

The way down, written first: server transports are left (drained), tools leave the registry, hosts end in parallel,
the traces are written out, the store is closed, the lock is free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from ..hookspecs import (
    EVERYTHING,
    BasculeError,
    Event,
    HookPluginRequired,
    PluginState,
    Run,
    ServerTransport,
    SettingsInvalid,
    StandardStreams,
    ToolConverter,
)
from .children import Children
from .database import DATABASE_NAME
from .discovery import Found, Loaded, discover
from .documents import near
from .endpoint import Endpoint
from .events import Events
from .gateway import Gateway, Guards
from .isolation import Keepers
from .launching import Planner
from .lineup import Lineup, assemble, gaps, missing_guards
from .logs import masked
from .plugins import House, Plugins
from .redaction import Redactor
from .registry import Registry
from .runs import AgentRuns, OpenRuns
from .settings import HookConfig, Settings
from .store import PluginRecord, StateLock, Store, default_state_directory
from .tokens import Tokens, keep_owner_token
from .traces import Traces
from .versions import version

log = logging.getLogger(__name__)


def lineup_for(settings: Settings, hook_plugins: Mapping[str, Any] | None = None) -> Lineup:
    """Find, load and ask every hook plugin that the settings do not disable; those of ``hook_plugins`` first."""
    disabled = frozenset(settings.disabled_hook_plugins)
    state = state_directory(settings)
    given = (Loaded(Found(name, "in this process"), plugin) for name, plugin in (hook_plugins or {}).items())
    lineup = assemble(chain(given, discover(disabled)), lambda name: HookConfig(settings, name, state))
    for warning in (*unknown_hook_plugins(settings, lineup), *gaps(lineup)):
        log.warning("%s", warning)
    return lineup


def unknown_hook_plugins(settings: Settings, lineup: Lineup) -> list[str]:
    """What the settings say of hook plugins that are not installed: mostly a slip, and never a reason to stop."""
    installed = [plugin.name for plugin in lineup.hook_plugins]
    sections = [(name, ("plugins", name)) for name in settings.plugins]
    disabled = [(name, ("disabled_hook_plugins",)) for name in settings.disabled_hook_plugins]
    warnings = []
    for name, keys in (*sections, *disabled):
        if name not in installed:
            meant = near(name, installed)
            question = f"; did you mean {meant}?" if meant else ""
            place = settings.where(*keys) or "command line"
            warnings.append(f"{place}: {keys[0]}: no hook plugin {name!r} is installed{question}")
    return warnings


def guards_missing(settings: Settings, lineup: Lineup, store: Store | None = None) -> dict[str, str]:
    """Which hook plugins must guard the calls and do not, and why; while there is one, no way in opens.

    Without ``store`` the state directory is looked into, if there is one.
    """
    remembered: dict[str, frozenset[str]] = {}
    if store is not None:
        remembered = store.remembered_offers()
    elif (state_directory(settings) / DATABASE_NAME).exists():
        with Store.open(state_directory(settings)) as opened:
            remembered = opened.remembered_offers()
    return missing_guards(lineup, remembered, settings.required_hook_plugins, settings.disabled_hook_plugins)


def open_traces(settings: Settings) -> Traces:
    """What was called under these settings, for reading; enter it as a context."""
    state = state_directory(settings)
    Store.open(state).close()  # made, or brought up to date
    return Traces(state / DATABASE_NAME, settings.limits, Redactor())


def state_directory(settings: Settings) -> Path:
    """Where this bridge keeps what it remembers."""
    return settings.state or default_state_directory()


class Bridge:
    """Everything that runs between the hook plugins and whoever calls.

    ``plugins`` are directories to host for this bridge alone, in place of installed ones of the same id; ``grant``
    grants them all that they declare. With ``remember`` the bridge holds the state directory's lock, brings back what
    is installed there and starts what was enabled (``start``); without, it only reads grants and adds traces (a
    one-shot command), and knows what is installed only on ``recall``. ``hook_plugins`` are modules or objects with
    ``@hookimpl`` functions, by name, that need no entry point; what they offer goes before what is installed.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        plugins: Iterable[Path] = (),
        grant: bool = False,
        remember: bool = True,
        recall: bool | None = None,
        start: bool = True,
        hook_plugins: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = Settings() if settings is None else settings
        self._directories = tuple(plugins)
        self._grant = grant
        self._remember = remember
        self._recall = remember if recall is None else recall
        self._start = start
        self._hook_plugins = hook_plugins
        self._stack = AsyncExitStack()
        self._starting: list[asyncio.Task[None]] = []
        self._failures: dict[str, BasculeError] = {}
        self._failed_starts: dict[str, BasculeError] = {}
        self.closed: BasculeError | None = None
        self.opened: list[str] = []

    # --- life -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Bridge:
        try:
            await self._assemble()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _assemble(self) -> None:
        settings = self.settings
        state = state_directory(settings)
        if self._remember:
            self._stack.enter_context(StateLock.acquire(state))
            self._endpoint = self._stack.enter_context(Endpoint(state))
        self._store = Store.open(state)
        self._stack.callback(self._store.close)
        children = Children(self._store)
        if self._remember:
            await asyncio.to_thread(children.reap)
        self.lineup = lineup_for(settings, self._hook_plugins)
        self._look_for_missing_guards()
        redactor = self._redactor = Redactor()
        self._stack.enter_context(masked(redactor.redact))
        self.traces = await self._stack.enter_async_context(Traces(state / DATABASE_NAME, settings.limits, redactor))
        self._events = Events(self.lineup.observers.values())
        self.registry = Registry()
        guards = Guards(self.lineup.permission_checks, self.lineup.exposure_policies, settings.environment)
        self.gateway = Gateway(self.registry, guards, self.traces, self._events, settings.limits)
        self.keepers = Keepers(settings, self.lineup.launchers, state)
        self.plugins = Plugins(
            House(
                settings,
                self.lineup,
                self._store,
                self.registry,
                self._events,
                Planner(settings.executables),
                children,
                self.keepers,
                redactor,
                version(),
                state,
            )
        )
        self.tokens = Tokens(self._store)
        if self._remember:
            keep_owner_token(self.tokens, state)
        self.open_runs = OpenRuns(self.traces, settings.limits)
        if self._remember:
            from .guard import LOCAL_IDENTITY  # a one-shot command does without the guard

            owners = {token.name for token in self.tokens.list()} | {LOCAL_IDENTITY.name}
            await self.open_runs.take_over(frozenset(owners))
            self._stack.push_async_callback(self.open_runs.close)
        self._stack.push_async_callback(self.plugins.shut_down)
        await self._start_plugins()
        self._stack.push_async_callback(self._break_off_starts)

    def _look_for_missing_guards(self) -> None:
        """Stay closed while a guard is missing; only a bridge that remembers (no one-shot command) moves the memory.

        What a hook plugin offered is forgotten when its owner turns it off by name, and is never replaced by less.
        """
        settings, store = self.settings, self._store
        missing = guards_missing(settings, self.lineup, store)
        if missing:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
            self.closed = HookPluginRequired(
                f"hook plugins that guard calls are missing ({reasons}): no server transport starts",
                hint="mend them, or give them up by name with --no-hook-plugin NAME",
            )
            log.error("%s", self.closed)
        for plugin in self.lineup.broken:
            if isinstance(plugin.error, SettingsInvalid):
                self.closed = plugin.error
        if self._remember:
            remembered = store.remembered_offers()
            for name in remembered.keys() & set(settings.disabled_hook_plugins):
                store.forget_offers(name)
            for plugin in self.lineup.hook_plugins:
                if plugin.guards and plugin.name not in missing and remembered.get(plugin.name) != plugin.guards:
                    store.remember_offers(plugin.name, plugin.guards)

    async def _start_plugins(self) -> None:
        """Start what was asked for, and what was enabled when this state was last used; in the background."""
        slots = asyncio.Semaphore(self.settings.limits.parallel_starts)
        for directory in self._directories:
            await self._take_in(directory, slots)
        given = {view.plugin_id for view in self.plugins.list()}
        for record in self._store.load_plugins() if self._recall else ():
            if record.plugin_id not in given:
                await self._bring_back(record, slots)

    async def _bring_back(self, record: PluginRecord, slots: asyncio.Semaphore) -> None:
        plugin_id = record.plugin_id
        wanted = await self.plugins.bring_back(record, keep=self._remember)
        reason = self.plugins.why(plugin_id)
        if record.enabled and reason is not None:
            self._failed_starts[plugin_id] = reason
            log.error("%s is not back: %s", plugin_id, reason)
        if wanted and self._start:
            self._start_soon(plugin_id, slots)

    async def _take_in(self, directory: Path, slots: asyncio.Semaphore) -> None:
        try:
            view = await self.plugins.install(directory, keep=False)
            if self._grant:
                await self.plugins.grant(view.plugin_id, view.permissions)
        except BasculeError as error:
            self._failures[str(directory)] = error
            return
        self._start_soon(view.plugin_id, slots)

    def _start_soon(self, plugin_id: str, slots: asyncio.Semaphore) -> None:
        async def start() -> None:
            async with slots:
                try:
                    await self.plugins.enable(plugin_id)
                except BasculeError as error:
                    self._failed_starts[plugin_id] = error

        self._starting.append(asyncio.create_task(start(), name=f"start {plugin_id}"))

    async def _break_off_starts(self) -> None:
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until every plugin that was to be started is up or has failed; the reasons stand in ``failures``."""
        if self._starting:
            await asyncio.wait(self._starting)

    @property
    def failures(self) -> Mapping[str, BasculeError]:
        """What did not come up and still is not: plugins by their id (or directory), ways in by their name."""
        started = {view.plugin_id: self.plugins.why(view.plugin_id) for view in self.plugins.list()}
        waiting = {name: error for name, error in self._failed_starts.items() if started.get(name) is error}
        return {**self._failures, **waiting}

    # --- use ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def run(self, agent: str, *, purpose: str | None = None) -> AsyncIterator[Run]:
        """Open a run for an agent in this process, once the plugins have settled."""
        await self.settled()
        road = self.gateway.through(EVERYTHING)
        runs = AgentRuns(road, self.traces, self.open_runs, platform="agent", transport="in-process")
        async with runs.begin(agent, purpose=purpose) as run:
            yield run

    def redact(self, text: str) -> str:
        """``text`` without the secrets that it holds, by name, by shape or because this bridge handed them out."""
        return self._redactor.redact(text)

    def events(self, *kinds: type[Event]) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Listen from now on: to events of ``kinds``, to all where none is named."""
        return self._events.listen(*kinds)

    def announce(self, url: str) -> None:
        """Say in ``<state>/bridge.json`` that the REST API answers at ``url``, until this bridge is closed."""
        if self._remember:
            self._endpoint.announce(url)

    def converter(self, dialect: str) -> ToolConverter:
        """The converter of ``dialect``; raises ``HookPluginRequired`` where no hook plugin offers one."""
        if dialect not in self.lineup.converters:
            raise HookPluginRequired(f"no hook plugin offers a converter for {dialect!r}", hint="see bascule hooks")
        return self.lineup.converters[dialect]

    def readiness(self) -> Mapping[str, str]:
        """What is not ready, and why."""
        waiting = {
            view.plugin_id: view.reason or view.state.value.replace("_", " ")
            for view in self.plugins.list()
            if view.state in (PluginState.ENABLING, PluginState.ERROR)
        }
        return {**{name: str(error) for name, error in self.failures.items()}, **waiting}

    @asynccontextmanager
    async def serve(
        self, only: str | None = None, streams: StandardStreams | None = None
    ) -> AsyncIterator[Sequence[str]]:
        """Open the server transports that the hook plugins offer; yields the names of those that are open.

        Those that are for demand alone are opened by name (``only``), and may be given this process's ``streams``.

        One that does not open is reported in ``failures`` and hurts no other. Raises ``closed`` where it is set:
        ``HookPluginRequired`` where a guard is missing, ``SettingsInvalid`` where a hook plugin's section is wrong.
        """
        if self.closed is not None:
            raise self.closed
        async with AsyncExitStack() as stack:
            opened = self.opened = []
            for name, transport in self.lineup.server_transports.items():
                wanted = name == only if only else not getattr(transport, "on_demand", False)
                if wanted and await self._open(stack, name, transport, streams):
                    opened.append(name)
            if self._remember:
                self._endpoint.all_open()
            yield opened

    async def _open(
        self, stack: AsyncExitStack, name: str, transport: ServerTransport, streams: StandardStreams | None
    ) -> bool:
        from .view import View  # with all that serving takes: a one-shot command does without

        try:
            stack.enter_context(masked(self._redactor.redact))  # View has imported what was not there before
            await stack.enter_async_context(transport.serve(View(self, transport, streams)))
            stack.enter_context(masked(self._redactor.redact))  # and so has the transport, such as an HTTP server
        except BasculeError as error:
            self._failures[name] = error
        except Exception as error:
            log.exception("server transport %s failed", name)
            failure = self._failures[name] = BasculeError(f"the server transport {name} did not open: {error}")
            self._redactor.redact_error(failure)
        else:
            return True
        return False
