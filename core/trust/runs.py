"""Commands that run a package (``uvx``, ``npx``): which package, of which version (N6.11). Read, never run.

=================================== =====================================================
``uvx pkg==1.2``, ``uvx pkg@1.2``    the command ``pkg`` of the distribution ``pkg`` 1.2
``uvx --from pkg==1.2 tool``         its command ``tool``; ``--with more==3`` adds to it
``npx -y pkg@1.2.3``                 the command of the package ``pkg`` 1.2.3
``npx -y -p pkg@1.2.3 tool``         its command ``tool``
=================================== =====================================================

``uv tool run`` and ``npm exec`` are the same by other names. Anything else that fetches is refused: what it would run
can't be said before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...hookspecs import PackageUnpinned
from .canonical import digest_of

_UVX = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\[[A-Za-z0-9,._-]+\])?((==|@)(?P<version>[0-9][A-Za-z0-9.+!]*))?"
)
_NPX = re.compile(
    r"(?P<name>(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*)(@(?P<version>\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?))?"
)
_OTHERS = frozenset({"pipx", "bunx", "pnpx", "pnpm", "yarn", "bun", "deno"})
_QUIET = frozenset({"-q", "--quiet", "-y", "--yes", "--isolated", "--no-progress", "--"})


@dataclass(frozen=True, slots=True)
class PackageRun:
    """``packages`` are exact, the first is the one whose ``command`` is run (empty: the one that it has)."""

    kind: Literal["pypi", "npm"]
    packages: tuple[tuple[str, str], ...]
    command: str
    arguments: tuple[str, ...]

    @property
    def specs(self) -> tuple[str, ...]:
        """As pip or npm want them written."""
        return tuple(f"{name}{'==' if self.kind == 'pypi' else '@'}{version}" for name, version in self.packages)

    @property
    def key(self) -> str:
        """A name for the environment: the same packages, the same one."""
        return digest_of("packages", [self.kind, *self.specs])[:16]


def read_run(argv: Sequence[str]) -> PackageRun | None:
    """Read a command; ``None`` where it runs no package. Raises ``PackageUnpinned`` where that is not exact."""
    name, rest = _runner(argv)
    if name == "uvx":
        return _uvx(rest)
    if name == "npx":
        return _npx(rest)
    if name in _OTHERS:
        raise PackageUnpinned(
            f"{name} fetches what it runs, and Bascule can't do that for it",
            where="backend.command",
            hint="use uvx NAME==1.2.3 or npx -y NAME@1.2.3, or a program that is installed",
        )
    return None


def _runner(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Name the runner by its usual name; its arguments are the rest."""
    words = [os.path.basename(argv[0]).removesuffix(".exe").removesuffix(".cmd"), *argv[1:3]]
    if words[:3] == ["uv", "tool", "run"]:
        return "uvx", argv[3:]
    if words[:2] == ["uv", "run"]:
        raise PackageUnpinned(
            "uv run asks the index for what a project needs, at every start",
            where="backend.command",
            hint="make the project's environment (uv sync) and run its own program: .venv/bin/NAME",
        )
    if words[:2] in (["npm", "exec"], ["npm", "x"]):
        return "npx", argv[2:]
    return words[0], argv[1:]


def _uvx(words: Sequence[str]) -> PackageRun:
    options, rest = _options(words, {"--from": "from", "--with": "with", "-w": "with"}, "uvx")
    source = options.get("from", [])
    if not rest or len(source) > 1:
        raise _unpinned("uvx", "it names no package", "NAME==1.2.3")
    first = _exact(_UVX, source[0] if source else rest[0], "uvx", "==")
    more = [_exact(_UVX, spec, "uvx --with", "==") for spec in options.get("with", [])]
    command = rest[0] if source else first[0].partition("[")[0]
    _check_command(command, "uvx")
    return PackageRun("pypi", (first, *more), command, tuple(rest[1:]))


def _npx(words: Sequence[str]) -> PackageRun:
    options, rest = _options(words, {"-p": "package", "--package": "package"}, "npx")
    named = options.get("package", [])
    if not rest:
        raise _unpinned("npx", "it names no package", "NAME@1.2.3")
    packages = tuple(_exact(_NPX, spec, "npx", "@") for spec in (named or rest[:1]))
    command = rest[0] if named else ""
    _check_command(command, "npx")
    return PackageRun("npm", packages, command, tuple(rest[1:]))


def _check_command(command: str, runner: str) -> None:
    """A command is a name in the environment; as a path it would lead out of it."""
    if "/" in command or "\\" in command or command in (".", ".."):
        raise PackageUnpinned(
            f"{runner}: {command!a} is no command of a package",
            where="backend.args",
            hint="name one without directories",
        )


def _options(words: Sequence[str], known: dict[str, str], runner: str) -> tuple[dict[str, list[str]], list[str]]:
    """Take the runner's own options off; they end where the package, or the command, begins."""
    taken: dict[str, list[str]] = {}
    left = list(words)
    while left and left[0].startswith("-"):
        option, equals, value = left.pop(0).partition("=")
        if option in known and (equals or left):
            taken.setdefault(known[option], []).append(value if equals else left.pop(0))
        elif option not in _QUIET:
            raise PackageUnpinned(
                f"{runner} {option}: what that would run can't be said before",
                where="backend.args",
                hint=f"{runner} takes {', '.join(sorted(known))} here",
            )
        elif option == "--":
            break
    return taken, left


def _exact(form: re.Pattern[str], spec: str, runner: str, sign: str) -> tuple[str, str]:
    found = form.fullmatch(spec)
    if found is None or not found["version"]:
        name = re.split(r"(?<=.)[@=<>~!\[ ]", spec, maxsplit=1)[0]
        raise _unpinned(runner, f"{spec!a} is no exact version", f"{name}{sign}1.2.3")
    extras = found.groupdict().get("extras") or ""
    return f"{found['name']}{extras}", found["version"]


def _unpinned(runner: str, problem: str, form: str) -> PackageUnpinned:
    return PackageUnpinned(
        f"{runner} would fetch and run whatever is newest: {problem}",
        where="backend.args",
        hint=f"pin the version that you have looked at, as in {form}",
    )
