"""The person at the terminal: asked where a tool wants a yes, told how far a call has come."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Self

import click

from ...hookspecs import AskPerson, Progress, ToolCall
from .output import harmless, json_text, say


def asker(yes: bool) -> AskPerson | None:
    """Who answers a tool's question: ``--yes``, the person at the terminal, or no one."""
    if yes:
        return _always
    return _at_the_terminal if sys.stdin.isatty() else None


async def _always(question: str, call: ToolCall) -> bool:
    return True


async def _at_the_terminal(question: str, call: ToolCall) -> bool:
    """Ask on stderr, so that stdout holds the result alone."""
    say(json_text(call.arguments, indent=2), err=True)
    click.echo(f"{harmless(question)} [y/N]: ", err=True, nl=False)
    return (await _line()).strip().lower() in ("y", "yes")


async def _line() -> str:
    """A line from the terminal, without a thread: no one could wake that one when the call is broken off."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        loop.remove_reader(sys.stdin)
        if not typed.done():
            typed.set_result(sys.stdin.readline())  # a terminal is readable once a whole line is there

    try:
        loop.add_reader(sys.stdin, read)
    except NotImplementedError:  # Windows
        return await asyncio.to_thread(sys.stdin.readline)
    try:
        return await typed
    finally:
        loop.remove_reader(sys.stdin)


class ProgressLine:
    """One line on a terminal's stderr that says how far the call has come; gone when the call is over."""

    def __init__(self) -> None:
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __call__(self, progress: Progress) -> None:
        if not sys.stderr.isatty():
            return
        total = f"/{progress.total:g}" if progress.total is not None else ""
        message = " ".join(harmless(progress.message or "").split())[:100]
        click.echo(f"\r\033[K… {progress.progress:g}{total} {message}", nl=False, err=True)
        self._shown = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
