"""The bridge, as a server transport may see it: everything that one gets, and nothing more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from .approvals import ApprovalView
from .converters import ToolConverter
from .errors import BasculeError
from .http_servers import ASGIApp, Bind
from .observers import Event
from .tools import Caller, Identity, LogListener, ProgressListener, ToolCall, ToolDefinition, ToolResult
from .transports import Channel


class PluginState(StrEnum):
    """What becomes of a plugin, in the order of its life."""

    INSTALLED = "installed"
    AWAITING_GRANTS = "awaiting_grants"
    DISABLED = "disabled"
    ENABLING = "enabling"
    READY = "ready"
    ERROR = "error"
    DISABLING = "disabling"


class HostStatus(StrEnum):
    """What becomes of a plugin's running side (N7.2)."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class HostView:
    """The running side of a plugin, as anyone may see it (N7.1). Times are ISO 8601, UTC."""

    plugin_id: str
    backend_type: str
    transport: str
    status: HostStatus
    tools_count: int = 0
    started_at: str | None = None
    last_seen_at: str | None = None
    protocol_version: str | None = None
    server_name: str | None = None
    server_version: str | None = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PluginView:
    """An installed plugin, as anyone may see it.

    ``approval`` is the :class:`ApprovalState` that was last seen, ``quarantined`` names what its server lists (or says
    in its instructions) and the owner has not approved: it is neither listed nor callable.

    ``launcher`` starts its server and gives it ``isolation`` (``none``, ``reduced`` or ``full``); both are empty
    where it starts no process, or where no launcher may start it.
    """

    plugin_id: str
    name: str
    version: str
    directory: Path
    state: PluginState
    reason: str | None
    permissions: tuple[str, ...]
    granted: tuple[str, ...]
    tools: tuple[str, ...]
    restart_allowed: bool
    host: HostView
    enabled: bool = False
    approval: str = "none"
    quarantined: tuple[str, ...] = ()
    launcher: str = ""
    isolation: str = ""


class AskPerson(Protocol):
    """Put a question to whoever can answer it; ``False`` is a no. Waits for a person, so bound it."""

    def __call__(self, question: str, call: ToolCall) -> Awaitable[bool]: ...


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How an MCP session with a caller is to be held.

    ``names`` is ``canonical`` or ``flat`` (aliases); no message to the client is longer than ``message_bytes``.
    Once the client has said its last word (the channel's iteration has ended), what it asked before may still be
    answered within ``linger_seconds``: for a channel whose other direction stays open.
    """

    names: str = "canonical"
    message_bytes: int = 2 * 1024 * 1024
    linger_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StandardStreams:
    """The descriptors by which whoever started this process speaks with it; nobody else reads or writes them.

    ``ended`` is to be called once, when the client has left: with the fault where it broke the channel's bounds.
    ``names`` is what the command line wants of ``SessionOptions``.
    """

    stdin: int
    stdout: int
    ended: Callable[[BasculeError | None], None]
    names: str | None = None


class Gateway(Protocol):
    """The one road to a tool: find, check, permit, send. Bound to the exposure of the way in that holds it."""

    async def tools(self, caller: Caller) -> Sequence[ToolDefinition]:
        """List the tools that ``caller`` may know, in a stable order."""

    async def call(
        self,
        call: ToolCall,
        *,
        progress: ProgressListener | None = None,
        ask: AskPerson | None = None,
        logs: LogListener | None = None,
    ) -> ToolResult:
        """Call a tool; cancelling the task that awaits this is the cancel.

        ``logs`` hears what the tool's server logs meanwhile, if all calls that are in flight there were made with this
        same listener: a log message does not say whose call it is about.

        Raises a ``CallError``: a failed tool is ``ToolCallFailed`` with the tool's own answer in ``result``.
        """

    async def attend(self, channel: Channel, caller: Caller, options: SessionOptions) -> None:
        """Speak MCP with ``caller`` over ``channel`` until it ends."""


class PluginAdmin(Protocol):
    """The life of plugins (N4). Serialised for each plugin, parallel between plugins."""

    def list(self) -> Sequence[PluginView]: ...

    def get(self, plugin_id: str) -> PluginView:
        """Raise ``PluginNotFound`` where there is none."""

    async def install(self, directory: Path) -> PluginView:
        """Read the manifest; no process starts (N3.5). Raises an ``ExtensionError`` or ``PluginAlreadyInstalled``."""

    async def grant(self, plugin_id: str, permissions: Sequence[str]) -> PluginView:
        """Make ``permissions`` the whole of what the plugin may do; taking one from an enabled plugin disables it."""

    async def enable(self, plugin_id: str) -> PluginView:
        """Start the host and register its tools, all or nothing (N4.1). Raises what went wrong."""

    async def disable(self, plugin_id: str) -> PluginView:
        """Withdraw the tools, then end the host (N4.2.1)."""

    async def restart(self, plugin_id: str) -> PluginView:
        """Stop and start a running or failed host; raises ``PluginHostUnavailable`` for any other (N7.4)."""

    async def uninstall(self, plugin_id: str) -> None:
        """Disable the plugin and forget it; its directory is left alone."""

    async def approval(self, plugin_id: str) -> ApprovalView:
        """Look at everything that the plugin's approval rests on, as it is now; starts nothing.

        Raises ``PackageUnsafe`` and the like where there is nothing that could be approved.
        """

    async def approve(
        self, plugin_id: str, digest: str, *, tools: Sequence[str] | None = None, unsandboxed: bool = False
    ) -> ApprovalView:
        """Say yes to what was shown: ``digest`` is that of the view.

        The first yes is to the command: a package that it runs is fetched, the server is started once, without grants
        and calls, and what it lists stands in the view that comes back. The second is to the tools. In the state
        ``complete`` it takes tools out of quarantine: ``tools`` names them, ``None`` means all. ``unsandboxed`` is
        the express yes to a server that is isolated from nothing.

        Raises ``ApprovalOutdated`` where ``digest`` is not what would run now, and what the one start raises.
        """

    def logs(self, plugin_id: str) -> str:
        """The masked end of the server's stderr, for the owner alone (N6.4)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call in a trace.

    ``decision`` is ``allow``, ``deny``, ``ask`` or ``None`` where it never came to one; times are in seconds:
    ``queued`` before it was sent, ``validating`` the arguments, ``upstream`` until the answer. ``arguments``
    and ``result`` are redacted JSON, cut off at a bound, or ``None`` where detail was dropped. ``outcome`` is
    ``ok``, ``error``, or ``None`` while it runs or where the bridge did not live to see its end.
    """

    id: str
    run: str | None
    tool: str
    plugin: str | None
    generation: int | None
    started_at: str
    caller: Mapping[str, Any] = field(default_factory=dict)
    decision: str | None = None
    decision_reason: str | None = None
    decision_rule: str | None = None
    outcome: str | None = None
    code: str | None = None
    queued: float | None = None
    validating: float | None = None
    upstream: float | None = None
    total: float | None = None
    arguments: str | None = None
    arguments_bytes: int | None = None
    result: str | None = None
    result_bytes: int | None = None
    output_valid: bool | None = None


@dataclass(frozen=True, slots=True)
class RunView:
    """An agent's run.

    ``state`` is ``running``, ``finished``, ``failed``, ``abandoned`` (open, and unused for too long) or ``crashed``
    (its process, or whoever owned it, is gone).
    """

    id: str
    agent: str
    purpose: str | None
    state: str
    started_at: str
    ended_at: str | None
    steps: int


class TraceReader(Protocol):
    """What was called, and what came of it."""

    async def runs(self, *, limit: int = 50, before: str | None = None) -> Sequence[RunView]:
        """The newest runs first; ``before`` the run of this id, of which an unknown one has none."""

    async def run(self, run_id: str) -> tuple[RunView, Sequence[Step]]:
        """One run with its steps in order; raises ``TraceNotFound``."""

    async def trace(self, trace_id: str) -> Step:
        """The one step of this id; raises ``TraceNotFound``."""


class Run(Protocol):
    """A run of an agent: its calls leave their steps in one trace."""

    @property
    def id(self) -> str: ...

    async def tools(self) -> Sequence[ToolDefinition]:
        """The tools that this agent may call."""

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: ProgressListener | None = None,
        ask: AskPerson | None = None,
    ) -> ToolResult:
        """Call ``tool`` (by its id or its alias); raises a ``CallError``."""


class Runs(Protocol):
    """Runs of agents: ``begin`` for one in this process, the rest for one that only comes by."""

    def begin(self, agent: str, *, purpose: str | None = None) -> AbstractAsyncContextManager[Run]:
        """Open a run: left in order = finished, left by an exception = failed."""

    async def open(self, agent: str, *, purpose: str | None = None, owner: str = "") -> RunView:
        """Open a run that outlives the request, also a restart of the bridge; ``owner`` is the token's name.

        Unused for ``limits.run_idle_seconds`` it is abandoned. Raises ``RunLimitReached``.
        """

    def owned(self, run_id: str, owner: str) -> None:
        """Say that a call comes under this run, which is used thereby; raises ``RunNotFound`` or ``RunEnded``.

        A run of another owner answers as an unknown one.
        """

    async def finish(self, run_id: str, *, state: str = "finished", owner: str | None = None) -> RunView:
        """End an open run as ``finished`` or ``failed``; raises ``RunNotFound`` or ``RunEnded``.

        ``owner`` as for ``owned``; without one, whoever asks may end any.
        """


class Identities(Protocol):
    """Whose token is this? The hashes stay in the core."""

    async def verify(self, secret: str) -> Identity | None:
        """Name the owner of ``secret``, ``None`` for an unknown or revoked one."""


@dataclass(frozen=True, slots=True)
class HttpPolicy:
    """What the guard in front of an app demands.

    ``scopes`` maps a path prefix to the scope it needs, where an empty one means that any token will do and the app
    looks at ``scope["bascule.identity"]`` for itself; ``open_paths`` answer without a token;
    ``allowed_hosts`` and ``allowed_origins`` add to those of the bound address.
    """

    scopes: Mapping[str, str] = field(default_factory=dict)
    open_paths: frozenset[str] = frozenset()
    allowed_hosts: frozenset[str] = frozenset()
    allowed_origins: frozenset[str] = frozenset()
    tokens_required: bool = False


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """The bridge at a glance. ``isolation`` is the launcher's tier, ``transports`` are the ways in that are open.

    ``failures`` holds what may be shown of each thing that did not start, ``readiness`` why it is not ready yet.
    """

    version: str
    environment: str
    http_server: str
    launcher: str
    isolation: str
    transports: tuple[str, ...]
    plugins: tuple[PluginView, ...]
    failures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    readiness: Mapping[str, str] = field(default_factory=dict)


class BridgeView(Protocol):
    """All that a server transport gets."""

    @property
    def gateway(self) -> Gateway: ...
    @property
    def plugins(self) -> PluginAdmin: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def traces(self) -> TraceReader: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def environment(self) -> str: ...
    @property
    def converters(self) -> Mapping[str, ToolConverter]:
        """Every converter by its dialect."""

    @property
    def streams(self) -> StandardStreams | None:
        """Where this process is a client's command (``bascule stdio``): its streams; else ``None``."""

    def status(self) -> BridgeStatus:
        """The bridge at a glance, for who may read."""

    def events(self, *kinds: type[Event]) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Listen to events from now on, to those of ``kinds`` if any are named, which spares every call its event.

        Bounded: a slow reader is told ``Lost(n)``.
        """

    def readiness(self) -> Mapping[str, str]:
        """What is not ready, and why; empty = all is well."""

    def announce(self, url: str) -> None:
        """Say that the REST API answers at ``url``, for the command line to find: ``<state>/bridge.json``.

        It is there until the bridge is closed; a later call replaces an earlier one.
        """

    def serve_http(self, app: ASGIApp, bind: Bind, policy: HttpPolicy) -> AbstractAsyncContextManager[None]:
        """Run ``app`` behind the guard on the HTTP server that the owner chose."""
