"""``bascule demo``: the whole chain on the built-in fixture, in a few seconds and without network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

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

    The fixture is our own and harmless; it runs as with --dev, in environment development.
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose, dev=True)
    report = run_to_end(_tour(settings, quiet=as_json))
    if as_json:
        print_json(report)
    return 0


async def _tour(settings: Settings, *, quiet: bool) -> dict[str, Any]:
    directory = demo_directory()
    options.say_dev((directory,))
    if not quiet:
        say("\n1. Host the server in a process of its own", bold=True)
    async with Bridge(settings, plugins=[directory], grant=True, remember=False) as bridge:
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
    say("   bascule tools --dev --plugin DIR     its tools")
    say("   bascule call TOOL '{…}' --dev --plugin DIR")
