"""From pydantic's errors to problems: located in the file, in plain words, each with its cure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from .documents import MAX_PROBLEMS, Document, Keys, Problem, field_name

M = TypeVar("M", bound=BaseModel)
Words = tuple[str, str]
"""A problem and its hint."""

_TEXT = ("text", 'write it in quotes: "…"')
_NUMBER = ("a number", "write digits without quotes or units")
_WHOLE = ("a whole number", "write digits alone: no point, quotes or units")
_FLAG = ("true or false", "write true or false")
_LIST = ("a list", "write [a, b], or one `- entry` a line")
_MAPPING = ("a mapping", "write `key: value` lines below it")
_WANTED: dict[str, Words] = {
    **dict.fromkeys(["string_type", "path_type"], _TEXT),
    **dict.fromkeys(["int_type", "int_parsing", "int_parsing_size", "int_from_float"], _WHOLE),
    **dict.fromkeys(["float_type", "float_parsing"], _NUMBER),
    **dict.fromkeys(["bool_type", "bool_parsing"], _FLAG),
    **dict.fromkeys(["list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"], _LIST),
    **dict.fromkeys(["dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"], _MAPPING),
}
_BOUNDS: dict[str, Words] = {
    "greater_than": ("must be more than {gt}", "write a number above {gt}"),
    "greater_than_equal": ("must be at least {ge}", "write {ge} or more"),
    "less_than": ("must be less than {lt}", "write a number below {lt}"),
    "less_than_equal": ("must be at most {le}", "write {le} or less"),
    "string_too_short": ("is too short", "write {min_length} characters or more"),
    "string_too_long": ("is too long", "write {max_length} characters or less"),
    "too_short": ("has too few entries", "give at least {min_length}"),
    "too_long": ("has too many entries", "give at most {max_length}"),
    "string_pattern_mismatch": ("is not of the form {pattern}", "write text of that form"),
    "finite_number": ("must be a finite number", "write digits"),
}


def fault(problem: str, hint: str, kind: str = "fault") -> PydanticCustomError:
    """Make the error that a validator of ours raises; :func:`check` finds its line."""
    # the words go in as a value: a brace in a stranger's file must not be read as a placeholder
    return PydanticCustomError(kind, "{problem}", {"problem": problem, "hint": hint})


def check(
    model: type[M],
    data: dict[str, Any],
    document: Document,
    *,
    at: Keys = (),
    also: Collection[str] = (),
    context: object = None,
) -> tuple[M | None, list[Problem]]:
    """Validate ``data``, which stands at ``at`` in ``document``; return the value, or what is wrong.

    Keys that ``model`` does not know are problems also where it would ignore them; ``also`` are keys that may stand
    beside its own and were taken out before.
    """
    known = [*keys_of(model), *also]
    judges_itself = model.model_config.get("extra") in ("allow", "forbid")
    ignored = [] if judges_itself else [key for key in data if key not in known]
    problems = [_problem(document, (*at, key), _unknown(key, known), "unknown") for key in ignored[:MAX_PROBLEMS]]
    value: M | None = None
    try:
        value = model.model_validate(data, context=context)
    except ValidationError as error:
        for details in error.errors(include_url=False)[:MAX_PROBLEMS]:
            keys = _existing(details["loc"], data, details["type"])
            words = _words(details, model, keys, at, also)
            problems.append(_problem(document, (*at, *keys), words, details["type"]))
    problems.sort(key=lambda problem: problem.line or 0)
    return (None, problems[:MAX_PROBLEMS]) if problems else (value, [])


def choice_hint(word: object, known: Collection[str]) -> str:
    """Name the cure for a word that is none of ``known``: the near one, and all."""
    meant = near(word, known) if isinstance(word, str) else None
    listed = f"known: {', '.join(known)}" if known else "none is known here"
    return f"did you mean {meant}? {listed}" if meant else listed


def near(word: str, known: Collection[str]) -> str | None:
    """Return what was probably meant by ``word``; ``toolGroups`` and ``tool_groups`` are the same here."""
    folded = {_folded(name): name for name in reversed([*known])}
    found = difflib.get_close_matches(_folded(word[:64]), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def keys_of(model: type) -> list[str]:
    """List the keys that ``model`` (pydantic's, or a dataclass) takes, as they are written in a file."""
    if not issubclass(model, BaseModel):
        return [field.name for field in fields(model)] if is_dataclass(model) else []
    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    return [key for name, field in model.model_fields.items() for key in _spellings(name, field, bool(by_name))]


def _spellings(name: str, field: FieldInfo, by_name: bool) -> list[str]:
    alias = field.validation_alias if field.validation_alias is not None else field.alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    spelt = [choice for choice in choices if isinstance(choice, str)]
    return [*spelt, name] if by_name or alias is None else spelt


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _problem(document: Document, keys: Keys, words: Words, kind: str) -> Problem:
    return Problem(document.line(keys), field_name(keys), *words, kind)


def _existing(loc: Keys, data: Any, kind: str) -> Keys:
    """Keep of pydantic's ``loc`` what stands in the file: it holds names of unions' members and ``[key]``, too."""
    keys: list[str | int] = []
    for key in loc:
        indexes = isinstance(data, list) and isinstance(key, int) and key < len(data)
        if indexes or (isinstance(data, dict) and key in data):
            data = data[key]
            keys.append(key)
    if kind == "missing":
        keys.append(loc[-1])
    return tuple(keys)


def _words(details: ErrorDetails, model: type[BaseModel], keys: Keys, at: Keys, also: Collection[str]) -> Words:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if "problem" in context and "hint" in context:
        return context["problem"], context["hint"]
    if kind == "missing":
        above = field_name((*at, *keys[:-1]))
        return "is missing", f"add `{keys[-1]}: …`" + (f" below `{above}`" if above else "")
    if kind == "extra_forbidden":
        return _unknown(str(keys[-1]), [*_keys_at(model, keys[:-1]), *(also if len(keys) == 1 else ())])
    if kind in _WANTED:
        return _mistyped(value, *_WANTED[kind])
    if kind in ("literal_error", "enum"):
        return f"must be {context['expected']}", choice_hint(value, re.findall("'([^']*)'", context["expected"]))
    if kind in _BOUNDS:
        numbers = {name: int(bound) if _is_whole(bound) else bound for name, bound in context.items()}
        problem, hint = (words.format(**numbers) for words in _BOUNDS[kind])
        return problem, hint
    if "error" in context:  # a model's own ValueError: its words, and after a semicolon the cure
        problem, _, cure = str(context["error"]).partition("; ")
        return problem, cure or "give it another value"
    return re.sub("(?i)^.*input should be", "must be", details["msg"]), "give it another value"


def _unknown(key: str, known: Collection[str]) -> Words:
    meant = near(key, known)
    return "is not a key here", f"did you mean {meant}?" if meant else choice_hint(key, list(dict.fromkeys(known)))


def _mistyped(value: object, wanted: str, hint: str) -> Words:
    if value is None:
        return "has no value", f"write {wanted} there, or remove the key"
    if isinstance(value, float) and (wanted, hint) == _WHOLE:
        return f"must be {wanted}, not a fraction", hint
    return f"must be {wanted}, not {_sort_of(value)}", hint


def _sort_of(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return "text" if isinstance(value, str) else "a list" if isinstance(value, list) else "a mapping"


def _is_whole(bound: object) -> bool:
    return isinstance(bound, float) and bound.is_integer()


def _keys_at(model: type[BaseModel], keys: Keys) -> Iterator[str]:
    for found in _models_at(model, keys):
        yield from keys_of(found)


def _models_at(annotation: Any, keys: Keys) -> Iterator[type]:
    """Yield what may stand at ``keys`` below something of the type ``annotation`` and has keys of its own."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and keys:
        yield from _models_at(_field_type(annotation, keys[0]), keys[1:])
    elif isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        yield annotation
    elif get_origin(annotation) in (Annotated, Union, UnionType):
        for member in get_args(annotation):
            yield from _models_at(member, keys)
    elif keys:
        for member in get_args(annotation):
            yield from _models_at(member, keys[1:])


def _field_type(model: type[BaseModel], key: str | int) -> Any:
    for name, field in model.model_fields.items():
        if key in _spellings(name, field, True):
            return field.annotation
    return None
