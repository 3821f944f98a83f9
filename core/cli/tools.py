"""``bascule tools`` and ``bascule call``: host the given plugins for as long as the command runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ...hookspecs import (
    AskPerson,
    BasculeError,
    PluginState,
    ToolArgumentsInvalid,
    ToolCallFailed,
    ToolDefinition,
    ToolNotFound,
)
from ..bridge import Bridge
from ..settings import Settings
from . import options
from .exits import exit_code
from .output import error_as_dict, print_json, print_result, print_table, result_as_dict, say, show_error
from .person import ProgressLine, asker
from .running import run

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
    listed, failures = run(_list(settings, plugins, dev))
    if groups:
        listed = [tool for tool in listed if tool.groups & set(groups)]
    if as_json:
        print_json(
            {
                "tools": [tool.as_dict() for tool in listed],
                "failures": _failures_as_dict(failures),
            }
        )
    else:
        print_tools(listed)
        _show_failures(failures)
    return next((exit_code(error) for error in failures.values()), 0)


async def _list(
    settings: Settings, plugins: tuple[Path, ...], dev: bool
) -> tuple[list[ToolDefinition], dict[str, BasculeError]]:
    async with (
        Bridge(settings, plugins=plugins, grant=dev, remember=False) as bridge,
        bridge.run("command line", purpose="tools") as listing,
    ):
        return list(await listing.tools()), dict(bridge.failures)


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
    if dev:
        options.say_dev(plugins)
    return run(_call(settings, plugins, dev, tool, given, asker(yes), as_json))


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
        failures = bridge.failures
        if not as_json:
            _show_failures(failures)
        error: BasculeError | None = None
        answer = None
        async with bridge.run("command line", purpose=f"call {tool}") as calling:
            try:
                with ProgressLine() as progress:
                    answer = await calling.call(tool, arguments, progress=progress, ask=ask)
            except BasculeError as refusal:
                error = _reason(refusal, tool, bridge)
                answer = error.result if isinstance(error, ToolCallFailed) else None
        if as_json:
            shown = {} if answer is None else result_as_dict(answer)
            told = {} if error is None else {"error": error_as_dict(error)}
            print_json({**shown, **told, "trace": calling.id, "failures": _failures_as_dict(failures)})
        elif error is None and answer is not None:
            print_result(answer)
        elif error is not None and error not in failures.values():
            show_error(error, as_json=False)
    return 0 if error is None else exit_code(error)


def _reason(error: BasculeError, tool: str, bridge: Bridge) -> BasculeError:
    """Why the call failed: a tool that is missing since its plugin is not up is that plugin's affair."""
    plugin_id = tool.partition(".")[0]
    up = {view.plugin_id for view in bridge.plugins.list() if view.state is PluginState.READY}
    if not isinstance(error, ToolNotFound) or not bridge.failures or plugin_id in up:
        return error
    return bridge.failures.get(plugin_id) or next(iter(bridge.failures.values()))


def _read_arguments(text: str) -> Mapping[str, Any]:
    hint = """give an object in single quotes: '{"message": "hello"}'"""
    try:
        if text == "-":
            text = sys.stdin.buffer.read(_MAX_ARGUMENTS + 1).decode()
        if len(text) > _MAX_ARGUMENTS:
            raise ToolArgumentsInvalid(f"the arguments take more than {_MAX_ARGUMENTS:,} bytes")
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ToolArgumentsInvalid(f"the arguments are no JSON: {error}", hint=hint) from error
    if not isinstance(value, dict):
        raise ToolArgumentsInvalid("the arguments are no JSON object", hint=hint)
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def print_tools(listed: list[ToolDefinition]) -> None:
    """A table of tools for people."""
    if not listed:
        say("no tools")
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


def _failures_as_dict(failures: Mapping[str, BasculeError]) -> dict[str, Any]:
    return {name: error_as_dict(error) for name, error in failures.items()}


def _show_failures(failures: Mapping[str, BasculeError]) -> None:
    """Say which plugins are not up, and why."""
    for error in failures.values():
        show_error(error, as_json=False)
