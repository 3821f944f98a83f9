"""Where a command is carried out: by the bridge that runs on the state directory, by the one at ``--url``, or here.

Who holds the state directory's lock is the bridge; its ``bridge.json`` says where it answers, and ``owner.token`` opens
it. That token goes to no address but the one in ``bridge.json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ...hookspecs import BridgeUnreachable, StateLocked
from ..bridge import Bridge, state_directory
from ..endpoint import find
from ..settings import Settings
from ..store import StateLock
from ..tokens import read_owner_token
from .client import Api
from .options import Command
from .running import run

T = TypeVar("T")

_WAIT_SECONDS = 20.0
_POLL_SECONDS = 0.05


def options(command: Command) -> Command:
    """``--url`` and ``--token``, on commands that a running bridge carries out."""
    token = click.option(
        "--token", envvar="BASCULE_TOKEN", metavar="SECRET", help="The token for --url; better: $BASCULE_TOKEN."
    )
    url = click.option("--url", metavar="URL", help="A bridge's REST API; the one that runs here if left out.")
    return url(token(command))


@dataclass(frozen=True, slots=True)
class Reach:
    """Where to look for the bridge."""

    settings: Settings
    url: str | None
    token: str | None

    def api(self) -> Api | None:
        """The bridge's API; ``None`` where no bridge runs. One that is just starting is waited for, 20 s at most.

        Raises ``BridgeUnreachable`` where a bridge runs that has no API.
        """
        if self.url is not None:
            return Api(self.url, self.token)
        directory = state_directory(self.settings)
        deadline = time.monotonic() + _WAIT_SECONDS
        with waiting("waiting for the bridge that starts"):
            while (holder := StateLock.holder(directory)) is not None:
                found = find(directory)
                here = found is not None and found.pid == holder
                if found is not None and here and found.url:
                    return Api(found.url, self.token or read_owner_token(directory))
                if here or time.monotonic() > deadline:
                    raise BridgeUnreachable(
                        f"process {holder} works on this state directory and has no REST API open",
                        where=str(directory),
                        hint="turn the hook plugin quart_api on there, or stop it",
                    )
                time.sleep(_POLL_SECONDS)
        return None

    def running(self) -> Api:
        """The API of a bridge that must run; raises ``BridgeUnreachable``."""
        api = self.api()
        if api is None:
            raise BridgeUnreachable(
                "no bridge runs on this state directory",
                where=str(state_directory(self.settings)),
                hint="start one with bascule serve, or name another with --url",
            )
        return api

    def carry_out(self, there: Callable[[Api], T], here: Callable[[Bridge], Awaitable[T]]) -> T:
        """Let the running bridge do it; where none runs, do it here under the lock, with the same code.

        Commands that are given at once wait for one another.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        while (api := self.api()) is None:
            try:
                return run(self._here(here, remember=True))
            except StateLocked:  # another was quicker: nothing was done here
                if time.monotonic() > deadline:
                    raise
        return there(api)

    def look(self, there: Callable[[Api], T], here: Callable[[Bridge], Awaitable[T]]) -> T:
        """The same for what changes nothing, and so takes no lock."""
        api = self.api()
        return there(api) if api is not None else run(self._here(here, remember=False))

    async def _here(self, work: Callable[[Bridge], Awaitable[T]], *, remember: bool) -> T:
        async with Bridge(self.settings, remember=remember, recall=True, start=False) as bridge:
            return await work(bridge)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal's stderr that something takes its time."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def plain(value: Any) -> Any:
    """A view as the API would give it, so that a command prints both alike."""
    from dataclasses import asdict

    from .output import as_json

    return as_json(asdict(value))
