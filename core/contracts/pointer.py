"""JSON pointers (RFC 6901), in the fragments of references and in what people read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, unquote

__all__ = ["fragment", "printable", "quoted", "resolve", "show", "step", "unquote"]

_SHOWN: Final = 64
"""Characters of a name: it may be as long as the message that it came in."""


def step(name: str | int) -> str:
    """Write one step of a pointer, its slash included."""
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


def show(path: Iterable[str | int]) -> str:
    """Write a pointer for people: long names are cut, and what can't be printed is escaped."""
    return printable("".join(map(step, path)))


def printable(pointer: str) -> str:
    """Make a pointer fit for one line: it is made of strangers' names."""
    return "/".join(_printable(each) for each in pointer.split("/"))


def _printable(name: str) -> str:
    shown = _cut(name)
    return shown if shown.isprintable() else repr(shown)[1:-1]


def quoted(name: str) -> str:
    """Quote a stranger's name for one line: cut where it is long, escaped where it can't be printed."""
    return repr(_cut(name))


def _cut(name: str) -> str:
    return name if len(name) <= _SHOWN else name[:_SHOWN] + "…"


def fragment(pointer: str) -> str:
    """Write a pointer as a reference, encoded as RFC 3986 wants it; many generators don't."""
    return "#" + quote(pointer, safe="/~!$&'()*+,;=:@?")


def resolve(root: Any, pointer: str) -> Any:
    """Find what a pointer points at; raises LookupError where that is nothing."""
    value = root
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[_index(name)]
        elif isinstance(value, dict):
            value = value[name]
        else:
            raise LookupError(name)
    return value


def _index(name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        raise LookupError(name)
    return int(name)
