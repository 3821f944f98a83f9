"""``bascule serve``: host plugins until stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ...hookspecs import Directions, Event, HostChanged
from ..bridge import Bridge
from ..settings import Settings
from . import options
from .output import harmless, print_json, show_error


@click.command()
@options.hosting
@options.common
def serve(
    plugins: tuple[Path, ...],
    dev: bool,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Host plugins until stopped (Ctrl-C or SIGTERM), and open every way in that the hook plugins offer.

    \b
    bascule serve --dev --plugin fixtures/mcp-echo
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose, dev=dev)
    if dev:
        options.say_dev(plugins)
    run_fast(_serve(settings, plugins, dev, as_json))
    return 0


def run_fast(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where the extra ``fast`` brought it."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)


async def _serve(settings: Settings, plugins: tuple[Path, ...], dev: bool, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows has no such handlers; Ctrl-C still ends asyncio.run
            loop.add_signal_handler(name, stop.set)
    async with Bridge(settings, plugins=plugins, grant=dev, remember=True) as bridge, bridge.serve() as opened:
        _check_open(bridge, opened)
        if not as_json:
            _show_directions(bridge, opened)
        stopping = asyncio.create_task(stop.wait())
        tasks: set[asyncio.Task[Any]] = {
            asyncio.create_task(_tell(bridge, as_json)),
            asyncio.create_task(_welcome(bridge, opened, as_json)),
        }
        try:
            while not stopping.done():
                done, tasks = await asyncio.wait({*tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
    if not as_json:
        click.echo("stopped")


def _check_open(bridge: Bridge, opened: Sequence[str]) -> None:
    """No way in at all, though some were offered, is an error; one that failed beside others is told."""
    failed = [bridge.failures[name] for name in bridge.lineup.server_transports if name in bridge.failures]
    if failed and not opened:
        raise failed[0]


def _directions(bridge: Bridge, opened: Sequence[str]) -> dict[str, Directions]:
    found = {name: getattr(bridge.lineup.server_transports[name], "directions", None) for name in opened}
    return {name: where for name, where in found.items() if isinstance(where, Directions)}


def _show_directions(bridge: Bridge, opened: Sequence[str]) -> None:
    for name, where in _directions(bridge, opened).items():
        click.echo(f"{name}: {where.url}")
        for whom, text in where.paste.items():
            click.echo(f"  {whom}:\n    {text}")


async def _welcome(bridge: Bridge, opened: Sequence[str], as_json: bool) -> None:
    await bridge.settled()
    views = bridge.plugins.list()
    if as_json:
        urls = {name: where.url for name, where in _directions(bridge, opened).items()}
        plugins = [asdict(view) for view in views]
        print_json({"event": "serving", "transports": opened, "urls": urls, "plugins": plugins})
        return
    for error in bridge.failures.values():
        show_error(error, as_json=False)
    tools = sum(len(view.tools) for view in views)
    ways = ", ".join(opened) or "none: no hook plugin offers a server transport"
    click.echo(f"serving {tools} tools of {len(views)} plugins; ways in: {ways}")
    click.echo("Ctrl-C stops")


async def _tell(bridge: Bridge, as_json: bool) -> None:
    async with bridge.events() as events:
        async for event in events:
            _show(event, as_json)


def _show(event: Event, as_json: bool) -> None:
    if as_json:
        print_json({"event": type(event).__name__, **asdict(event)})
    elif isinstance(event, HostChanged):
        reason = f": {harmless(event.reason)}" if event.reason else ""
        click.echo(f"{event.plugin_id} is {event.plugin_state.replace('_', ' ')}{reason}")
