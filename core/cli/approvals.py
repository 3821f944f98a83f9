"""``bascule approve`` and ``bascule diff``: everything that an approval rests on, untruncated, and the owner's yes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from ...hookspecs import ApprovalState, ApprovalView
from ..bridge import lineup_for
from ..manifest import load_manifest
from ..trust import listing as signed_listing
from ..trust import read_plugin
from . import options, reach
from .desk import Desk, desk_for
from .exits import REFUSED
from .output import out, print_json, say
from .reach import Reach
from .shown import show_command, show_difference, show_tools


@click.command()
@click.argument("plugin", metavar="ID")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Only this tool, out of quarantine; repeatable.")
@click.option("--yes", is_flag=True, help="Answer both questions with yes; what they are about is still printed.")
@click.option("--unsandboxed", is_flag=True, help="Yes also to a server that is isolated from nothing.")
@reach.options
@options.common
def approve(
    plugin: str,
    tools: tuple[str, ...],
    yes: bool,
    unsandboxed: bool,
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Show everything that the plugin ID would run and may do, and ask: the command first, then its tools.

    ID is that of an installed plugin, or the directory of one that is not.

    Between the two questions its server is started once, without grants and without a call. A yes to the second grants
    the permissions that were shown.

    \b
    bascule approve notes
    """
    target = Reach(options.settings_from(config, state, no_hook_plugins, verbose), url, token)
    answers = _Answers(yes, unsandboxed, as_json)
    return _approve(desk_for(target, plugin), tools or None, answers)


@click.command()
@click.argument("plugin", metavar="ID")
@reach.options
@options.common
def diff(
    plugin: str,
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Show how the plugin ID differs from what was approved of it. Starts nothing.

    \b
    bascule diff notes
    """
    target = Reach(options.settings_from(config, state, no_hook_plugins, verbose), url, token)
    view = desk_for(target, plugin).view()
    if as_json:
        print_json(asdict(view))
    else:
        show_difference(view)
    return REFUSED if view.pending and view.required else 0


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@options.common
def listing(
    directory: Path,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Print what a publisher signs: every file of the plugin in DIR and its SHA-256. Starts nothing.

    \b
    bascule listing DIR | ssh-keygen -Y sign -n bascule-plugin -f KEY > DIR/plugin.sig
    """
    settings = options.settings_from(config, state, no_hook_plugins, verbose)
    lineup = lineup_for(settings)
    manifest = load_manifest(
        directory, transports=lineup.client_transports, permissions=lineup.permissions, limits=settings.limits
    )
    entries = read_plugin(manifest)
    if as_json:
        print_json({"entries": dict(entries)})
    else:
        out().write(signed_listing(entries).decode("ascii"))
    return 0


class _Answers:
    """Who answers: ``--yes``, or the person at the terminal."""

    def __init__(self, yes: bool, unsandboxed: bool, as_json: bool) -> None:
        self._yes = yes
        self._unsandboxed = unsandboxed
        self._as_json = as_json
        if not yes and (as_json or not sys.stdin.isatty()):
            raise click.UsageError("there is no one to ask here: answer with --yes, or on a terminal")

    def show(self, print_it: Callable[[ApprovalView], None], view: ApprovalView) -> None:
        if not self._as_json:
            print_it(view)

    def ask(self, question: str, wanted: str = "yes") -> bool:
        """``wanted`` must be typed in full: an approval is no reflex."""
        if self._yes:
            return True
        click.echo(f"{question} [{wanted}/NO]: ", err=True, nl=False)
        return sys.stdin.readline().strip() == wanted

    def unsandboxed(self, view: ApprovalView) -> bool:
        """A yes of its own; ``--yes`` is none."""
        if self._unsandboxed or self._yes or view.command is None or view.tier != "none":
            return self._unsandboxed
        return self.ask(f"It would run with ALL YOUR RIGHTS. To allow that, type {view.plugin_id}", view.plugin_id)

    def end(self, view: ApprovalView) -> int:
        if self._as_json:
            print_json(asdict(view))
        elif view.pending:
            say("not all of it is approved, and what is not does not run outside environment development", err=True)
        return REFUSED if view.pending else 0


def _approve(desk: Desk, tools: tuple[str, ...] | None, answers: _Answers) -> int:
    view = desk.view()
    if view.state in (ApprovalState.NONE, ApprovalState.CHANGED):
        answers.show(show_command, view)
        if not answers.ask("May this run? It is started once now, without grants and calls, to see its tools."):
            return answers.end(view)
        view = desk.approve(view.digest, unsandboxed=answers.unsandboxed(view))
        if view.source.get("fetched"):
            answers.show(show_command, view)  # what was fetched, and what of it is started
    elif view.state is ApprovalState.COMPLETE:
        view = desk.relisted()
    answers.show(show_tools, view)
    first = view.state is ApprovalState.COMMAND
    question = "May these tools be called, with these permissions?" if first else "Let these out of quarantine?"
    if not view.pending or not answers.ask(question):
        return answers.end(view)
    view = desk.approve(view.digest, tools=tools)
    if first:
        desk.grant(view)
    answers.show(lambda view: say(f"\n{view.plugin_id}: yes was said", fg="green"), view)
    return answers.end(view)
