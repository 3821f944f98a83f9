"""The life of plugins from the command line: by the running bridge, or here where none runs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from ...hookspecs import PluginView
from ..bridge import Bridge
from . import options, reach
from .client import LONG_SECONDS, Api, quoted
from .output import harmless, line, out, print_json, print_table, say
from .reach import Reach, plain, waiting

_LOOK_SECONDS = 1.0


@click.command()
@reach.options
@options.common
def plugins(
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> None:
    """List the installed plugins: their state, and why.

    \b
    bascule plugins
    """
    target = Reach(options.settings_from(config, state, no_hook_plugins, verbose), url, token)

    async def here(bridge: Bridge) -> list[Any]:
        return [plain(view) for view in bridge.plugins.list()]

    found = target.look(lambda api: api.get("/api/plugins")["plugins"], here)
    if as_json:
        print_json({"plugins": found})
    else:
        print_plugins(found)


def print_plugins(found: list[Any]) -> None:
    """A table of plugins for people."""
    if not found:
        say("no plugins are installed; bascule install DIR installs one")
        return
    columns = ("plugin", "version", "state", "enabled", "tools", "why")
    rows = [
        (
            view["plugin_id"],
            view["version"],
            view["state"].replace("_", " "),
            "yes" if view.get("enabled") else "no",
            str(len(view["tools"])),
            view["reason"] or _waiting(view),
        )
        for view in found
    ]
    print_table(columns, rows)


def _waiting(view: Any) -> str:
    held = len(view.get("quarantined") or ())
    return f"{held} in quarantine: bascule diff {view['plugin_id']}" if held else ""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@reach.options
@options.common
def install(
    directory: Path,
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> None:
    """Install the plugin in DIR: its manifest is read, nothing of it is started.

    \b
    bascule install fixtures/mcp-echo
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose)
    # Only the bridge itself knows what a relative path would mean there.
    place = directory.absolute() if url is None else directory

    async def here(bridge: Bridge) -> Any:
        return plain(await bridge.plugins.install(place))

    target = Reach(settings, url, token)
    view = target.carry_out(lambda api: api.send("POST", "/api/plugins", {"directory": str(place)}), here)
    if as_json:
        print_json(view)
        return
    name = view["plugin_id"]
    say(f"{name} {view['version']} is installed; it asks for {', '.join(view['permissions'])}")
    if settings.environment == "development":
        say(f"next: bascule grant {name} --all, then bascule enable {name}")
    else:
        say(f"next: bascule approve {name} shows all that it would run, then bascule enable {name}")


@click.command()
@click.argument("plugin", metavar="ID")
@reach.options
@options.common
def enable(plugin: str, as_json: bool, **where: Any) -> None:
    """Start the plugin's server and register its tools, now and whenever the bridge starts.

    Where no bridge runs its server is started to see that it works, and ended again.

    \b
    bascule enable mcp-fixture
    """
    target = _target(**where)
    with waiting(f"starting {plugin}"):
        view = _move(target, plugin, "enable", lambda bridge: bridge.plugins.enable(plugin))
    _done(view, as_json, f"is enabled, with {len(view['tools'])} tools")


@click.command()
@click.argument("plugin", metavar="ID")
@reach.options
@options.common
def disable(plugin: str, as_json: bool, **where: Any) -> None:
    """Withdraw the plugin's tools and end its server; it stays installed and keeps its grants.

    \b
    bascule disable mcp-fixture
    """
    target = _target(**where)
    with waiting(f"stopping {plugin}"):
        view = _move(target, plugin, "disable", lambda bridge: bridge.plugins.disable(plugin))
    _done(view, as_json, "is disabled")


@click.command()
@click.argument("plugin", metavar="ID")
@reach.options
@options.common
def restart(plugin: str, as_json: bool, **where: Any) -> None:
    """Stop and start the plugin's server, one that failed as well.

    \b
    bascule restart mcp-fixture
    """
    api = _target(**where).running()
    with waiting(f"restarting {plugin}"):
        answer = api.send("POST", f"/api/plugins/{quoted(plugin)}/host/restart", seconds=LONG_SECONDS)
    if as_json:
        print_json(answer)
    else:
        say(f"{plugin}: {answer['message']}")


@click.command()
@click.argument("plugin", metavar="ID")
@reach.options
@options.common
def remove(plugin: str, as_json: bool, **where: Any) -> None:
    """Disable the plugin and forget it, with its grants; its directory is left alone.

    \b
    bascule remove mcp-fixture
    """

    async def here(bridge: Bridge) -> None:
        await bridge.plugins.uninstall(plugin)

    with waiting(f"removing {plugin}"):
        _target(**where).carry_out(
            lambda api: api.send("DELETE", f"/api/plugins/{quoted(plugin)}", seconds=LONG_SECONDS), here
        )
    if as_json:
        print_json({"plugin_id": plugin, "removed": True})
    else:
        say(f"{plugin} is removed")


@click.command()
@click.argument("plugin", metavar="ID")
@click.argument("permissions", nargs=-1, metavar="[PERMISSION]...")
@click.option("--all", "everything", is_flag=True, help="All that it asks for.")
@click.option("--none", "nothing", is_flag=True, help="None: take away what was granted.")
@reach.options
@options.common
def grant(
    plugin: str, permissions: tuple[str, ...], everything: bool, nothing: bool, as_json: bool, **where: Any
) -> None:
    """Let the plugin ID do what the PERMISSIONs say, and nothing else; without any, show what it may do.

    To take one away from an enabled plugin disables it.

    \b
    bascule grant mcp-fixture --all
    bascule grant mcp-fixture tools.call notes.read
    """
    if bool(permissions) + everything + nothing > 1:
        raise click.UsageError("give permissions, or --all, or --none")
    target = _target(**where)
    wanted: tuple[str, ...] | None = permissions or (() if nothing else None)

    def there(api: Api) -> Any:
        path = f"/api/plugins/{quoted(plugin)}"
        view = api.get(path)
        chosen = view["permissions"] if everything else wanted
        return view if chosen is None else api.send("PUT", f"{path}/permissions", {"permissions": list(chosen)})

    async def here(bridge: Bridge) -> Any:
        view = bridge.plugins.get(plugin)
        chosen = view.permissions if everything else wanted
        return plain(view if chosen is None else await bridge.plugins.grant(plugin, chosen))

    view = target.look(there, here) if wanted is None and not everything else target.carry_out(there, here)
    if as_json:
        print_json(view)
        return
    for permission in view["permissions"]:
        say(f"{permission:<20} {'granted' if permission in view['granted'] else 'not granted'}")
    say(f"{plugin} is {view['state'].replace('_', ' ')}")


@click.command()
@click.argument("plugin", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on, until Ctrl-C.")
@reach.options
@options.common
def logs(plugin: str, follow: bool, as_json: bool, **where: Any) -> None:
    """Show the end of what the plugin's server wrote to stderr, secrets masked.

    \b
    bascule logs mcp-fixture -f
    """
    if follow and as_json:
        raise click.UsageError("-f prints what comes as it comes; --json is one document")
    api = _target(**where).running()
    path = f"/api/plugins/{quoted(plugin)}/logs"
    text = str(api.get(path)["text"])
    if as_json:
        print_json({"plugin_id": plugin, "text": text})
        return
    _write(text)
    while follow:
        time.sleep(_LOOK_SECONDS)
        before, text = text, str(api.get(path)["text"])
        _write(news(before, text))


def news(before: str, after: str) -> str:
    """What was added: ``after`` is the end of the log, from which as much may have gone at its beginning."""
    for overlap in (before, before[-4_096:], before[-256:]):
        if overlap and (place := after.rfind(overlap)) >= 0:
            return after[place + len(overlap) :]
    return after


def _write(text: str) -> None:
    if text:
        click.echo(harmless(text), file=out(), nl=not text.endswith("\n"))


def _target(
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    verbose: int,
) -> Reach:
    return Reach(options.settings_from(config, state, no_hook_plugins, verbose), url, token)


def _move(target: Reach, plugin: str, verb: str, move: Callable[[Bridge], Awaitable[PluginView]]) -> Any:
    async def here(bridge: Bridge) -> Any:
        return plain(await move(bridge))

    path = f"/api/plugins/{quoted(plugin)}/{verb}"
    return target.carry_out(lambda api: api.send("POST", path, seconds=LONG_SECONDS), here)


def _done(view: Any, as_json: bool, what: str) -> None:
    if as_json:
        print_json(view)
    else:
        line(harmless(f"{view['plugin_id']} {what}"))
