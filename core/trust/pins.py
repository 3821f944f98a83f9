"""What a server lists, pinned at approval, so that no tool becomes another one afterwards (the "rug pull").

A tool's pin is its whole definition as it came, members that no one knows included. Besides these the set of names is
pinned, and what the server says of itself in its instructions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...hookspecs import JsonObject
from .canonical import canonical, digest_of, shown

INSTRUCTIONS = "instructions"
"""The name by which the server's instructions are approved; a tool's id always holds a dot."""

_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Pins:
    """Definitions by the server's own names, and its instructions."""

    tools: Mapping[str, JsonObject] = field(default_factory=dict)
    instructions: str | None = None

    @classmethod
    def of(cls, listed: Iterable[JsonObject], instructions: str | None) -> Pins:
        """Pin what a server lists; names were checked before."""
        return cls({str(tool.get("name")): tool for tool in listed}, instructions)

    @property
    def digest(self) -> str:
        return digest_of("definitions", self.as_dict())

    @property
    def size(self) -> int:
        """Bytes of JSON that keeping it takes."""
        return len(canonical(self.as_dict()))

    def as_dict(self) -> dict[str, Any]:
        return {"tools": dict(self.tools), "instructions": self.instructions}

    @classmethod
    def from_dict(cls, data: Any) -> Pins | None:
        """Read what :meth:`as_dict` wrote; ``None`` where it is something else."""
        tools = data.get("tools") if isinstance(data, Mapping) else None
        if not isinstance(tools, Mapping) or not all(isinstance(tool, Mapping) for tool in tools.values()):
            return None
        instructions = data.get("instructions")
        return cls(dict(tools), instructions if isinstance(instructions, str) else None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``approved`` may stand in the registry; ``quarantined`` says how each of the others differs, by its own name.

    ``instructions`` says how these changed, ``missing`` what was approved and is no longer listed.
    """

    approved: Sequence[JsonObject]
    quarantined: Mapping[str, tuple[str, ...]]
    instructions: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def tool_digest(definition: JsonObject) -> str:
    """The digest of one whole definition."""
    return digest_of("tool", definition)


def judge(pins: Pins, listed: Sequence[JsonObject], instructions: str | None) -> Verdict:
    """Measure what a server lists now by what was approved."""
    approved: list[JsonObject] = []
    quarantined: dict[str, tuple[str, ...]] = {}
    names = {str(tool.get("name")) for tool in listed}
    missing = tuple(sorted(set(pins.tools) - names))
    for tool in listed:
        name = str(tool.get("name"))
        pinned = pins.tools.get(name)
        if pinned is None:
            quarantined[name] = (_origin(tool, pins, missing),)
        elif canonical(pinned) == canonical(tool):
            approved.append(tool)
        else:
            quarantined[name] = changes(pinned, tool)
    said: tuple[str, ...] = ()
    if instructions != pins.instructions:
        said = (f"{INSTRUCTIONS}: {shown(pins.instructions)} -> {shown(instructions)}",)
    return Verdict(approved, quarantined, said, missing)


def _origin(tool: JsonObject, pins: Pins, missing: Sequence[str]) -> str:
    """A renamed tool is a new one, too; it helps to know which it was."""
    body = canonical({**tool, "name": None})
    for name in missing:
        if canonical({**pins.tools[name], "name": None}) == body:
            return f"new name of {shown(name)}"
    return "new: no tool of this name was approved"


def changes(old: JsonObject, new: JsonObject) -> tuple[str, ...]:
    """Say in words what a definition says now that it did not say."""
    lines = list(_changes("", old, new))
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"… and {len(lines) - _SHOWN} more"]
    return tuple(lines)


def _changes(at: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            place = f"{at}.{key}" if at else key
            if key not in old:
                yield f"{json.dumps(place)[1:-1]}: + {shown(new[key])}"
            elif key not in new:
                yield f"{json.dumps(place)[1:-1]}: - {shown(old[key])}"
            else:
                yield from _changes(place, old[key], new[key])
    elif canonical(old) != canonical(new):
        yield f"{json.dumps(at)[1:-1]}: {shown(old)} -> {shown(new)}"
