"""``bascule runs`` and ``bascule trace``: who called what, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from ...hookspecs import RunView, Step, TraceNotFound
from ..bridge import open_traces
from ..settings import Settings
from . import options, reach
from .client import Api, quoted
from .output import print_json
from .reach import Reach
from .running import run as run_to_end
from .traces import print_runs, print_step, print_trace

T = TypeVar("T")


@click.command()
@click.option("--limit", default=20, type=click.IntRange(1, 500), show_default=True, help="How many runs to show.")
@click.option("--before", metavar="RUN", help="Only runs older than this one.")
@reach.options
@options.common
def runs(limit: int, before: str | None, as_json: bool, **where: Any) -> None:
    """List the newest runs of agents, commands and sessions.

    \b
    bascule runs --limit 5
    """
    settings, url, token = _where(**where)
    if url is None:
        found = run_to_end(_runs(settings, limit, before))
    else:
        query = f"?limit={limit}" + (f"&before={quoted(before)}" if before else "")
        found = [_made(RunView, run) for run in Api(url, token).get(f"/api/runs{query}")["runs"]]
    print_runs(found, as_json)


@click.command()
@click.argument("trace_id", metavar="ID")
@reach.options
@options.common
def trace(trace_id: str, as_json: bool, **where: Any) -> None:
    """Show the run ID as a tree with times, or the one step of this ID.

    \b
    bascule trace 0123456789abcdef
    """
    settings, url, token = _where(**where)
    run, steps = run_to_end(_trace(settings, trace_id)) if url is None else _ask(Api(url, token), trace_id)
    if run is not None:
        print_trace(run, steps, as_json=as_json)
    elif as_json:
        print_json({"run": None, "steps": [asdict(step) for step in steps]})
    else:
        for step in steps:
            print_step(step)


async def _runs(settings: Settings, limit: int, before: str | None) -> Sequence[RunView]:
    async with open_traces(settings) as reader:
        return await reader.runs(limit=limit, before=before)


async def _trace(settings: Settings, trace_id: str) -> tuple[RunView | None, Sequence[Step]]:
    async with open_traces(settings) as reader:
        try:
            return await reader.run(trace_id)
        except TraceNotFound:
            return None, [await reader.trace(trace_id)]


def _ask(api: Api, trace_id: str) -> tuple[RunView | None, Sequence[Step]]:
    try:
        found = api.get(f"/api/runs/{quoted(trace_id)}")
    except TraceNotFound:
        return None, [_made(Step, api.get(f"/api/traces/{quoted(trace_id)}"))]
    return _made(RunView, found["run"]), [_made(Step, step) for step in found["steps"]]


def _where(
    url: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    verbose: int,
) -> tuple[Settings, str | None, str | None]:
    """The traces of this state directory are read without its bridge; another's are asked for."""
    reached = Reach(options.settings_from(config, state, no_hook_plugins, verbose), url, token)
    return reached.settings, reached.url, reached.token


def _made(kind: type[T], value: Any) -> T:
    """A value of ours from its JSON; what a newer bridge adds is left out."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value[name] for name in value if name in known})
