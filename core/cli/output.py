"""What the command line prints: words and tables for people, JSON for programs. rich is imported where it is used.

Whatever a stranger wrote is made harmless here: for people what could steer a terminal is left out, in JSON it is
escaped, which loses nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import click

from ...hookspecs.errors import BasculeError
from ...hookspecs.tools import JsonObject, ToolResult
from ..hygiene import escaped

_STEERING = (
    "\x7f-\x9f"  # DEL and C1, of which one alone begins an escape sequence
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # other lines and other directions than the eye sees
)
_HARMFUL = re.compile(rf"[\x00-\x08\x0b-\x1f{_STEERING}]")
_TO_ESCAPE = re.compile(f"[{_STEERING}\ud800-\udfff]")

_WIDTH = 200  # of a table that no terminal bounds

_claimed: list[TextIO] = []


def claim_stdout() -> None:
    """Keep stdout for what the command itself prints, so that JSON stays JSON.

    Whatever else writes there (a hook plugin that prints, a program that it starts) comes out on stderr.
    """
    if not _claimed:
        sys.stdout.flush()
        ours = os.dup(1)
        os.dup2(2, 1)
        _claimed.append(
            open(ours, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
        )


def give_stdout() -> int:
    """Hand the descriptor of stdout to someone else; what the command prints from now on comes out on stderr, too."""
    claim_stdout()
    ours = _claimed[0]
    _claimed[0] = sys.stderr
    return ours.fileno()


def out() -> TextIO:
    """Where what the command prints goes."""
    return _claimed[0] if _claimed else sys.stdout


def forget_unread() -> None:
    """Give streams whose reader has left another, before Python flushes them at exit and complains."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr, out()):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def harmless(text: str) -> str:
    """``text`` from a stranger, fit for a terminal and for eyes: what does not show is written out."""
    return escaped(_HARMFUL.sub("", text))


def paint(text: str, **style: Any) -> str:
    """``text`` in colour; plain where the user wants none (https://no-color.org) or no terminal shows it."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def say(text: str, *, err: bool = False, **style: Any) -> None:
    """One line for people."""
    line(paint(harmless(text), **style) if style else harmless(text), err=err)


def line(text: str, *, err: bool = False) -> None:
    """One line that is ready to be printed; colour is taken out where no terminal shows it."""
    click.echo(text, file=sys.stderr if err else out())


def json_text(value: Any, *, indent: int | None = None) -> str:
    """``value`` as JSON that steers no terminal and fits stdout's encoding."""
    plain = not (out().encoding or "").lower().replace("-", "").startswith("utf8")
    text = json.dumps(value, ensure_ascii=plain, indent=indent, default=str)
    return _TO_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_json(value: Any) -> Any:
    """``value`` as a reader of its JSON would have it."""
    return json.loads(json.dumps(value, default=str))


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    line(json_text(value, indent=2 if out().isatty() else None))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table for people; cells are plain text."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    console = Console(file=out(), highlight=False, width=None if out().isatty() else _WIDTH)
    with console.capture() as drawn:  # rich itself ends the process where the reader of stdout has left
        console.print(table)
    line("\n".join(drawn_line.rstrip() for drawn_line in drawn.get().splitlines()))


def show_error(error: BasculeError, *, as_json: bool) -> None:
    """The code, what was wrong, where, and what to do next; then what the owner alone may see."""
    if as_json:
        print_json({"error": error_as_dict(error)})
        return
    place = f" {harmless(error.where)}:" if error.where else ""
    line(f"{paint(error.code, fg='red')}:{place} {harmless(error.message)}", err=True)
    if error.hint:
        say(f"  → {error.hint}", err=True)
    if error.diagnosis:
        say("  the server's last words on stderr:", err=True)
        for words in error.diagnosis.splitlines():
            say(f"  │ {words}", err=True)


def error_as_dict(error: BasculeError) -> dict[str, Any]:
    """An error as JSON for the owner, who may see the diagnosis."""
    return {**error.as_dict(), **({"diagnosis": error.diagnosis} if error.diagnosis else {})}


def result_as_dict(result: ToolResult) -> dict[str, Any]:
    """A result as JSON for programs (N1.1: nothing of the protocol)."""
    return {"output": result.output, "content": list(result.content), "failed": result.failed}


def print_result(result: ToolResult) -> None:
    """A result for people: its structured output, else its text, else what kind of thing it holds."""
    if result.output != list(result.content):
        line(json_text(result.output, indent=2))
        return
    for block in result.content:
        say(_shown(block))


def _shown(block: JsonObject) -> str:
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    kind, mime = block.get("type"), block.get("mimeType", "")
    size = len(block["data"]) * 3 // 4 if isinstance(block.get("data"), str) else None
    return f"[{kind} {mime}{f', about {size:,} bytes' if size is not None else ''}]"
