"""What an executable needs of the file system to run: its installation, its environment, its interpreter.

Read from links, first lines and ``pyvenv.cfg``; nothing is run. A sandbox shows these places, read-only, and the owner
sees them in a preview, so none may be wider than an installation: where a prefix would hold a home, the bridge's state
or half of the system, only the file itself is shown.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")))
"""Every sandbox has these."""

_WIDE = re.compile(r"/|/(etc|home|media|mnt|nix|opt|private|proc|root|run|snap|srv|sys|tmp|usr|var|Users)")
_STORES = (Path("/nix/store"), Path("/gnu/store"))
"""Where everything refers to everything: shown whole."""

_MOST_HOPS = 40
_HEAD = 4096
_PREFIX_MARKS = ("pyvenv.cfg", "conda-meta", "lib", "lib64", "libexec", "share")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,99}")


class Needs:
    """Collects places. ``private`` are directories that no place may hold: the home, the bridge's state."""

    def __init__(self, private: Iterable[Path], search: str | None) -> None:
        self._private = [path.resolve() for path in private]
        self._search = search
        self._places: set[Path] = set()
        self._seen: set[Path] = set()

    def of(self, executable: Path) -> tuple[Path, ...]:
        """Every place that ``executable`` needs beyond the system's own, outer ones only."""
        self._follow(executable)
        places = sorted(path for path in self._places if not _of_system(path))
        return tuple(path for path in places if not any(other in path.parents for other in places))

    def _follow(self, path: Path) -> None:
        """Look at ``path``, at everything it links to, and at the interpreter that its first line names."""
        for hop in _hops(path):
            if hop in self._seen or len(self._seen) > _MOST_HOPS:
                return
            self._seen.add(hop)
            self._places.add(self._place(hop))
            self._environment(hop.parent.parent)
            if not hop.is_symlink():
                self._interpreter(hop)

    def _place(self, file: Path) -> Path:
        """The installation that ``file`` belongs to, or the file alone."""
        for store in _STORES:
            if file.is_relative_to(store):
                return store
        if "node_modules" in file.parts:
            top = Path(*file.parts[: file.parts.index("node_modules") + 1])
            if self._narrow(top):
                return top
        prefix = file.parent.parent
        installation = file.parent.name in ("bin", "sbin", "Scripts") and any(
            (prefix / mark).exists() for mark in _PREFIX_MARKS
        )
        if installation and self._narrow(prefix):
            return prefix
        if file.is_relative_to("/opt") and len(file.parts) > 3:
            return Path(*file.parts[:3])
        return file

    def _narrow(self, place: Path) -> bool:
        real = place.resolve()
        holds_private = any(private == real or real in private.parents for private in self._private)
        return not holds_private and not any(_WIDE.fullmatch(str(path)) for path in (place, real))

    def _environment(self, prefix: Path) -> None:
        """A virtual environment needs the installation that it was made from."""
        try:
            text = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")[:65_536]
        except OSError:
            return
        found = re.search(r"^home\s*=\s*(/.*\S)\s*$", text, re.MULTILINE)
        if found:
            for name in ("python3", "python"):
                if os.path.lexists(base := Path(found[1]) / name):
                    self._follow(base)
                    return

    def _interpreter(self, script: Path) -> None:
        try:
            with script.open("rb") as file:
                first, *rest = file.read(_HEAD).split(b"\n", 2)
        except OSError:
            return
        if not first.startswith(b"#!"):
            return
        words = os.fsdecode(first[2:]).split()
        if words and Path(words[0]).name == "env":
            named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            found = shutil.which(named[0], path=self._search) if named else None
            words = [] if found is None else [str(unshimmed(Path(found)))]
        for word in (*words[:1], *_by_shell(os.fsdecode(rest[0] if rest else b""))):
            if word.startswith("/"):
                self._follow(Path(word))


def _by_shell(second: str) -> list[str]:
    """The interpreter that a second line starts: so do installers where its path has blanks or is too long."""
    if not second.startswith("'''exec' "):
        return []
    try:
        return shlex.split(second)[1:2]
    except ValueError:
        return []


def _hops(path: Path) -> Iterator[Path]:
    """``path``, and one after the other what it links to; directories on the way are resolved."""
    for _ in range(_MOST_HOPS):
        yield path
        if not path.is_symlink():
            break
        path = path.parent / os.readlink(path)
        path = path.parent.resolve() / path.name
    yield path.resolve()


def _of_system(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in _SYSTEM)


def unshimmed(found: Path, host: Mapping[str, str] = os.environ) -> Path:
    """What a version manager's shim (pyenv, rbenv, nodenv: ``ROOT/shims/NAME``) stands for, by its own files.

    The version is the one that ``PYENV_VERSION`` (…) names, else the global one; a shim that this does not explain
    stays what it is. A plugin's own directory is not asked: it must not choose what interprets it.
    """
    root = found.parent.parent
    if found.parent.name != "shims" or not (root / "versions").is_dir():
        return found
    manager = root.name.lstrip(".").upper()
    try:
        chosen = host.get(f"{manager}_VERSION", "").split(":") + (root / "version").read_text("utf-8").split()
    except OSError:
        chosen = host.get(f"{manager}_VERSION", "").split(":")
    for version in filter(_VERSION.fullmatch, chosen):
        candidates = [root / "versions" / version, *sorted((root / "versions").glob(f"{version}.*"), reverse=True)]
        for candidate in candidates:
            program = candidate / "bin" / found.name
            if os.access(program, os.X_OK):
                return program
    return found
