"""docs/compatibility.md: the contract only grows. What it held when this was last written down stands in contract.json.

``python tests/test_compatibility.py`` writes it anew: for a release, and for what is added; never to take away.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from bascule import hookspecs
from bascule.core.lineup import SPEC_MODULES

WRITTEN = Path(__file__).with_name("contract.json")
GIVEN_TO_AUTHORS = {
    "AskPerson",
    "BridgeView",
    "ByteReader",
    "ByteWriter",
    "Config",
    "Diagnostics",
    "Gateway",
    "Identities",
    "PluginAdmin",
    "Run",
    "Runs",
    "TraceReader",
}


def hooks() -> dict[str, list[str]]:
    """Every hook with the names of its arguments."""
    return {
        name: list(inspect.signature(function).parameters)
        for module in SPEC_MODULES
        for name, function in sorted(vars(module).items())
        if name.startswith("bascule_")
    }


def values() -> dict[str, list[str]]:
    """Every value with its fields, in order."""
    return {
        name: [field.name for field in dataclasses.fields(kind)]
        for name, kind in _exported()
        if dataclasses.is_dataclass(kind)
    }


def protocols() -> dict[str, dict[str, list[str]]]:
    """Every Protocol with its members; a method's with the names of its arguments."""
    return {
        name: {member: _arguments(kind, member) for member in sorted(kind.__protocol_attrs__)}
        if hasattr(kind, "__protocol_attrs__")
        else {member: _arguments(kind, member) for member in sorted(_members(kind))}
        for name, kind in _exported()
        if getattr(kind, "_is_protocol", False)
    }


def errors() -> dict[str, list[Any]]:
    """Every error with its code and status."""
    return {
        name: [kind.code, kind.status]
        for name, kind in _exported()
        if isinstance(kind, type) and issubclass(kind, hookspecs.BasculeError)
    }


def _exported() -> list[tuple[str, Any]]:
    return [(name, getattr(hookspecs, name)) for name in sorted(hookspecs.__all__)]


def _members(kind: type) -> set[str]:
    special = {"__call__", "__aiter__"} & vars(kind).keys()
    return {name for name in vars(kind) if not name.startswith("_")} | special


def _arguments(kind: type, member: str) -> list[str]:
    value = inspect.getattr_static(kind, member, None)
    return list(inspect.signature(value).parameters) if inspect.isfunction(value) else []


def contract() -> dict[str, Any]:
    exports = sorted(hookspecs.__all__)
    return {"exports": exports, "hooks": hooks(), "values": values(), "protocols": protocols(), "errors": errors()}


BEFORE = json.loads(WRITTEN.read_text(encoding="utf-8")) if WRITTEN.exists() else {}
NOW = contract()

pytestmark = pytest.mark.req("D3", "D5")


def test_nothing_that_could_be_imported_is_gone() -> None:
    assert set(BEFORE["exports"]) <= set(NOW["exports"])


@pytest.mark.parametrize("hook", BEFORE.get("hooks", ()))
def test_a_hook_keeps_its_arguments(hook: str) -> None:
    assert set(BEFORE["hooks"][hook]) <= set(NOW["hooks"][hook])


@pytest.mark.parametrize("value", BEFORE.get("values", ()))
def test_a_value_keeps_its_fields_and_new_ones_have_defaults(value: str) -> None:
    before, now = BEFORE["values"][value], NOW["values"][value]
    assert set(before) <= set(now)
    for field in dataclasses.fields(getattr(hookspecs, value)):
        if field.name not in before:
            assert field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


@pytest.mark.parametrize("protocol", BEFORE.get("protocols", ()))
def test_what_authors_implement_stays_and_what_they_are_given_grows(protocol: str) -> None:
    before, now = BEFORE["protocols"][protocol], NOW["protocols"][protocol]
    assert before.keys() <= now.keys()
    for member, arguments in before.items():
        assert set(arguments) <= set(now[member])
    if protocol not in GIVEN_TO_AUTHORS:
        assert before == now, "a Protocol that authors implement asks for nothing new within a major version"


@pytest.mark.parametrize("error", BEFORE.get("errors", ()))
def test_an_error_keeps_its_code_and_status(error: str) -> None:
    assert BEFORE["errors"][error] == NOW["errors"][error]


def test_the_names_of_what_authors_are_given_are_protocols() -> None:
    assert set(NOW["protocols"]) >= GIVEN_TO_AUTHORS


if __name__ == "__main__":
    WRITTEN.write_text(json.dumps(NOW, indent=1, sort_keys=True) + "\n", encoding="utf-8")
