"""The client transport ``stdio``: an MCP server as a child process, one JSON-RPC message a line.

Source: MCP 2025-11-25, basic/transports, "stdio". The way down, written first: the writer gets half a second to
flush, then the child's stdin is closed and its tree ended (``Child.end_tree``) while stdout and stderr are drained,
since a full pipe would keep a child from leaving; then the three tasks of the channel are cancelled and awaited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from ...hookspecs import ClientTransport, ConnectContext, LaunchRequest, hookimpl
from .backend import StdioBackend
from .channel import StdioChannel


class StdioTransport:
    """Starts the server that the manifest names and speaks with it over its pipes."""

    name = "stdio"
    backend_model = StdioBackend
    starts_process = True

    def preview(self, backend: StdioBackend, directory: Path) -> LaunchRequest:
        """Say what a connection starts: ``connect`` asks this very function."""
        return LaunchRequest(
            argv=(backend.command, *backend.args),
            cwd=directory,
            env={name: value.reveal() for name, value in backend.env.items()},
            pass_env=backend.pass_env,
            shutdown_grace_seconds=backend.shutdown_grace_seconds,
        )

    @asynccontextmanager
    async def connect(self, backend: StdioBackend, context: ConnectContext) -> AsyncIterator[StdioChannel]:
        """Start the child; leaving ends its whole tree."""
        child = await context.launch(self.preview(backend, context.directory))
        channel = StdioChannel(child, context.limits, context.diagnostics, tolerant=backend.stdout == "tolerant")
        grace = backend.shutdown_grace_seconds
        try:
            channel.open()
            yield channel
        finally:
            await channel.close(context.limits.shutdown_grace_seconds if grace is None else grace)


@hookimpl
def bascule_client_transports() -> Iterable[ClientTransport]:
    """Offer ``stdio``."""
    return [StdioTransport()]
