"""A look at a plugin as it would run now: the facts that its approval is bound to. Starts nothing."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...hookspecs import ClientTransport, CommandView, Isolation, Launcher, LaunchPlan, LaunchRequest
from ..admission import requested
from ..credentials import sealed
from ..launching import interpreter_of_environment
from ..manifest import Manifest
from .canonical import shown
from .facts import Facts, command_digest
from .packages import Packages
from .runs import PackageRun
from .tree import Tree, file_sha256, read_tree

_CODE = re.compile(r"\.(bat|cjs|dll|exe|jar|js|lua|mjs|node|php|pl|ps1|py|pyc|pyz|rb|sh|so|ts|wasm|whl)", re.IGNORECASE)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "cmd", "powershell", "pwsh"})


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen. ``plan`` and ``request`` are ``None`` where the transport starts no process.

    ``run`` is the package that the command runs; until it is fetched there is no plan.
    """

    facts: Facts
    tree: Tree
    request: LaunchRequest | None
    plan: LaunchPlan | None
    launcher: Launcher | None
    run: PackageRun | None = None
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return command_digest(self.facts)

    @property
    def launcher_name(self) -> str:
        return "" if self.launcher is None else self.launcher.name


@dataclass(frozen=True, slots=True)
class Looker:
    """Looks at plugins. ``transports``, ``plan``, ``launcher`` and ``run`` are what the start itself uses."""

    transports: Mapping[str, ClientTransport]
    launcher: Callable[[Manifest], Launcher | None]
    plan: Callable[[Manifest, LaunchRequest], LaunchPlan]
    run: Callable[[LaunchRequest], PackageRun | None]
    packages: Packages
    state: Path

    def look(self, manifest: Manifest) -> Look:
        """Raises ``PackageUnsafe``, ``PackageNotFound`` and what else keeps the plugin from being started."""
        transport = self.transports[manifest.transport]
        launcher = self.launcher(manifest)
        request = transport.preview(manifest.backend, manifest.directory)
        run = None if request is None else self.run(request)
        pin = None if run is None else self.packages.pin(manifest.id, run)
        plan = None if request is None or (run is not None and pin is None) else self.plan(manifest, request)
        tree = plugin_tree(manifest.directory, frozenset() if plan is None else _written_by_itself(plan))
        outside = {} if request is None else _outside(request)
        place = _Places(manifest.directory, self.state)
        isolation = {} if plan is None else place.plain(getattr(plan, "isolation", None)) or {}
        facts = {
            "transport": {"name": manifest.transport, "process": transport.starts_process},
            "executable": None if plan is None else _executable(plan, place),
            "argv": [place.written(word) for word in sealed(_argv(request, plan))],
            "environment": [] if request is None else sorted({*request.env, *request.pass_env}),
            "manifest": manifest.digest,  # of what is acted on; the file itself is among the files
            "files": dict(tree.entries),
            "outside": outside,
            "permissions": sorted(requested(manifest)),
            "isolation": {"launcher": launcher.name, "tier": launcher.isolation.value, **isolation}
            if launcher is not None
            else {},
            "source": {"type": "directory"} if run is None else _source(run, pin),
        }
        if run is not None and pin is not None:
            fetched = read_tree(self.packages.place(manifest.id, run), link_out=_leads_to_an_interpreter)
            facts["packages"] = dict(fetched.entries)
        warnings = tuple(_warnings(launcher, request, tree, outside))
        return Look(facts, tree, request, plan, launcher, run, warnings)


def command_view(look: Look) -> CommandView | None:
    """What would be started, as an approver is shown it; ``None`` where nothing is."""
    request, plan = look.request, look.plan
    if request is None:
        return None
    if plan is None:  # a package that is still to be fetched
        declared, passed = tuple(sorted(request.env)), tuple(sorted(request.pass_env))
        return CommandView("", "", "", tuple(request.argv), str(request.cwd), (), declared, passed)
    return CommandView(
        executable=str(plan.executable),
        resolved=os.path.realpath(plan.executable),
        sha256=look.facts["executable"]["sha256"],
        argv=tuple(plan.argv),
        cwd=str(plan.cwd),
        environment=tuple(sorted(plan.env)),
        declared=tuple(sorted(request.env)),
        passed=tuple(sorted(request.pass_env)),
    )


class _Places:
    """Writes paths relative to the plugin's and the state's directory."""

    def __init__(self, directory: Path, state: Path) -> None:
        self._known = ((str(directory), "."), (str(state), "<state>"))

    def written(self, path: str) -> str:
        for root, name in self._known:
            if path == root or path.startswith(f"{root}{os.sep}"):
                return name + path[len(root) :]
        return path

    def plain(self, value: Any) -> Any:
        """``value`` as JSON."""
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: self.plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            return {str(key): self.plain(each) for key, each in value.items()}
        if isinstance(value, set | frozenset):
            return sorted(str(self.plain(each)) for each in value)
        if isinstance(value, list | tuple):
            return [self.plain(each) for each in value]
        return self.written(str(value)) if isinstance(value, str | Path) else value


def _argv(request: LaunchRequest | None, plan: LaunchPlan | None) -> Sequence[str]:
    """What is started; what the manifest says where that is still to be fetched, or nothing is."""
    if plan is not None:
        return plan.argv
    return () if request is None else request.argv


def _outside(request: LaunchRequest) -> dict[str, str]:
    """Arguments that name a program which is not the plugin's; what is data may change."""
    root = request.cwd.resolve()
    found = {}
    for word in request.argv[1:]:
        with suppress(OSError, ValueError):  # too long for a name, or none at all
            path = (root / word).resolve()
            if path.is_file() and not path.is_relative_to(root) and _is_code(path):
                found[word] = file_sha256(path)
    return found


def _is_code(path: Path) -> bool:
    return _CODE.fullmatch(path.suffix) is not None or os.access(path, os.X_OK)


def _source(run: PackageRun, pin: Mapping[str, Any] | None) -> dict[str, Any]:
    name, version = run.packages[0]
    source = {"type": run.kind, "name": name, "version": version, "packages": list(run.specs)}
    return source if pin is None else {**source, "fetched": dict(pin.get("files") or {})}


def plugin_tree(directory: Path, leave_out: frozenset[str] = frozenset()) -> Tree:
    """A plugin's directory, file by file, without what :func:`read_tree` leaves out. Raises ``PackageUnsafe``."""
    return read_tree(directory, link_out=_leads_to_an_interpreter, leave_out=leave_out)


def read_plugin(manifest: Manifest) -> Mapping[str, str]:
    """What a publisher vouches for: the plugin's files without those that its server writes."""
    return plugin_tree(manifest.directory, frozenset(manifest.isolation.writable)).entries


def _executable(plan: LaunchPlan, place: _Places) -> dict[str, str]:
    resolved = Path(os.path.realpath(plan.executable))
    return {
        "path": place.written(str(plan.executable)),
        "resolved": place.written(str(resolved)),
        "sha256": file_sha256(resolved),
    }


def _written_by_itself(plan: LaunchPlan) -> frozenset[str]:
    """Directories in the plugin's own that its server may write in: what stands there is its data."""
    inside = [place for place in plan.isolation.writable if place != plan.cwd and place.is_relative_to(plan.cwd)]
    return frozenset(place.relative_to(plan.cwd).as_posix() for place in inside)


def _leads_to_an_interpreter(place: Path, target: Path) -> bool:
    return interpreter_of_environment(place) and target.is_file()


def _warnings(
    launcher: Launcher | None, request: LaunchRequest | None, tree: Tree, outside: Iterable[str]
) -> list[str]:
    warnings = []
    if launcher is not None and launcher.isolation is Isolation.NONE:
        warnings.append(f"it would run with ALL YOUR RIGHTS: the launcher {launcher.name!r} isolates nothing")
    if request is not None and os.path.basename(request.argv[0]) in _SHELLS:
        warnings.append("its command is a shell: what that runs may come from anywhere")
    warnings += [f"the argument {shown(word)} is a program outside the plugin's directory" for word in outside]
    if tree.shared:
        warnings.append(f"{len(tree.shared)} of its files have other names on this disk, where they can be changed")
    return warnings
