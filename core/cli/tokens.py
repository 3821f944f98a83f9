"""``bascule token``: who may call from elsewhere. A running bridge sees a change at the next request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from ..bridge import state_directory
from ..store import Store
from ..tokens import SCOPES, Tokens
from . import options
from .exits import NOT_FOUND
from .output import line, print_json, print_table


@click.group()
def token() -> None:
    """Make, list and revoke the tokens by which callers are known."""


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(sorted(SCOPES)),
    default=("call",),
    show_default=True,
    help="What it is good for; may be given more than once.",
)
@options.common
def create(
    name: str,
    scopes: tuple[str, ...],
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> None:
    """Make a token called NAME and show its secret, this once.

    \b
    bascule token create laptop
    """
    with _tokens(config, state, no_hook_plugins, verbose) as tokens:
        secret = tokens.create(name, scopes)
    if as_json:
        print_json({"name": name, "scopes": sorted(set(scopes)), "token": secret})
        return
    line(secret)
    line("this is the only time that it is shown; only its hash is kept", err=True)


@token.command("list")
@options.common
def list_tokens(
    config: Path | None, state: Path | None, no_hook_plugins: tuple[str, ...], as_json: bool, verbose: int
) -> None:
    """List the tokens: names, scopes and when they were made."""
    with _tokens(config, state, no_hook_plugins, verbose) as tokens:
        rows = [
            (
                record.name,
                sorted(record.scopes),
                datetime.fromtimestamp(record.created_at, UTC).isoformat("T", "seconds"),
            )
            for record in tokens.list()
        ]
    if as_json:
        print_json({"tokens": [{"name": name, "scopes": scopes, "created_at": when} for name, scopes, when in rows]})
    elif rows:
        print_table(("token", "scopes", "made"), [(name, ", ".join(scopes), when) for name, scopes, when in rows])
    else:
        line("there are no tokens")


@token.command()
@click.argument("name")
@options.common
def revoke(
    name: str,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Forget the token called NAME; whoever has it is refused from the next request on.

    \b
    bascule token revoke laptop
    """
    with _tokens(config, state, no_hook_plugins, verbose) as tokens:
        revoked = tokens.revoke(name)
    if as_json:
        print_json({"name": name, "revoked": revoked})
    else:
        line(f"{name} is revoked" if revoked else f"there is no token {name!r}", err=not revoked)
    return 0 if revoked else NOT_FOUND


@contextmanager
def _tokens(
    config: Path | None, state: Path | None, no_hook_plugins: tuple[str, ...], verbose: int
) -> Iterator[Tokens]:
    settings = options.settings_from(config, state, no_hook_plugins, verbose)
    store = Store.open(state_directory(settings))
    try:
        yield Tokens(store)
    finally:
        store.close()
