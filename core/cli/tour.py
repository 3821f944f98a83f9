"""``bascule demo``: the whole chain on the built-in fixture, in a few seconds and without network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...hookspecs import BasculeError
from ..bridge import Bridge
from ..settings import Settings
from . import options
from .output import print_json, print_result, result_as_dict, say
from .running import run as run_to_end
from .tools import print_tools
from .traces import print_trace

_TOOL = "mcp-fixture.echo"
_ARGUMENTS = {"message": "Hello from the other side of the bridge"}


def demo_directory() -> Path:
    """The fixture: inside the installed package, or in the repository of an editable install."""
    shipped = Path(__file__).parent / "demo"
    if shipped.is_dir():
        return shipped
    return Path(__file__).resolve().parents[2] / "fixtures" / "mcp-echo"


@click.command()
@options.common
def demo(config: Path | None, state: Path | None, no_hook_plugins: tuple[str, ...], as_json: bool, verbose: int) -> int:
    """Host the built-in fixture server, show its tools, call one and show the trace of the call.

    The fixture is our own and harmless, so it is approved for you and runs in a sandbox. Where this machine has none,
    it runs as with --dev, and you are told.
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose)
    report = run_to_end(_tour(settings, quiet=as_json))
    if as_json:
        print_json(report)
    return 0


async def _tour(settings: Settings, *, quiet: bool) -> dict[str, Any]:
    directory = demo_directory()
    if settings.environment != "development":
        async with Bridge(settings, remember=False) as bridge:
            problem = await _approved(bridge, directory)
            if problem is None:
                return await _walk(bridge, quiet)
        say(f"demo: no sandbox here: {problem}", fg="yellow", err=True)
        settings = settings.with_(environment="development")
    options.say_dev((directory,))
    async with Bridge(settings, plugins=[directory], grant=True, remember=False) as bridge:
        return await _walk(bridge, quiet)


async def _approved(bridge: Bridge, directory: Path) -> str | None:
    """Say yes to our own fixture, and start it; why not, where nothing isolates it here."""
    plugins = bridge.plugins
    try:
        plugin_id = (await plugins.install(directory, keep=False)).plugin_id
        shown = await plugins.approval(plugin_id)
        if shown.tier == "none":
            return f"the launcher {shown.launcher!r} isolates nothing"
        for _ in range(2):
            if shown.pending:
                shown = await plugins.approve(plugin_id, shown.digest)
        await plugins.grant(plugin_id, shown.permissions)
        await plugins.enable(plugin_id)
    except BasculeError as error:
        return error.message
    say(f"demo: {plugin_id} is Bascule's own: approved for you, isolation {shown.tier} ({shown.launcher})", err=True)
    return None


async def _walk(bridge: Bridge, quiet: bool) -> dict[str, Any]:
    if not quiet:
        say("\n1. Host the server in a process of its own", bold=True)
    async with bridge.run("demo", purpose="show the whole chain") as run:
        for error in bridge.failures.values():
            raise error
        view = bridge.plugins.list()[0]
        tools = list(await run.tools())
        if not quiet:
            host = view.host
            say(f"   {host.server_name} {host.server_version}, MCP {host.protocol_version}, {host.status}")
            say("\n2. Its tools, checked, named and permitted", bold=True)
            print_tools(tools)
            say(f"3. Call {_TOOL}", bold=True)
        result = await run.call(_TOOL, _ARGUMENTS)
        if not quiet:
            print_result(result)
    trace, steps = await bridge.traces.run(run.id)
    if not quiet:
        say("\n4. What the trace says", bold=True)
        print_trace(trace, steps)
        _what_next()
    return {"tools": [tool.as_dict() for tool in tools], "result": result_as_dict(result), "trace": run.id}


def _what_next() -> None:
    say("\nNext: write a plugin.yaml for a server of yours, then", bold=True)
    say("   bascule check DIR                    what would run, and what it asks for")
    say("   bascule approve DIR                  see all of it, say yes, see its tools")
    say("   bascule tools --plugin DIR           its tools; --dev instead of an approval is for trials")
    say("   bascule call TOOL '{…}' --plugin DIR")
