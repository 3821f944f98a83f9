"""``bascule tools`` and ``bascule call``: host the given plugins for as long as the command runs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ...hookspecs import (
    AskPerson,
    BasculeError,
    Progress,
    ToolArgumentsInvalid,
    ToolCall,
    ToolCallFailed,
    ToolDefinition,
)
from ..bridge import Bridge
from ..settings import Settings
from . import options
from .exits import exit_code
from .output import harmless, print_json, print_result, print_table, result_as_dict, show_error

_MAX_ARGUMENTS = 2 * 1024 * 1024


@click.command()
@options.hosting
@click.option("--group", "groups", multiple=True, help="Only tools of this group; may be given more than once.")
@options.common
def tools(
    plugins: tuple[Path, ...],
    dev: bool,
    groups: tuple[str, ...],
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """List the tools of plugins.

    \b
    bascule tools --dev --plugin fixtures/mcp-echo
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose, dev=dev)
    _require_plugins(plugins)
    if dev:
        options.say_dev(plugins)
    listed, failures = asyncio.run(_list(settings, plugins, dev))
    if groups:
        listed = [tool for tool in listed if tool.groups & set(groups)]
    if as_json:
        print_json(
            {
                "tools": [tool.as_dict() for tool in listed],
                "failures": {name: error.as_dict() for name, error in failures.items()},
            }
        )
    else:
        print_tools(listed)
    return _tell_failures(failures, as_json=as_json)


async def _list(
    settings: Settings, plugins: tuple[Path, ...], dev: bool
) -> tuple[list[ToolDefinition], dict[str, BasculeError]]:
    async with (
        Bridge(settings, plugins=plugins, grant=dev, remember=False) as bridge,
        bridge.run("command line", purpose="tools") as run,
    ):
        return list(await run.tools()), dict(bridge.failures)


@click.command()
@click.argument("tool")
@click.argument("arguments", default="{}")
@options.hosting
@click.option("--yes", is_flag=True, help="Answer yes where the tool asks for a confirmation.")
@options.common
def call(
    tool: str,
    arguments: str,
    plugins: tuple[Path, ...],
    dev: bool,
    yes: bool,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Call TOOL with ARGUMENTS, a JSON object ("-" reads it from stdin).

    \b
    bascule call mcp-fixture.echo '{"message": "hello"}' --dev --plugin fixtures/mcp-echo
    """
    given = _read_arguments(arguments)
    settings = options.settings_from(config, state, no_hook_plugins, verbose, dev=dev)
    _require_plugins(plugins)
    if dev and not as_json:
        options.say_dev(plugins)
    return asyncio.run(_call(settings, plugins, dev, tool, given, _asker(yes), as_json))


async def _call(
    settings: Settings,
    plugins: tuple[Path, ...],
    dev: bool,
    tool: str,
    arguments: Mapping[str, Any],
    ask: AskPerson | None,
    as_json: bool,
) -> int:
    async with Bridge(settings, plugins=plugins, grant=dev, remember=False) as bridge:
        await bridge.settled()
        _tell_failures(bridge.failures, as_json=as_json)
        async with bridge.run("command line", purpose=f"call {tool}") as run:
            try:
                result = await run.call(tool, arguments, progress=_show_progress, ask=ask)
            except ToolCallFailed as error:
                return _failed(error, run.id, as_json)
        if as_json:
            print_json({**result_as_dict(result), "trace": run.id})
        else:
            print_result(result)
    return 0


def _failed(error: ToolCallFailed, trace: str, as_json: bool) -> int:
    if not as_json:
        show_error(error, as_json=False)
        return exit_code(error)
    answer = result_as_dict(error.result) if error.result is not None else {"failed": True}
    print_json({**answer, "error": error.as_dict(), "trace": trace})
    return exit_code(error)


def _read_arguments(text: str) -> Mapping[str, Any]:
    if text == "-":
        text = sys.stdin.read(_MAX_ARGUMENTS)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ToolArgumentsInvalid(
            f"the arguments are no JSON: {error}", hint="""give an object in single quotes: '{"message": "hello"}'"""
        ) from error
    if not isinstance(value, dict):
        raise ToolArgumentsInvalid("the arguments are no JSON object", hint="""for instance '{"message": "hello"}'""")
    return value


def _asker(yes: bool) -> AskPerson | None:
    """Who answers a tool's question: ``--yes``, the person at the terminal, or no one."""
    if not yes and not sys.stdin.isatty():
        return None

    async def ask(question: str, call: ToolCall) -> bool:
        if yes:
            return True
        click.echo(harmless(json.dumps(call.arguments, ensure_ascii=False, indent=2)), err=True)
        return await asyncio.to_thread(click.confirm, harmless(question), default=False, err=True)

    return ask


def _show_progress(progress: Progress) -> None:
    if sys.stderr.isatty():
        total = f"/{progress.total:g}" if progress.total is not None else ""
        click.echo(f"\r… {progress.progress:g}{total} {harmless(progress.message or '')}\033[K", nl=False, err=True)


def print_tools(listed: list[ToolDefinition]) -> None:
    """A table of tools for people."""
    if not listed:
        click.echo("no tools")
        return
    rows = [(tool.name, tool.permission, _marks(tool), _first_line(tool.description)) for tool in listed]
    print_table(("tool", "permission", "", "what it does"), rows)


def _marks(tool: ToolDefinition) -> str:
    marks = [] if tool.visibility.value == "public" else [tool.visibility.value]
    return ", ".join(marks + ["confirm"] * tool.confirm + sorted(tool.groups))


def _first_line(text: str) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= 80 else f"{line[:79]}…"


def _require_plugins(plugins: tuple[Path, ...]) -> None:
    if not plugins:
        raise click.UsageError("give at least one plugin: --plugin DIR")


def _tell_failures(failures: Mapping[str, BasculeError], *, as_json: bool) -> int:
    """Say which plugins are not up, and why; the exit code of the first of them."""
    for error in failures.values():
        if not as_json:
            show_error(error, as_json=False)
    return next((exit_code(error) for error in failures.values()), 0)
