"""Ways to MCP servers (client transports, upstream) and ways in for those who call us (server transports, downstream).

A transport carries whole JSON-RPC messages and knows nothing of what they say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from .config import Config, Limits
from .exposure import Exposure
from .launchers import Child, LaunchRequest
from .markers import hookspec

if TYPE_CHECKING:
    from .bridge import BridgeView


class Channel(Protocol):
    """A two-way stream of whole JSON-RPC messages, one in each ``bytes``; framing is the transport's affair.

    Iteration ends when the peer has closed in order, and raises ``ChannelClosed`` when it broke off or
    ``ChannelFault`` when it broke the framing or a bound.

    A channel may have two methods more, which spare a busy session a coroutine for each message. ``send_now(message)
    -> bool`` is ``send`` without a wait; ``False`` = not taken, since it would have to wait. ``receive_now() ->
    list[bytes]`` takes the messages that are there already, in order, none twice, and may be called whenever the
    iterator has given one.
    """

    async def send(self, message: bytes) -> None:
        """Hand one message over in order; waits, within a bound, while the peer reads slowly.

        Raises ``ChannelClosed`` when it can't be delivered any more.
        """

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Diagnostics(Protocol):
    """Where a transport leaves what only the owner may see (N6.4). Bounded; never blocks."""

    def stderr(self, chunk: bytes) -> None:
        """Keep the end of what the server writes beside the protocol."""

    def skipped(self, line: bytes) -> None:
        """Count a line that is no protocol message and was tolerated; the first few are kept."""


@dataclass(frozen=True, slots=True)
class ConnectContext:
    """What a client transport gets for one connection.

    ``launch`` starts a child through the core's gate and the owner's launcher; it raises
    ``TrustApprovalRequired`` or ``PluginHostStartFailed``. The child is ended by the core, too, when the
    connection is left: a transport that forgets it leaks nothing.
    """

    plugin_id: str
    directory: Path
    launch: Callable[[LaunchRequest], Awaitable[Child]]
    limits: Limits
    diagnostics: Diagnostics


class ClientTransport(Protocol):
    """One way to reach an MCP server; ``name`` is what ``backend.transport`` says in a manifest."""

    @property
    def name(self) -> str: ...
    @property
    def backend_model(self) -> type[BaseModel]:
        """Validates the keys of ``backend`` that are this transport's own."""

    @property
    def starts_process(self) -> bool:
        """Whether a connection starts a child process: such a plugin passes the environment gate (N6.9)."""

    def preview(self, backend: Any, directory: Path) -> LaunchRequest | None:
        """Say what :meth:`connect` would start, starting nothing; ``None`` where it starts nothing."""

    def connect(self, backend: Any, context: ConnectContext) -> AbstractAsyncContextManager[Channel]:
        """Open one connection: entered = usable, left = closed. ``backend`` is a ``backend_model``.

        Raises ``PluginHostStartFailed`` or ``ChannelClosed`` where there is no reaching the server.
        """


@dataclass(frozen=True, slots=True)
class Directions:
    """How callers reach a way in. ``paste`` holds what they may copy, under a few words that say for whom."""

    url: str
    paste: Mapping[str, str] = field(default_factory=dict)


class ServerTransport(Protocol):
    """One way in. ``exposure`` is read from the transport's own section of the settings (A2).

    A transport may have an attribute ``directions`` as well, a :class:`Directions`: ``bascule serve`` shows them. One
    whose ``on_demand`` is true is opened only where it is asked for by name: ``stdio`` by ``bascule stdio``.
    """

    @property
    def name(self) -> str: ...
    @property
    def exposure(self) -> Exposure: ...

    def serve(self, bridge: BridgeView) -> AbstractAsyncContextManager[None]:
        """Accept callers: entered = accepting, left = drained."""


@hookspec
def bascule_client_transports(config: Config) -> Iterable[ClientTransport]:
    """Offer ways to reach MCP servers.

    Called once, when the bridge is assembled. All are offered side by side; names are unique.

    Example::

        @hookimpl
        def bascule_client_transports(config):
            return [TcpTransport()]
    """
    raise NotImplementedError


@hookspec
def bascule_server_transports(config: Config) -> Iterable[ServerTransport]:
    """Offer ways in for callers.

    Called once, when the bridge is assembled. All that are offered are served by ``bascule serve``; names are
    unique.

    Example::

        @hookimpl
        def bascule_server_transports(config):
            return [SseServer(config.section(SseSettings))]
    """
    raise NotImplementedError
