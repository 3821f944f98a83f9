"""From what a transport wants started to what will be started: the executable, and the child's whole environment.

The same code answers a preview (``bascule check``) and a start.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..hookspecs import (
    Isolation,
    IsolationRequest,
    LaunchPlan,
    LaunchRequest,
    Limits,
    ManifestInvalid,
    PackageNotFound,
    loads_code,
)
from .needs import Needs, unshimmed

_ALLOWED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR"})
_ALLOWED_PREFIXES = ("LC_",)
_ALLOWED_ON_WINDOWS = frozenset(
    {"APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT"}
    | {"TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"}
)
_FIXED = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
"""A Python server must speak UTF-8 whatever the locale is, keep no answer in a buffer, and leave its directory as
it was approved."""

_OF_THE_OWNER = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"})

_PYTHON_NAMES = frozenset({"python", "python3", "python.exe", "python3.exe"})


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes plans. ``executables`` are the owner's bindings of bare names, ``host`` this process's environment.

    ``fetched`` is where a program that was fetched at approval lies, for a plan that starts one.
    """

    executables: Mapping[str, Path] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    fetched: Path | None = None

    def plan(
        self,
        request: LaunchRequest,
        limits: Limits,
        isolation: IsolationRequest | None = None,
        tier: Isolation = Isolation.NONE,
    ) -> LaunchPlan:
        """Say what is started, by a launcher of this ``tier``.

        Raises ``PackageNotFound`` or ``ManifestInvalid`` where the command can't or may not be started.
        """
        executable = self.executable(request.argv[0], request.cwd)
        argv = (str(executable), *request.argv[1:])
        env = self.environment(request)
        asked = IsolationRequest() if isolation is None else isolation
        if tier is not Isolation.NONE:
            env = {**_apart(env, asked, tier), **request.env}
            needs = Needs((Path(self.host.get("HOME", "/")), *asked.hidden), env.get("PATH"))
            asked = replace(asked, readable=tuple(dict.fromkeys((*asked.readable, *needs.of(executable)))))
        return LaunchPlan(executable, argv, request.cwd, env, limits, asked)

    def executable(self, command: str, directory: Path) -> Path:
        """Find the program that ``command`` means for the plugin in ``directory`` (N3.3)."""
        if self.fetched is not None and Path(command).is_relative_to(self.fetched):
            return _usable(Path(command), "the package that was fetched")
        if os.path.dirname(command) or command in (".", ".."):
            return _inside(command, directory)
        bound = self.executables.get(command)
        if bound is not None:
            return _usable(bound, f"executables.{command} in the settings")
        found = shutil.which(command, path=self.host.get("PATH", os.defpath))
        if found is not None:
            return unshimmed(Path(found).absolute(), self.host)
        if command in _PYTHON_NAMES:
            return Path(sys.executable)
        raise PackageNotFound(
            f"the executable {command!r} is not on PATH",
            where="backend.command",
            hint=f"install it, or bind it in bascule.yaml: executables: {{{command}: /absolute/path}}",
        )

    def environment(self, request: LaunchRequest) -> dict[str, str]:
        """Build the child's whole environment: an allow-list of ours, names let through, literal values (N6.3)."""
        for name in (*request.env, *request.pass_env):
            if loads_code(name):
                raise ManifestInvalid(
                    f"{name} makes a program load other code than was approved", where="backend.env", hint="remove it"
                )
        child = {name: value for name, value in self.host.items() if _allowed(name) and not value.startswith("()")}
        child.update(_FIXED)
        child.update({name: self.host[name] for name in request.pass_env if name in self.host})
        child.update(request.env)
        return child


def _apart(env: Mapping[str, str], isolation: IsolationRequest, tier: Isolation) -> dict[str, str]:
    """The environment of a sandboxed child: it has a home of its own, and does not learn whose machine it is on."""
    named = {name: value for name, value in env.items() if name not in _OF_THE_OWNER}
    temporary = "/tmp"  # noqa: S108 - full isolation gives each child one of its own
    if tier is not Isolation.FULL and isolation.data is not None:
        temporary = str(isolation.data / "tmp")
    return {**named, "HOME": str(isolation.data or temporary), "TMPDIR": temporary}


def _allowed(name: str) -> bool:
    if os.name == "nt" and name.upper() in _ALLOWED_ON_WINDOWS:
        return True
    return name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)


def _inside(command: str, directory: Path) -> Path:
    """Resolve a command with a directory part; it must lie in the plugin's directory, links resolved (N3.3)."""
    root = directory.resolve()
    written = directory / command
    if ".." in Path(command).parts:
        raise _outside(command, root)
    place = written.parent.resolve() / written.name
    if not place.is_relative_to(root):
        raise _outside(command, root)
    target = written.resolve()
    if not target.is_relative_to(root) and not interpreter_of_environment(place):
        raise _outside(command, root, target)
    return _usable(place, "backend.command")


def interpreter_of_environment(place: Path) -> bool:
    """``bin/python*`` of a virtual environment is always a link out of it, to the interpreter it was made from."""
    return (
        place.name.startswith("python")
        and place.parent.name in ("bin", "Scripts")
        and (place.parent.parent / "pyvenv.cfg").is_file()
    )


def _usable(path: Path, where: str) -> Path:
    if not path.exists():
        raise PackageNotFound(f"the executable {path} does not exist", where=where)
    if not path.is_file() or not os.access(path, os.X_OK):
        raise PackageNotFound(
            f"{path} is no executable file",
            where=where,
            hint=f"make it one: chmod +x {path}" if path.is_file() else None,
        )
    return path


def _outside(command: str, root: Path, target: Path | None = None) -> ManifestInvalid:
    seen = f" (it is a link to {target})" if target is not None else ""
    return ManifestInvalid(
        f"{command!r} leads out of the plugin's directory {root}{seen}",
        where="backend.command",
        hint="give a name that is on PATH, or a file inside the plugin's directory",
    )
