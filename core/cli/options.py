"""Options that several commands share, and what they make of the settings."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..logs import mask
from ..settings import Settings
from .output import claim_stdout, harmless, say

Command = TypeVar("Command", bound=Callable[..., Any])


def _stack(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


common = _stack(
    click.option(
        "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; ./bascule.yaml if there is one."
    ),
    click.option("--state", type=click.Path(path_type=Path), metavar="DIR", help="Where grants and traces are kept."),
    click.option(
        "--no-hook-plugin", "no_hook_plugins", multiple=True, metavar="NAME", help="Turn a hook plugin off by name."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option("-v", "--verbose", count=True, help="Tell more on stderr; twice for everything."),
)
"""On every command."""

hosting = _stack(
    click.option(
        "--plugin",
        "plugins",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="A directory with a plugin.yaml; may be given more than once.",
    ),
    click.option(
        "--dev",
        is_flag=True,
        help="For a trial: environment development, and the given plugins get all permissions they ask for. "
        "Their servers then run with all YOUR rights.",
    ),
)
"""On commands that host plugins."""


class _Words(logging.Formatter):
    """What the bridge logs, as a line for people; where it happened is for who asks for everything."""

    def __init__(self, verbose: int) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s" if verbose else "%(message)s")
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        if self._verbose > 1:
            return harmless(mask(super().format(record)))
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        if self._verbose:
            return harmless(mask(f"{record.levelname} {record.name}: {text}"))
        return harmless(mask(f"{record.levelname.lower()}: {text}"))


def settings_from(
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    verbose: int,
    *,
    dev: bool = False,
    quiet: bool = False,
) -> Settings:
    """The settings of this call: the file's, then what the command line says. ``quiet`` keeps warnings to itself."""
    claim_stdout()
    gc.freeze()
    gc.enable()
    handler = logging.StreamHandler()
    handler.setFormatter(_Words(verbose))
    level = {0: logging.ERROR if quiet else logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    logging.basicConfig(level=level, handlers=[handler])
    settings = Settings.load(config)
    changes: dict[str, Any] = {}
    if state is not None:
        changes["state"] = state.absolute()
    if disabled := (*no_hook_plugins, *_disabled_in_environment()):
        changes["disabled_hook_plugins"] = (*settings.disabled_hook_plugins, *disabled)
    if dev:
        changes["environment"] = "development"
    return settings.with_(**changes) if changes else settings


def _disabled_in_environment() -> list[str]:
    """For an emergency: names in ``BASCULE_DISABLED_HOOK_PLUGINS``, with commas between them."""
    names = os.environ.get("BASCULE_DISABLED_HOOK_PLUGINS", "").split(",")
    return [name.strip() for name in names if name.strip()]


def say_dev(plugins: tuple[Path, ...]) -> None:
    """``--dev`` is never silent."""
    names = ", ".join(str(plugin) for plugin in plugins) or "what runs"
    say(f"--dev: {names} runs unsandboxed, with your rights and every permission it asks for", fg="yellow", err=True)
