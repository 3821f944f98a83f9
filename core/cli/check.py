"""``bascule check``: what a plugin is, what it would run, what it asks for. Nothing is started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ...hookspecs import (
    Isolation,
    LaunchPlan,
    LaunchRequest,
    PackageNotFound,
    PackageUnpinned,
    PluginIsolationUnavailable,
    TrustApprovalRequired,
)
from ..admission import requested
from ..bridge import lineup_for, state_directory
from ..isolation import Keepers, Keeping
from ..launching import Planner
from ..lineup import Lineup
from ..manifest import Manifest, load_manifest
from ..redaction import REDACTED, Redactor, telling
from ..settings import Settings
from ..trust import read_run
from . import options
from .output import print_json, say


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@options.common
def check(
    directory: Path,
    config: Path | None,
    state: Path | None,
    no_hook_plugins: tuple[str, ...],
    as_json: bool,
    verbose: int,
) -> int:
    """Read the manifest in DIR and show the complete command that enabling it would run. Starts nothing."""
    settings = options.settings_from(config, state, no_hook_plugins, verbose)
    lineup = lineup_for(settings)
    report = _report(directory, settings, lineup)
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 0


def _report(directory: Path, settings: Settings, lineup: Lineup) -> dict[str, Any]:
    manifest = load_manifest(
        directory, transports=lineup.client_transports, permissions=lineup.permissions, limits=settings.limits
    )
    transport = lineup.client_transports[manifest.transport]
    request = transport.preview(manifest.backend, manifest.directory)
    keepers = Keepers(settings, lineup.launchers, state_directory(settings))
    keeping, refusal = _keeping(keepers, manifest)
    isolation = Isolation.NONE if keeping is None else keeping.isolation
    plan = None
    if request is not None:
        try:
            asked = keepers.request(manifest)
            plan = Planner(settings.executables).plan(request, settings.limits, asked, isolation)
        except PackageNotFound:
            if not _is_fetched(request):
                raise
    return {
        "id": manifest.id,
        "name": manifest.name,
        "version": manifest.version,
        "manifest": str(manifest.path),
        "digest": manifest.digest,
        "transport": manifest.transport,
        "permissions": sorted(requested(manifest)),
        "tools": list(manifest.tools),
        "command": None if request is None else _command(plan, request),
        "launcher": None if keeping is None else keeping.launcher.name,
        "isolation": str(isolation),
        "sandbox": None if plan is None else _sandbox(plan, isolation),
        "launchers": {name: reason or "works" for name, reason in keepers.probe().items()},
        "warnings": [*refusal, *_warnings(manifest, request, transport.starts_process, keeping)],
    }


def _keeping(keepers: Keepers, manifest: Manifest) -> tuple[Keeping | None, list[str]]:
    try:
        return keepers.chosen(manifest), []
    except (TrustApprovalRequired, PluginIsolationUnavailable) as error:
        return None, [str(error)]


def _sandbox(plan: LaunchPlan, isolation: Isolation) -> dict[str, Any] | None:
    """What the server may reach and use; nothing where nothing keeps it from the rest."""
    if isolation is Isolation.NONE:
        return None
    kept = plan.isolation
    return {
        "network": kept.network.value,
        "reads": [str(path) for path in (plan.cwd, *kept.readable)],
        "writes": [str(path) for path in kept.writable],
        "memory_mb": kept.memory_mb,
        "processes": kept.processes,
        "files": kept.files,
        "file_mb": kept.file_mb,
    }


def _is_fetched(request: LaunchRequest) -> bool:
    """Whether an approval fetches what this runs: its runner need not be there then."""
    try:
        return read_run(request.argv) is not None
    except PackageUnpinned:
        return False


def _command(plan: LaunchPlan | None, request: LaunchRequest) -> dict[str, Any]:
    return {
        "executable": request.argv[0] if plan is None else str(plan.executable),
        "argv": list(request.argv if plan is None else plan.argv),
        "cwd": str(request.cwd),
        "environment": [] if plan is None else sorted(plan.env),
        "declared_environment": {name: _shown(name, value) for name, value in request.env.items()},
        "passed_from_host": list(request.pass_env),
    }


def _shown(name: str, value: str) -> str:
    return REDACTED if telling(name) else Redactor().redact(value)


def _warnings(
    manifest: Manifest, request: LaunchRequest | None, starts_process: bool, keeping: Keeping | None
) -> list[str]:
    warnings = []
    if keeping is not None and keeping.widened:
        warnings.append(f"the settings let it do more than its manifest asks for: {', '.join(keeping.widened)}")
    if starts_process and keeping is not None and keeping.isolation is Isolation.NONE:
        warnings.append("it would run with all your rights; outside environment development it is refused")
    try:
        if request is not None and (run := read_run(request.argv)) is not None:
            specs = ", ".join(run.specs)
            warnings.append(
                f"outside environment development an approval fetches {specs}, and a start takes it from there"
            )
    except PackageUnpinned as error:
        warnings.append(f"{error.message}; {error.hint}; outside environment development it is refused")
    if not manifest.tools:
        warnings.append("it declares no tools")
    return warnings


def _print(report: dict[str, Any]) -> None:
    say(f"{report['name']} {report['version']} ({report['id']})", bold=True)
    say(f"manifest     {report['manifest']}\n             sha256 {report['digest']}")
    say(f"permissions  {', '.join(report['permissions'])}")
    say(f"tools        {len(report['tools'])}")
    for tool in report["tools"]:
        say(f"             {tool}")
    _print_command(report)
    _print_isolation(report)
    for warning in report["warnings"]:
        say(f"warning      {warning}", fg="yellow")


def _print_isolation(report: dict[str, Any]) -> None:
    say(f"isolation    {report['isolation']} (launcher {report['launcher'] or 'none'})")
    sandbox = report["sandbox"]
    if sandbox is not None:
        say(f"   network   {sandbox['network']}")
        for path in sandbox["reads"]:
            say(f"   reads     {_quoted(path)}")
        for path in sandbox["writes"]:
            say(f"   writes    {_quoted(path)}")
        bounds = "{memory_mb} MiB of memory, {processes} processes, {files} open files, files of {file_mb} MiB"
        say(f"   at most   {bounds.format(**sandbox)}")
    for name, answer in report["launchers"].items():
        say(f"   {name}: {answer}")


def _print_command(report: dict[str, Any]) -> None:
    command = report["command"]
    if command is None:
        say(f"command      none: the transport {report['transport']} starts no process")
        return
    say(f"command      {command['executable']}")
    for index, argument in enumerate(command["argv"]):
        say(f"   argv[{index}]{' ' * (3 - len(str(index)))} {_quoted(argument)}")
    say(f"   in        {command['cwd']}")
    say(f"   sees      {', '.join(command['environment'])}")
    for name, value in command["declared_environment"].items():
        say(f"   sets      {name}={_quoted(value)}")
    for name in command["passed_from_host"]:
        say(f"   passes    {name} from your environment", fg="yellow")


def _quoted(text: str) -> str:
    """``text`` so that nothing in it hides, and nothing looks like something else."""
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")
