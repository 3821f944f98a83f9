"""``bascule serve``: host plugins until stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

import click

from ...hookspecs import Directions, Event, HostChanged
from ..bridge import Bridge
from ..settings import Settings
from . import options
from .output import error_as_dict, harmless, json_text, out, show_error
from .running import on_signals

_LAST_LINES_SECONDS = 1.0


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
    """Serve until a signal comes, or whoever reads our output leaves."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    lines = Lines(out(), lambda: loop.call_soon_threadsafe(stop.set))
    with on_signals(lambda _: stop.set()):
        kinds = () if as_json else (HostChanged,)
        async with (
            Bridge(settings, plugins=plugins, grant=dev, remember=True) as bridge,
            bridge.events(*kinds) as events,
        ):
            telling = asyncio.create_task(_tell(events, lines, as_json))
            try:
                async with bridge.serve() as opened:
                    _check_open(bridge, opened)
                    if not as_json:
                        _show_directions(bridge, opened, lines)
                    if await _settled(bridge, stop):
                        _welcome(bridge, opened, lines, as_json)
                        _spare_the_collector()
                        await stop.wait()
            finally:
                telling.cancel()
                with suppress(asyncio.CancelledError):
                    await telling
        lines.put(json_text({"event": "stopped"}) if as_json else "stopped")
        lines.close()


def _spare_the_collector() -> None:
    """What stands now stays: the garbage collector need not go through it again and again while calls come."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def _settled(bridge: Bridge, stop: asyncio.Event) -> bool:
    """Wait until the plugins are up or have failed; ``False`` where it is to stop before that."""
    waiting = {asyncio.create_task(bridge.settled()), asyncio.create_task(stop.wait())}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return not stop.is_set()


def _check_open(bridge: Bridge, opened: Sequence[str]) -> None:
    """No way in at all, though some were offered, is an error; one that failed beside others is told."""
    failed = [bridge.failures[name] for name in bridge.lineup.server_transports if name in bridge.failures]
    if failed and not opened:
        raise failed[0]


def _directions(bridge: Bridge, opened: Sequence[str]) -> dict[str, Directions]:
    found = {name: getattr(bridge.lineup.server_transports[name], "directions", None) for name in opened}
    return {name: where for name, where in found.items() if isinstance(where, Directions)}


def _show_directions(bridge: Bridge, opened: Sequence[str], lines: Lines) -> None:
    for name, where in _directions(bridge, opened).items():
        lines.put(f"{name}: {where.url}")
        for whom, text in where.paste.items():
            lines.put(f"  {whom}:\n    {text}")


def _welcome(bridge: Bridge, opened: Sequence[str], lines: Lines, as_json: bool) -> None:
    views = bridge.plugins.list()
    if as_json:
        failures = {name: error_as_dict(error) for name, error in bridge.failures.items()}
        plugins = [asdict(view) for view in views]
        urls = {name: where.url for name, where in _directions(bridge, opened).items()}
        serving = {"event": "serving", "transports": opened, "urls": urls, "plugins": plugins, "failures": failures}
        lines.put(json_text(serving))
        return
    for error in bridge.failures.values():
        show_error(error, as_json=False)
    tools = sum(len(view.tools) for view in views)
    ways = ", ".join(opened) or "none: no hook plugin offers a server transport"
    lines.put(f"serving {_count(tools, 'tool')} of {_count(len(views), 'plugin')}; ways in: {ways}")
    lines.put("Ctrl-C stops")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


async def _tell(events: AsyncIterator[Event], lines: Lines, as_json: bool) -> None:
    async for event in events:
        if as_json:
            lines.put(json_text({"event": type(event).__name__, **asdict(event)}))
        elif isinstance(event, HostChanged):
            reason = f": {event.reason}" if event.reason else ""
            lines.put(harmless(f"{event.plugin_id} is {event.plugin_state.replace('_', ' ')}{reason}"))


class Lines:
    """Writes lines to a stream from a thread of its own: a reader that pauses must not stop the bridge.

    ``gone`` is called, in that thread, once the reader has left. Lines beyond the bound are dropped.
    """

    _MOST = 10_000

    def __init__(self, stream: TextIO, gone: Callable[[], object]) -> None:
        self._stream = stream
        self._gone = gone
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        if self._lines.qsize() < self._MOST:
            self._lines.put(line)

    def close(self) -> None:
        """Give what waits a moment to be written."""
        self._lines.put(None)
        self._thread.join(_LAST_LINES_SECONDS)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            data = f"{line}\n".encode(self._stream.encoding, self._stream.errors or "strict")
            try:
                while data:
                    # past the buffer: at exit Python would wait for the lock that a stuck write holds
                    data = data[os.write(self._stream.fileno(), data) :]
            except OSError:
                with suppress(RuntimeError):  # the loop has ended
                    self._gone()
                return
