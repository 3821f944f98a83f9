"""Files that people write: what one holds, where each value stands, and what may be wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Keys = tuple[str | int, ...]
"""The way to a value: keys of mappings and indexes of lists."""

MAX_PROBLEMS = 50
"""Whoever has mended fifty sees the next; a hostile file gets no longer answer."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content. ``digest`` is the SHA-256 of its bytes, in hex; ``lines`` begin at 1."""

    path: Path
    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    digest: str = ""
    lines: Mapping[Keys, int] = field(default_factory=dict)

    def line(self, keys: Keys) -> int | None:
        """Return the line of ``keys``, or of the nearest thing around it that the file has."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys)


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. ``field`` is empty where the whole file is meant; ``kind`` tells programs what sort it is."""

    line: int | None
    field: str
    problem: str
    hint: str
    kind: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The problem as an error's ``problems`` hold it."""
        return {"line": self.line, "field": self.field, "problem": self.problem, "hint": self.hint}

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" if self.field else self.problem


class DocumentInvalid(Exception):
    """The file can't be read; whoever asked for it makes an error of ``problems``."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


def summary(path: Path, problems: Sequence[Problem]) -> tuple[str, str, str | None]:
    """Return message, place and hint of an error that carries ``problems``: one a line where there are several."""
    first, *others = problems
    if not others:
        return str(first), _place(path, first), first.hint
    lines = [f"{first} ({first.hint})", *(f"{_place(path, other)}: {other} ({other.hint})" for other in others)]
    return "\n".join(lines), _place(path, first), None


def _place(path: Path, problem: Problem) -> str:
    return f"{path}:{problem.line}" if problem.line else str(path)


def field_name(keys: Keys) -> str:
    """Write ``("contributes", "tools", 2, "id")`` as ``contributes.tools[2].id``."""
    name = ""
    for key in keys:
        if isinstance(key, int):
            name += f"[{key}]"
        elif _PLAIN_KEY.fullmatch(key):
            name += f".{key}" if name else key
        else:
            name += f"[{quoted(key)}]"
    return name


def quoted(text: str) -> str:
    """Show a stranger's text in a message: in quotes, cut, and escaped where it would not show as it is."""
    cut = text if len(text) <= 80 else text[:79] + "…"
    return json.dumps(cut, ensure_ascii=not cut.isprintable())
