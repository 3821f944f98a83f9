"""Files that people write: what one holds, where each value stands, and what is wrong with it, in plain words."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

ModelT = TypeVar("ModelT", bound=BaseModel)
Keys = tuple[str | int, ...]
"""The way to a value: keys of mappings and indexes of lists."""

MAX_PROBLEMS = 50
"""Whoever has mended fifty sees the next; a hostile file gets no longer answer."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

_WANTED = {
    **dict.fromkeys(["string", "path"], ("text", 'write it in quotes: "…"')),
    "int": ("a whole number", "write digits alone: no point, quotes or units"),
    "float": ("a number", "write digits without quotes or units"),
    "bool": ("true or false", "write true or false"),
    **dict.fromkeys(["list", "tuple", "frozen_set"], ("a list", "write [a, b], or one `- entry` a line")),
    **dict.fromkeys(["dict", "model", "dataclass"], ("a mapping", "write `key: value` lines below it")),
}
"""Pydantic's types of errors, without ``_type`` and ``_parsing``: what is wanted, and how it is written."""

_FOUND = {bool: "true or false", int: "a number", float: "a decimal", str: "text", list: "a list", dict: "a mapping"}


class Problem(NamedTuple):
    """One fault. ``field`` is empty where the file is meant; ``kind`` tells programs its sort, in pydantic's words."""

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


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content. ``digest`` is the SHA-256 of its bytes, in hex; ``lines`` begin at 1.

    ``problems`` are those for which it can't be read.
    """

    path: Path
    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    digest: str = ""
    lines: Mapping[Keys, int] = field(default_factory=dict)
    problems: Sequence[Problem] = ()

    def line(self, keys: Keys) -> int | None:
        """Return the line of ``keys``, or of the nearest thing around it that the file has."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys)

    def problem(self, keys: Keys, problem: str, hint: str, kind: str = "") -> Problem:
        """Make the problem of what stands at ``keys``, or should."""
        return Problem(self.line(keys), field_name(keys), problem, hint, kind)

    def summary(self, problems: Sequence[Problem]) -> tuple[str, str, str | None]:
        """Return message, place and hint of an error that carries ``problems``: one a line where there are several."""
        first, *others = problems
        if not others:
            return str(first), self._place(first), first.hint
        lines = [f"{first} ({first.hint})", *(f"{self._place(other)}: {other} ({other.hint})" for other in others)]
        return "\n".join(lines), self._place(first), None

    def _place(self, problem: Problem) -> str:
        return f"{self.path}:{problem.line}" if problem.line else str(self.path)


def check(
    model: type[ModelT], data: dict[str, Any], document: Document, at: Keys = (), also: Keys = (), context: Any = None
) -> tuple[ModelT | None, Sequence[Problem]]:
    """Validate ``data``, which stands at ``at`` in ``document``; return the value, or what is wrong.

    Keys that ``model`` does not know are problems also where it would ignore them; ``also`` are keys that may stand
    beside its own and were taken out before.
    """
    if document.problems:
        return None, document.problems
    known = (*keys_of(model), *also)
    ignored = model.model_config.get("extra", "ignore") == "ignore"
    unknown = [key for key in data if ignored and key not in known][:MAX_PROBLEMS]
    problems = [document.problem((*at, key), "is not a key here", meant(key, known)) for key in unknown]
    try:
        value = model.model_validate(data, context=context)
        return (None, problems) if problems else (value, ())
    except ValidationError as error:
        problems += [_translated(each, model, document, at, also) for each in error.errors()[:MAX_PROBLEMS]]
    return None, sorted(problems, key=lambda problem: problem.line or 0)


def fault(problem: str, hint: str, kind: str = "fault", at: Keys = ()) -> PydanticCustomError:
    """Make the error that a validator of ours raises about what stands ``at`` below its value."""
    # the words go in as a value: a brace in a stranger's file must not be read as a placeholder
    return PydanticCustomError(kind, "{problem}", {"problem": problem, "bascule_hint": hint, "bascule_at": at})


def meant(word: object, known: Sequence[Any], otherwise: str = "") -> str:
    """Name the cure for a word that is none of ``known``: the near one, or ``otherwise``, by default all."""
    if found := near(str(word), known):
        return f"did you mean {found}?"
    return otherwise or f"known: {', '.join(known) or 'none'}"


def near(word: str, known: Collection[str]) -> str | None:
    """Return what was probably meant by ``word``."""
    found = difflib.get_close_matches(word[:64].lower(), known, n=1)
    return found[0] if found else None


def keys_of(model: type[BaseModel]) -> list[str]:
    """List the keys that ``model`` takes, as they are written in a file: each of a choice, the first of a path."""
    aliases = [field.validation_alias or name for name, field in model.model_fields.items()]
    choices = [choice for alias in aliases for choice in getattr(alias, "choices", [alias])]
    return list(dict.fromkeys(getattr(choice, "path", [choice])[0] for choice in choices))


def _translated(details: ErrorDetails, model: Any, document: Document, at: Keys, also: Keys) -> Problem:
    """Say an error of pydantic's in our words, about the place in the file where it stands."""
    kind, loc, keys = details["type"], details["loc"], at
    for key in (*loc, *details.get("ctx", {}).get("bascule_at", ())):
        # in a file, others are names of a union's members and the like; what no file holds can't tell
        if kind == "missing" or (*keys, key) in document.lines or at not in document.lines:
            keys = (*keys, key)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = (*_keys_at(model, loc[:-1]), *(also if len(loc) == 1 else ()))
        return document.problem(keys, "is not a key here", meant(loc[-1], known), kind)
    if kind == "missing":
        return document.problem(keys, "is missing", f"add `{loc[-1]}: …`", kind)
    return document.problem(keys, *_words(details), kind)


def _words(details: ErrorDetails) -> tuple[str, str]:
    """Return problem and hint: a fault's own, ours for a value of another type, or pydantic's."""
    value, context = details["input"], details.get("ctx", {})
    if "bascule_hint" in context:
        return context["problem"], context["bascule_hint"]
    if wanted := _WANTED.get(re.sub("_(type|parsing)$", "", details["type"])):
        return f"must be {wanted[0]}, not {_FOUND.get(type(value), 'empty')}", wanted[1]
    problem, _, hint = details["msg"].removeprefix("Value error, ").partition("; ")
    if "expected" in context:
        hint = meant(value, re.findall("'([^']*)'", context["expected"]))
    return re.sub(r"^\w+( input)? should ", "must ", problem), hint or "give it another value"


def _keys_at(annotation: Any, keys: Keys) -> list[str]:
    """List the keys that may stand at ``keys`` below something of the type ``annotation``."""
    for index, key in enumerate(keys):
        for name, part in getattr(annotation, "model_fields", {}).items():
            if key in (name, part.alias):
                return _keys_at(part.annotation, keys[index + 1 :])
    if hasattr(annotation, "model_fields"):
        return keys_of(annotation)
    below = [key for member in get_args(annotation) for key in _keys_at(member, keys)]
    return below or list(getattr(annotation, "__dataclass_fields__", ()))


def field_name(keys: Keys) -> str:
    """Write ``("contributes", "tools", 2, "id")`` as ``contributes.tools[2].id``."""
    words = (f"[{key}]" if isinstance(key, int) else f".{key if _PLAIN.match(key) else quoted(key)}" for key in keys)
    return "".join(words).removeprefix(".")


def quoted(text: str) -> str:
    """Show a stranger's text in a message: in quotes, cut, and escaped where it would not show as it is."""
    cut = text if len(text) <= 80 else text[:79] + "…"
    return json.dumps(cut, ensure_ascii=not cut.isprintable())
