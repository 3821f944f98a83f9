"""The fast engine, ``jsonschema-rs``: all that is asked of it, and that it may be missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from .graph import Graph
from .keywords import Dialect

if TYPE_CHECKING:
    from types import ModuleType

_MAX_LOOKING_BACK: Final = 64
"""Subschemas in a row; some platforms give a thread no more than 512 KiB of stack."""
MAX_PROGRAM: Final = 4 << 20
"""Bytes of one compiled pattern."""


@cache
def engine() -> ModuleType | None:
    """Import the engine where it is first used; None on a platform without it."""
    try:
        import jsonschema_rs
    except ImportError:
        return None
    return jsonschema_rs


def fits(schema: dict[str, Any], dialect: Dialect) -> Callable[[Any], bool] | None:
    """Compile a schema that passed the gate; None without the engine.

    What comes back raises ValueError for an instance that holds no JSON.
    """
    rs = engine()
    return None if rs is None else _compile(rs, schema, dialect, MAX_PROGRAM)


def overflows(graph: Graph) -> bool:
    """Say whether compiling could overflow the native stack, which would end the process.

    For ``unevaluated*`` the engine goes down all that is applied in place, with 5 KiB of stack for each;
    releases before 0.54 did not even stop at a reference that leads back.
    """
    return graph.looks_back() and (graph.recursive or graph.chain() > _MAX_LOOKING_BACK)


def matches(pattern: str, max_program: int) -> Callable[[str], bool] | None:
    """Compile a pattern into ``max_program`` bytes; None where the engine refuses it, or is missing."""
    rs = engine()
    if rs is None:
        return None
    try:
        return _compile(rs, {"pattern": pattern}, Dialect.DRAFT_2020_12, max_program)
    except ValueError:
        return None


def metaschema_fault(rs: ModuleType, schema: dict[str, Any]) -> tuple[list[str | int], str] | None:
    """Judge a schema by the metaschema that its ``$schema`` names: where it breaks it, and how."""
    try:
        rs.meta.validate(schema)
    except rs.ValidationError as error:
        return error.instance_path, error.message
    return None


def _compile(rs: ModuleType, schema: dict[str, Any], dialect: Dialect, max_program: int) -> Callable[[Any], bool]:
    kinds = {
        Dialect.DRAFT_7: rs.Draft7Validator,
        Dialect.DRAFT_2019_09: rs.Draft201909Validator,
        Dialect.DRAFT_2020_12: rs.Draft202012Validator,
    }
    options = rs.RegexOptions(size_limit=max_program)
    validator = kinds[dialect](schema, validate_formats=False, pattern_options=options, retriever=_retrieve)
    is_valid: Callable[[Any], bool] = validator.is_valid
    return is_valid


def _retrieve(uri: str) -> NoReturn:
    raise LookupError(f"{uri}: nothing is fetched")
