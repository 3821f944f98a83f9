"""What the command line prints: words and tables for people, JSON for programs. rich is imported where it is used."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...hookspecs.errors import BasculeError, ToolCallFailed
from ...hookspecs.tools import JsonObject, ToolResult

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}
"""What a stranger's text must not do to a terminal: escape sequences start with one of these."""


def harmless(text: str) -> str:
    """``text`` from a server, fit for a terminal."""
    return text.translate(_CONTROLS)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None, default=str))


def console() -> Console:
    """A console on stdout; outside a terminal it is wide enough not to cut anything off."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else 200)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> None:
    """A table for people; cells are plain text."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    console().print(table)


def show_error(error: BasculeError, *, as_json: bool) -> None:
    """The code, what was wrong, where, and what to do next; then what the owner alone may see."""
    if as_json:
        print_json({"error": {**error.as_dict(), **({"diagnosis": error.diagnosis} if error.diagnosis else {})}})
        return
    place = f" {error.where}:" if error.where else ""
    click.echo(f"{click.style(error.code, fg='red')}:{place} {harmless(error.message)}", err=True)
    if error.hint:
        click.echo(f"  → {harmless(error.hint)}", err=True)
    if error.diagnosis:
        click.echo("  the server's last words on stderr:", err=True)
        for line in harmless(error.diagnosis).splitlines():
            click.echo(f"  │ {line}", err=True)


def result_as_dict(result: ToolResult) -> dict[str, Any]:
    """A result as JSON for programs (N1.1: nothing of the protocol)."""
    return {"output": result.output, "content": list(result.content), "failed": result.failed}


def print_result(result: ToolResult) -> None:
    """A result for people: its structured output, else its text, else what kind of thing it holds."""
    if isinstance(result.output, dict):
        click.echo(json.dumps(result.output, ensure_ascii=False, indent=2))
        return
    for block in result.content:
        click.echo(harmless(_shown(block)))


def _shown(block: JsonObject) -> str:
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    kind, mime = block.get("type"), block.get("mimeType", "")
    size = len(block["data"]) * 3 // 4 if isinstance(block.get("data"), str) else None
    return f"[{kind} {mime}{f', about {size:,} bytes' if size is not None else ''}]"


def failed_result(error: BasculeError) -> ToolResult | None:
    """The tool's own answer in an error that holds one."""
    return error.result if isinstance(error, ToolCallFailed) else None
