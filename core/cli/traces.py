"""``bascule traces``: the newest runs, or one of them step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click

from ...hookspecs import RunView, Step
from ..bridge import open_traces
from ..settings import Settings
from . import options
from .output import harmless, line, paint, print_json, print_table, say
from .running import run as run_to_end


@click.command()
@click.argument("run", required=False)
@click.option("--limit", default=20, type=click.IntRange(1, 1_000), show_default=True, help="How many runs to show.")
@options.common
def traces(
    run: str | None,
    limit: int,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Show the newest runs, or the steps of RUN."""
    settings = options.settings_from(config, state, no_hook_plugins, verbose)
    if run is None:
        print_runs(run_to_end(_runs(settings, limit)), as_json)
    else:
        print_trace(*run_to_end(_steps(settings, run)), as_json=as_json)
    return 0


async def _runs(settings: Settings, limit: int) -> Sequence[RunView]:
    async with open_traces(settings) as reader:
        return await reader.runs(limit=limit)


async def _steps(settings: Settings, run: str) -> tuple[RunView, Sequence[Step]]:
    async with open_traces(settings) as reader:
        return await reader.run(run)


def print_runs(runs: Sequence[RunView], as_json: bool) -> None:
    """A table of runs."""
    if as_json:
        print_json({"runs": [asdict(run) for run in runs]})
    elif not runs:
        say("nothing was called yet")
    else:
        rows = [(run.id, run.agent, run.purpose or "", run.state, run.started_at, str(run.steps)) for run in runs]
        print_table(("run", "agent", "purpose", "state", "started", "steps"), rows)
        say("bascule trace RUN shows the steps of one")


def print_trace(run: RunView, steps: Sequence[Step], *, as_json: bool = False) -> None:
    """One run as a tree."""
    if as_json:
        print_json({"run": asdict(run), "steps": [asdict(step) for step in steps]})
        return
    say(f"{run.agent}: {run.purpose or 'no purpose given'}", bold=True)
    say(f"run {run.id}, {run.state}, started {run.started_at}")
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        print_step(step, "└─" if last else "├─", "  " if last else "│ ", _after(run.started_at, step.started_at))


def print_step(step: Step, branch: str = "──", stem: str = "  ", begun: str | None = None) -> None:
    """One step; ``begun`` says when it began."""
    outcome = step.code or step.outcome or "no end was seen"
    colour = "green" if step.outcome == "ok" else "red"
    line(
        f"{branch} {harmless(step.tool)}  {paint(outcome, fg=colour)}  {_ms(step.total)}  at {begun or step.started_at}"
    )
    if step.decision is not None:
        say(f"{stem}   {step.decision}: {step.decision_reason or ''} ({step.decision_rule})")
    say(f"{stem}   trace {step.id}")
    times = f"queued {_ms(step.queued)}, of it validating {_ms(step.validating)}; upstream {_ms(step.upstream)}"
    say(f"{stem}   {times}; generation {step.generation}")
    for name, text, size in (
        ("arguments", step.arguments, step.arguments_bytes),
        ("result", step.result, step.result_bytes),
    ):
        if text is not None:
            say(f"{stem}   {name} ({size} bytes): {text[:300]}")


def _after(start: str, moment: str) -> str:
    """How long after ``start``; both are ISO 8601."""
    return f"+{(datetime.fromisoformat(moment) - datetime.fromisoformat(start)).total_seconds():.3f} s"


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:.1f} ms"
