"""The command line. A module a command group; each is imported when its command runs."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

_COMMANDS = {
    "demo": ("tour", "Host the built-in fixture, call a tool, show the trace."),
    "check": ("check", "Read a plugin's manifest and show what would run; starts nothing."),
    "approve": ("approvals", "Show all that a plugin would run and may do, and say yes to it."),
    "diff": ("approvals", "Show how a plugin differs from what was approved."),
    "listing": ("approvals", "Print what a plugin's publisher signs."),
    "status": ("status", "Show the bridge: whether it runs, what it hosts, what is wrong."),
    "plugins": ("plugins", "List the installed plugins."),
    "install": ("plugins", "Install a plugin from its directory; starts nothing."),
    "grant": ("plugins", "Say what a plugin may do."),
    "enable": ("plugins", "Start a plugin, now and whenever the bridge starts."),
    "disable": ("plugins", "Stop a plugin and keep it installed."),
    "restart": ("plugins", "Restart a plugin's server."),
    "remove": ("plugins", "Forget a plugin and its grants."),
    "logs": ("plugins", "Show what a plugin's server wrote to stderr."),
    "tools": ("tools", "List the tools of plugins."),
    "call": ("tools", "Call a tool."),
    "serve": ("serve", "Host plugins until stopped."),
    "stdio": ("stdio", "Be an MCP client's command: speak MCP on stdin and stdout."),
    "token": ("tokens", "Make, list and revoke the tokens by which callers are known."),
    "runs": ("runs", "List the newest runs."),
    "trace": ("runs", "Show a run as a tree with times, or one step."),
    "traces": ("traces", "Show what was called, and what came of it."),
    "new": ("new", "Write a plugin or a hook plugin to start from, with tests that pass."),
    "hooks": ("hooks", "Show the hook plugins: what each offers, what failed and why."),
}


class _ReaderLeft(Exception):
    """Whoever read our output (say, ``head``) has left. click would take a ``BrokenPipeError`` for a failure."""


@contextmanager
def _watching_the_reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as gone:
        raise _ReaderLeft from gone


class _Commands(click.Group):
    """Knows every command's name and one line; imports a command only to run it."""

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        with _watching_the_reader():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _watching_the_reader():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f".{_COMMANDS[cmd_name][0]}", __package__)
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"bascule {version('bascule')}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: bascule demo",
)
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version.")
def cli() -> None:
    """Bascule hosts MCP servers that other people wrote, and lets their tools through only where you said so."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; errors are told in words, never as a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    gc.disable()  # until all is imported, which makes many objects and hardly any garbage; see options
    # pydantic would read the metadata of all that is installed for plugins of its own, and fail where one is broken
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    code = 0
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except (BrokenPipeError, _ReaderLeft):
        from .output import forget_unread

        forget_unread()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        code = cli.main(arguments, prog_name="bascule", standalone_mode=False)
    except click.exceptions.Exit as leave:
        code = leave.exit_code
    except _ReaderLeft:
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a fault of ours is told in words, too
        from .faults import tell  # late: it loads every error and so the contract, which --help can do without

        return tell(error, as_json="--json" in arguments)
    return code if isinstance(code, int) else 0


def _prepare_streams() -> None:
    """See to it that the three streams exist and take any text.

    Where one was closed, the next file to be opened (the state's, say) would take its number, and be written to.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
