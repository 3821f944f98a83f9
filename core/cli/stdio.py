"""``bascule stdio``: an MCP client starts Bascule as its command and speaks with it over stdin and stdout."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from ...hookspecs import BasculeError, HookPluginRequired, PluginState, StandardStreams
from ..bridge import Bridge
from ..settings import Settings
from . import options
from .output import give_stdout, show_error
from .running import on_signals
from .serve import Lines

_TRANSPORT = "stdio"
_SETTLE_SECONDS = 10.0  # clients wait for the first answer about half a minute


@click.command()
@options.hosting
@click.option(
    "--names",
    type=click.Choice(["canonical", "flat"]),
    help="flat: names for models that take only letters, digits, _ and -; instead of the setting's.",
)
@options.common
def stdio(
    plugins: tuple[Path, ...],
    dev: bool,
    names: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Speak MCP on stdin and stdout, for clients that start their servers as commands; nothing else is written there.

    Hosts the given plugins; without any, those that are enabled in the state directory. Ends when the client does.

    \b
    bascule stdio --dev --plugin fixtures/mcp-echo
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose, dev=dev)
    stdin, stdout = _take_stdin(), give_stdout()
    with _logging_aside():
        if dev:
            options.say_dev(plugins)
        asyncio.run(_speak(settings, plugins, dev, names, stdin, stdout))
    return 0


def _take_stdin() -> int:
    """Keep stdin for the protocol: whatever else reads there (say, what a hook plugin starts) finds nothing."""
    ours = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if sys.platform == "win32":
        import msvcrt

        for descriptor in (0, 1, ours):
            msvcrt.setmode(descriptor, os.O_BINARY)
    return ours


async def _speak(
    settings: Settings, plugins: tuple[Path, ...], dev: bool, names: str | None, stdin: int, stdout: int
) -> None:
    """Attend the one client until it leaves, or a signal comes."""
    over: asyncio.Future[BasculeError | None] = asyncio.get_running_loop().create_future()

    def end(fault: BasculeError | None = None) -> None:
        if not over.done():
            over.set_result(fault)

    streams = StandardStreams(stdin, stdout, end, names)
    with on_signals(lambda _: end()):
        # no lock is taken, so that several clients can each have a Bascule of their own
        async with Bridge(settings, plugins=plugins, grant=dev, remember=False, recall=not plugins) as bridge:
            if await _settled(bridge, over):
                _check_plugins(bridge)
                async with bridge.serve(only=_TRANSPORT, streams=streams) as opened:
                    _check_open(bridge, opened)
                    await over
    if (fault := over.result()) is not None:
        raise fault


async def _settled(bridge: Bridge, over: asyncio.Future[BasculeError | None]) -> bool:
    """Wait for the plugins, since many clients list the tools once; a slow one is told of later, as a change.

    ``False`` where it is over before that.
    """
    settling = asyncio.create_task(bridge.settled())
    waited: set[asyncio.Future[Any]] = {settling, over}
    await asyncio.wait(waited, timeout=_SETTLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    settling.cancel()
    with suppress(asyncio.CancelledError):
        await settling
    return not over.done()


def _check_plugins(bridge: Bridge) -> None:
    """One plugin that does not start is told; where none does, there is nothing to speak of."""
    views = bridge.plugins.list()
    failures = list(bridge.failures.values())
    if failures and not any(view.state in (PluginState.READY, PluginState.ENABLING) for view in views):
        raise failures[0]
    if not views:
        raise click.UsageError("there is no plugin: give --plugin DIR, or enable one in the state directory")
    for error in failures:
        show_error(error, as_json=False)


def _check_open(bridge: Bridge, opened: object) -> None:
    if not opened:
        missing = HookPluginRequired(
            f"no hook plugin offers the server transport {_TRANSPORT!r}",
            hint="the built-in stdio_server does, unless it was turned off; see bascule hooks",
        )
        raise bridge.failures.get(_TRANSPORT, missing)


@contextmanager
def _logging_aside() -> Iterator[None]:
    """Log from a thread: many clients never read stderr, and a full pipe must not stop the bridge."""
    lines = Lines(sys.stderr, lambda: None)
    root = logging.getLogger()
    replaced = [handler for handler in root.handlers if type(handler) is logging.StreamHandler]
    aside = _Aside(lines, replaced[0].formatter if replaced else None)
    for handler in replaced:
        root.removeHandler(handler)
    root.addHandler(aside)
    try:
        yield
    finally:
        root.removeHandler(aside)
        lines.close()


class _Aside(logging.Handler):
    def __init__(self, lines: Lines, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._lines = lines
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put(self.format(record))
        except Exception:  # noqa: BLE001 - what can't be formatted is told as the module logging tells it
            self.handleError(record)
