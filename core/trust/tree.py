"""What stands in a directory, file by file, so that any change to it is seen.

Nothing is left out: an approved server may load whatever lies beside it. The walk follows no link, reads regular files
alone, and is bounded in number, depth and bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...hookspecs import PackageUnsafe
from .canonical import digest_of

MOST_FILES = 50_000
MOST_BYTES = 2 * 1024**3
MOST_DEPTH = 64
_CHUNK = 1024 * 1024

LinkOut = Callable[[Path, Path], bool]
"""Whether a link (its place, what it resolves to) may lead out of the directory."""


@dataclass(frozen=True, slots=True)
class Tree:
    """``entries`` maps a path, relative and with ``/``, to what it is: a file's SHA-256 with `` x`` behind it where it
    may be executed, ``-> target`` for a link, ``directory`` for an empty one. ``shared`` files have other names, too.
    """

    entries: Mapping[str, str]
    shared: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return digest_of("tree", dict(self.entries))


def read_tree(root: Path, *, link_out: LinkOut, leave_out: frozenset[str] = frozenset()) -> Tree:
    """Walk ``root``; ``leave_out`` are directories in it, relative and with ``/``, that are no part of it.

    Raises ``PackageUnsafe`` for what can't be vouched for.
    """
    walk = _Walk(root, link_out)
    entries = {}
    for path, what in walk.below("", 0):
        if not any(path == other or path.startswith(f"{other}/") for other in leave_out):
            entries[path] = what
    return Tree(dict(sorted(entries.items())), tuple(sorted(walk.shared)))


def file_sha256(path: Path) -> str:
    """The SHA-256 of a regular file, links followed; raises ``PackageUnsafe``."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PackageUnsafe("this is no regular file", where=str(path))
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise PackageUnsafe(f"the file can't be read: {error.strerror or error}", where=str(path)) from error


class _Walk:
    def __init__(self, root: Path, link_out: LinkOut) -> None:
        self._root = root
        self._real = Path(os.path.realpath(root))
        self._link_out = link_out
        self._files = 0
        self._bytes = 0
        self.shared: list[str] = []

    def below(self, at: str, depth: int) -> Iterator[tuple[str, str]]:
        if depth > MOST_DEPTH:
            raise self._unsafe(at, f"the directory is nested deeper than {MOST_DEPTH}")
        empty = True
        try:
            with os.scandir(self._root / at) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise self._unsafe(at, f"the directory can't be read: {error.strerror}") from error
        for entry in entries:
            empty = False
            path = f"{at}/{entry.name}" if at else entry.name
            self._count(path)
            if entry.is_symlink():
                yield path, self._link(path)
            elif entry.is_dir(follow_symlinks=False):
                yield from self.below(path, depth + 1)
            else:
                yield path, self._file(path)
        if empty and at:
            yield at, "directory"

    def _count(self, path: str) -> None:
        self._files += 1
        if self._files > MOST_FILES:
            raise self._unsafe(path, f"the directory holds more than {MOST_FILES:,} files")

    def _link(self, path: str) -> str:
        place = self._root / path
        target = os.readlink(place)
        resolved = Path(os.path.realpath(place))
        if resolved.is_relative_to(self._real):
            return f"-> {target}"
        if self._link_out(place, resolved):
            return f"-> {target} {file_sha256(resolved)}"
        raise self._unsafe(path, f"is a link out of the directory, to {resolved}", "put the file itself there")

    def _file(self, path: str) -> str:
        place = f"{self._root}/{path}"  # pathlib takes as long for each as reading it
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            # a socket can't be opened at all
            raise self._unsafe(path, f"can't be read: {error.strerror}", "make it a file that can be read") from error
        with open(descriptor, "rb") as file:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise self._unsafe(path, "is a pipe, a socket or a device", "remove it")
            if seen.st_mode & (stat.S_ISUID | stat.S_ISGID):
                raise self._unsafe(
                    path, "runs with other rights than whoever starts it (set-uid)", f"chmod ug-s {path}"
                )
            if seen.st_nlink > 1:
                self.shared.append(path)
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                self._bytes += len(chunk)
                if self._bytes > MOST_BYTES:
                    raise self._unsafe(path, f"the directory holds more than {MOST_BYTES >> 30} GiB")
                digest.update(chunk)
            return digest.hexdigest() + (" x" if seen.st_mode & 0o111 else "")

    def _unsafe(self, path: str, problem: str, hint: str | None = None) -> PackageUnsafe:
        return PackageUnsafe(problem, where=ascii(str(self._root / path))[1:-1], hint=hint)
