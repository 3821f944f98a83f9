"""``bascule hooks``: the code that the owner installed into the bridge itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..bridge import lineup_for
from ..lineup import HookPlugin
from . import options
from .output import print_json, print_table


@click.command()
@options.common
def hooks(
    config: Path | None, state: Path | None, no_hook_plugins: tuple[str, ...], as_json: bool, verbose: int
) -> int:
    """Show the hook plugins: what each offers, what failed and why.

    Hook plugins are Python code that runs inside the bridge, with all its rights; plugins (directories with a
    plugin.yaml) run in processes of their own and are never imported.
    """
    lineup = lineup_for(options.settings_from(config, state, no_hook_plugins, verbose))
    if as_json:
        print_json({"hook_plugins": [_as_dict(plugin) for plugin in lineup.hook_plugins]})
    else:
        print_table(
            ("hook plugin", "distribution", "state", "offers"), [_row(plugin) for plugin in lineup.hook_plugins]
        )
        click.echo("Hook plugins run inside the bridge, with all its rights.")
    return 0


def _as_dict(plugin: HookPlugin) -> dict[str, Any]:
    distribution, version = plugin.found.distribution
    return {
        "name": plugin.name,
        "entry_point": plugin.found.value,
        "distribution": distribution,
        "version": version,
        "state": _state(plugin),
        "offers": {hook: list(names) for hook, names in plugin.offers.items()},
        "error": None if plugin.error is None else plugin.error.as_dict(),
    }


def _row(plugin: HookPlugin) -> tuple[str, str, str, str]:
    distribution, version = plugin.found.distribution
    offers = "; ".join(f"{_family(hook)}: {', '.join(names)}" for hook, names in plugin.offers.items())
    told = offers if plugin.error is None else str(plugin.error)
    return plugin.name, f"{distribution} {version}", _state(plugin), told


def _family(hook: str) -> str:
    return hook.removeprefix("bascule_").replace("_", " ")


def _state(plugin: HookPlugin) -> str:
    if plugin.disabled:
        return "disabled"
    return "ok" if plugin.error is None else "broken"
