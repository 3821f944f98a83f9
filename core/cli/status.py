"""``bascule status``: the running bridge at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..bridge import Bridge, state_directory
from . import options, reach
from .exits import UNREACHABLE
from .output import print_json, say
from .plugins import print_plugins
from .reach import Reach, plain


@click.command()
@reach.options
@options.common
def status(
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Show the bridge: whether it runs and where, what it hosts, and what is wrong.

    \b
    bascule status
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose)
    place = state_directory(settings)

    async def here(bridge: Bridge) -> Any:
        return {"running": False, "state": str(place), "plugins": [plain(view) for view in bridge.plugins.list()]}

    found = Reach(settings, url, token).look(
        lambda api: {"running": True, "url": api.url, **api.get("/api/status")}, here
    )
    if as_json:
        print_json(found)
    elif found["running"]:
        _print(found)
    else:
        say(f"no bridge runs on {place}; bascule serve starts one")
        print_plugins(found["plugins"])
    return 0 if found["running"] else UNREACHABLE


def _print(found: Any) -> None:
    say(f"bascule {found['version']} at {found['url']}", bold=True)
    say(f"environment  {found['environment']}")
    say(f"launcher     {found['launcher']}, isolation {found['isolation']}")
    say(f"HTTP server  {found['http_server']}")
    say(f"ways in      {', '.join(found['transports']) or 'none'}")
    for name, why in found["readiness"].items():
        say(f"not ready    {name}: {why}", fg="yellow")
    print_plugins(found["plugins"])
