"""The command line. A module a command group; each is imported when its command runs."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

import click

_COMMANDS = {
    "demo": ("tour", "Host the built-in fixture, call a tool, show the trace."),
    "check": ("check", "Read a plugin's manifest and show what would run; starts nothing."),
    "tools": ("tools", "List the tools of plugins."),
    "call": ("tools", "Call a tool."),
    "serve": ("serve", "Host plugins until stopped."),
    "token": ("tokens", "Make, list and revoke the tokens by which callers are known."),
    "traces": ("traces", "Show what was called, and what came of it."),
    "hooks": ("hooks", "Show the hook plugins: what each offers, what failed and why."),
}


class _Commands(click.Group):
    """Knows every command's name and one line; imports a command only to run it."""

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


def main(argv: list[str] | None = None) -> None:
    """Run the command line; errors are told in words, never as a traceback."""
    try:
        code = cli.main(argv, standalone_mode=False)
    except click.exceptions.Exit as leave:
        code = leave.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("stopped", err=True)
        code = _exits().INTERRUPTED
    except BrokenPipeError:
        code = _reader_left()
    except Exception as error:  # noqa: BLE001 - a fault of ours is told in words, too
        code = _tell(error)
    sys.exit(code if isinstance(code, int) else 0)


def _exits() -> ModuleType:
    """Import the exit codes: late, since they load every error and so the contract, which ``--help`` can do without."""
    from . import exits

    return exits


def _reader_left() -> int:
    """Whoever read our output (say, ``head``) has left: nothing to tell, and nothing to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _tell(error: Exception) -> int:
    """Tell an error in words on stderr, with ``--json`` as an object on stdout; return the exit code."""
    from ...hookspecs.errors import BasculeError
    from .output import show_error

    if isinstance(error, BasculeError):
        context: Any = click.get_current_context(silent=True)
        show_error(error, as_json=bool(context and context.params.get("as_json")) or "--json" in sys.argv)
        return int(_exits().exit_code(error))
    if os.environ.get("BASCULE_DEBUG"):
        raise error
    click.echo(f"INTERNAL_ERROR: {type(error).__name__}: {error}", err=True)
    click.echo("  this is a fault of Bascule; set BASCULE_DEBUG=1 to see where, and please report it", err=True)
    return int(_exits().INTERNAL)
