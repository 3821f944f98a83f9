"""Runs what a command does, and ends it in order when a signal says so.

Ctrl-C, SIGTERM and SIGHUP cancel a one-shot command: its call is cancelled and traced as such, its servers are ended,
then it leaves with the signal's exit code. ``serve`` takes the same signals for "that was it". A signal that whoever
started us has turned off (``nohup``) stays off. More signals change nothing: the way down is bounded.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from .faults import Stopped

T = TypeVar("T")

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a one-shot command's work; raise ``Stopped`` once a signal has ended it."""
    return asyncio.run(_until_a_signal(work))


async def _until_a_signal(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    caught: list[int] = []

    def end(number: int) -> None:
        if not caught:
            caught.append(number)
            task.cancel()

    with on_signals(end):
        try:
            return await task
        except asyncio.CancelledError:
            if caught:
                raise Stopped(caught[0]) from None
            raise


@contextmanager
def on_signals(act: Callable[[int], None]) -> Iterator[None]:
    """Call ``act`` on the loop for each signal that asks us to end."""
    loop = asyncio.get_running_loop()
    taken = []
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue
        try:
            loop.add_signal_handler(number, act, number)
        except NotImplementedError:  # Windows: Ctrl-C cancels what asyncio.run runs, as it always does
            continue
        taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
