"""The reference engine, ``jsonschema``, made to stop: every keyword that it applies is paid for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from .budget import Check, CheckTooExpensive, current
from .keywords import Dialect
from .replaced import REPLACED, Keyword

if TYPE_CHECKING:
    from jsonschema import ValidationError

# What is done in the time of one step.
_CHARACTERS: Final = 1024  # written, of an error's text: it shows the instance
_ENTRIES: Final = 32  # looked at, of a list or an object in the schema

_EACH: Final = frozenset({"contains", "propertyNames"})
"""They look at every item or member, and not by a function of ours that pays for each."""


class Reference:
    """A schema that passed the gate, as the reference engine reads it."""

    def __init__(self, schema: dict[str, Any], dialect: Dialect) -> None:
        # With a $schema in it, the engine would take its own, unmetered validator.
        self._schema = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
        self._dialect = dialect

    def fits(self, instance: object) -> bool:
        """Judge an instance; raises CheckTooExpensive."""
        with self.errors(instance) as errors:
            return next(errors, None) is None

    @contextmanager
    def errors(self, instance: object) -> Iterator[Iterator[ValidationError]]:
        """Give what is wrong with an instance, found while it is asked for; raises CheckTooExpensive."""
        token = current.set(Check(self._schema))
        try:
            yield _metered(self._dialect)(self._schema, registry=_nothing()).iter_errors(instance)
        except RecursionError as error:
            raise CheckTooExpensive from error
        finally:
            current.reset(token)


def metaschema_fault(schema: dict[str, Any], dialect: Dialect) -> tuple[list[str | int], str] | None:
    """Judge a schema by its dialect's metaschema: where it breaks it, and how."""
    plain = _plain(dialect)
    for error in plain(plain.META_SCHEMA, registry=_nothing()).iter_errors(schema):
        return list(error.absolute_path), error.message
    return None


def _nothing() -> Any:
    """A registry that retrieves nothing."""
    from referencing import Registry

    return Registry()


def _plain(dialect: Dialect) -> Any:
    # Imported where it is used: it costs more than all the rest of a short command.
    import jsonschema

    return {
        Dialect.DRAFT_7: jsonschema.Draft7Validator,
        Dialect.DRAFT_2019_09: jsonschema.Draft201909Validator,
        Dialect.DRAFT_2020_12: jsonschema.Draft202012Validator,
    }[dialect]


@cache
def _metered(dialect: Dialect) -> Any:
    from jsonschema import Draft7Validator, validators

    extend: Any = validators.extend
    plain = _plain(dialect)
    # The other engine knows `dependencies` in the newer dialects too, where it was split but may go on.
    functions = {"dependencies": Draft7Validator.VALIDATORS["dependencies"], **plain.VALIDATORS}
    functions |= {keyword: function for keyword, function in REPLACED.items() if keyword in functions}
    types = plain.TYPE_CHECKER.redefine("array", lambda _, instance: isinstance(instance, list | tuple))
    return extend(plain, {keyword: _paid(keyword, each) for keyword, each in functions.items()}, type_checker=types)


def _paid(keyword: str, function: Keyword) -> Keyword:
    def pay(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        check = current.get()
        check.spend(_price(keyword, value, instance))
        for error in function(validator, value, instance, schema) or ():
            check.spend(1 + len(error.message) // _CHARACTERS)
            yield error

    return pay


def _price(keyword: str, value: object, instance: object) -> int:
    price = 1 + (len(value) // _ENTRIES if isinstance(value, list | dict) else 0)
    if keyword in _EACH and isinstance(instance, list | tuple | dict):
        price += len(instance)
    return price
