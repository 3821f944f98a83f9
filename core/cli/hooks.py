"""``bascule hooks``: the code that the owner installed into the bridge itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...hookspecs import StateUnavailable
from ..bridge import guards_missing, lineup_for, unknown_hook_plugins
from ..lineup import HookPlugin, gaps
from . import options
from .output import print_json, print_table, say


@click.command()
@options.common
def hooks(
    config: Path | None, state: Path | None, no_hook_plugins: tuple[str, ...], as_json: bool, verbose: int
) -> int:
    """Show the hook plugins: what each offers, what failed and why.

    Hook plugins are Python code that runs inside the bridge, with all its rights; plugins (directories with a
    plugin.yaml) run in processes of their own and are never imported.
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose, quiet=True)
    lineup = lineup_for(settings)
    warnings = [*unknown_hook_plugins(settings, lineup), *gaps(lineup)]
    missing: dict[str, str] = {}
    try:
        missing = guards_missing(settings, lineup)
    except StateUnavailable as error:
        warnings.append(f"what guarded calls before is not known: {error}")
    if as_json:
        plugins = [_as_dict(plugin) for plugin in lineup.hook_plugins]
        print_json({"hook_plugins": plugins, "missing": missing, "warnings": warnings})
        return 0
    print_table(("hook plugin", "distribution", "state", "offers"), [_row(plugin) for plugin in lineup.hook_plugins])
    say("Hook plugins run inside the bridge, with all its rights.")
    for warning in warnings:
        say(f"warning: {warning}", fg="yellow", err=True)
    for name, reason in missing.items():
        say(f"{name} must guard calls, and does not: {reason}", fg="red", err=True)
    if missing:
        say("  → no way in opens until they are back, or given up with --no-hook-plugin NAME", err=True)
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
    offers = "; ".join(f"{_family(hook)}: {', '.join(names)}" for hook, names in plugin.offers.items() if names)
    told = offers or "nothing" if plugin.error is None else f"{plugin.error.code}: {plugin.error}"
    return plugin.name, f"{distribution} {version}", _state(plugin), told


def _family(hook: str) -> str:
    return hook.removeprefix("bascule_").replace("_", " ")


def _state(plugin: HookPlugin) -> str:
    if plugin.disabled:
        return "disabled"
    return "ok" if plugin.error is None else "broken"
