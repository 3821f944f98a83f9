"""What the command line says when something went wrong, and the exit code for it."""

from __future__ import annotations

import os
import signal

import click

from ...hookspecs.errors import BasculeError
from .exits import FAILED, HUNG_UP, INTERNAL, INTERRUPTED, TERMINATED, exit_code
from .output import forget_unread, print_json, say, show_error

_STOPPED = {"SIGINT": INTERRUPTED, "SIGTERM": TERMINATED, "SIGHUP": HUNG_UP}


class Stopped(Exception):
    """A signal ended a command before it was done; everything that it opened was closed in order."""

    def __init__(self, number: int) -> None:
        self.name = signal.Signals(number).name
        super().__init__(f"stopped by {self.name}")


def tell(error: BaseException, *, as_json: bool) -> int:
    """Tell ``error`` in words on stderr, with ``as_json`` as one document on stdout; return the exit code."""
    try:
        _show(error, as_json)
    except BrokenPipeError:  # there is no one left to tell it to
        forget_unread()
    match error:
        case BasculeError():
            return exit_code(error)
        case Stopped():
            return _STOPPED.get(error.name, FAILED)
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case click.ClickException():
            return error.exit_code
    return INTERNAL


def _show(error: BaseException, as_json: bool) -> None:
    match error:
        case BasculeError():
            show_error(error, as_json=as_json)
        case Stopped():
            _say("INTERRUPTED", str(error), as_json)
        case KeyboardInterrupt() | click.Abort():
            _say("INTERRUPTED", "stopped by SIGINT", as_json)
        case click.ClickException():
            if as_json:
                _say("USAGE_ERROR", error.format_message(), as_json)
            else:
                error.show()
        case _ if os.environ.get("BASCULE_DEBUG"):
            raise error
        case _:
            _say("INTERNAL_ERROR", f"{type(error).__name__}: {error}", as_json)
            say("  this is a fault of Bascule; set BASCULE_DEBUG=1 to see where, and please report it", err=True)


def _say(code: str, message: str, as_json: bool) -> None:
    if as_json:
        print_json({"error": {"code": code, "message": message}})
    else:
        say(message if code == "INTERRUPTED" else f"{code}: {message}", err=True)
