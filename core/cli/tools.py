"""``bascule tools`` and ``bascule call``: on the running bridge, or on plugins hosted while the command runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from ...hookspecs import (
    AskPerson,
    BasculeError,
    BridgeUnreachable,
    CallError,
    PluginState,
    ToolArgumentsInvalid,
    ToolCallFailed,
    ToolDefinition,
    ToolNotFound,
    ToolResult,
    Visibility,
)
from ..bridge import Bridge
from ..settings import Settings
from . import options, reach
from .client import Api
from .exits import exit_code
from .output import error_as_dict, print_json, print_result, print_table, result_as_dict, say, show_error
from .person import ProgressLine, asker
from .reach import Reach
from .running import run

_MAX_ARGUMENTS = 2 * 1024 * 1024


@click.command()
@options.hosting
@click.option("--group", "groups", multiple=True, help="Only tools of this group; may be given more than once.")
@reach.options
@options.common
def tools(
    plugins: tuple[Path, ...],
    dev: bool,
    groups: tuple[str, ...],
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """List the tools of the running bridge, or those of the given plugins.

    \b
    bascule tools
    bascule tools --dev --plugin fixtures/mcp-echo
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose, dev=dev)
    failures: dict[str, BasculeError] = {}
    if plugins:
        if dev:
            options.say_dev(plugins)
        listed, failures = run(_list(settings, plugins, dev))
    else:
        listed = [_definition(tool) for tool in _running(settings, url, token, dev).get("/api/tools")["tools"]]
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
@reach.options
@options.common
def call(
    tool: str,
    arguments: str,
    plugins: tuple[Path, ...],
    dev: bool,
    yes: bool,
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Call TOOL with ARGUMENTS, a JSON object ("-" reads it from stdin): of the running bridge, or of given plugins.

    \b
    bascule call mcp-fixture.echo '{"message": "hello"}'
    bascule call mcp-fixture.echo '{"message": "hello"}' --dev --plugin fixtures/mcp-echo
    """
    given = _read_arguments(arguments)
    settings = options.settings_from(config, state, no_hook_plugins, verbose, dev=dev)
    if not plugins:
        return _call_there(_running(settings, url, token, dev), tool, given, as_json)
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
            trace_id = answer.trace_id if error is None and answer is not None else getattr(error, "trace_id", None)
            print_json(
                {**shown, **told, "trace": calling.id, "trace_id": trace_id, "failures": _failures_as_dict(failures)}
            )
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


def _running(settings: Settings, url: str | None, token: str | None, dev: bool) -> Api:
    """The bridge that is to be asked where no plugins are given."""
    if dev:
        raise click.UsageError("--dev is for plugins given with --plugin DIR")
    try:
        return Reach(settings, url, token).running()
    except BridgeUnreachable as error:
        if url is None:
            error.hint = "start one with bascule serve, or give plugins: --dev --plugin DIR"
        raise


def _call_there(api: Api, tool: str, arguments: Mapping[str, Any], as_json: bool) -> int:
    """Call by the running bridge; there is no one to answer a tool's question there."""
    error: BasculeError | None = None
    shown: dict[str, Any] = {}
    run_id = api.send("POST", "/api/runs", {"agent": "command line", "purpose": f"call {tool}"[:200]})["id"]
    try:
        with _finishing(api, run_id), ProgressLine() as progress:
            shown = api.call(tool, arguments, run_id, progress)
    except CallError as refusal:
        error = refusal
        answer = error.result if isinstance(error, ToolCallFailed) else None
        shown = {} if answer is None else {**result_as_dict(answer)}
        shown["trace_id"] = error.trace_id
    if as_json:
        print_json({**shown, **({} if error is None else {"error": error_as_dict(error)}), "trace": run_id})
    elif error is None:
        print_result(ToolResult(shown["output"], shown["content"], shown["failed"]))
    else:
        show_error(error, as_json=False)
    return 0 if error is None else exit_code(error)


@contextmanager
def _finishing(api: Api, run_id: str) -> Iterator[None]:
    """End the run in order, or by whatever went wrong."""
    state = "failed"
    try:
        yield
        state = "finished"
    finally:
        with suppress(BasculeError):  # the bridge may be gone; then the run is abandoned
            api.send("POST", f"/api/runs/{run_id}/finish", {"state": state})


def _definition(tool: Mapping[str, Any]) -> ToolDefinition:
    """A tool from its JSON."""
    known = ("name", "description", "parameters", "permission", "source", "plugin_id", "alias", "title", "confirm")
    return ToolDefinition(
        **{name: tool[name] for name in known if name in tool},
        output_schema=tool.get("output_schema"),
        groups=frozenset(tool.get("groups", ())),
        visibility=Visibility(tool.get("visibility", "public")),
    )


def _failures_as_dict(failures: Mapping[str, BasculeError]) -> dict[str, Any]:
    return {name: error_as_dict(error) for name, error in failures.items()}


def _show_failures(failures: Mapping[str, BasculeError]) -> None:
    """Say which plugins are not up, and why."""
    for error in failures.values():
        show_error(error, as_json=False)
