"""Every row of the requirements is named by a test that proves it: ``@pytest.mark.req("N4.1.9")``.

Read from the test files' syntax trees, so that nothing has to run. A row is what the project's requirements list under
that number; the numbers are those of the documents that Bascule was made from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def _rows(prefix: str, last: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(1, last + 1))


ROWS = (
    *_rows("D", 5),
    *_rows("N1.", 2),
    *_rows("N3.", 6),
    *_rows("N4.1.", 11),
    *_rows("N4.2.", 4),
    *_rows("N5.", 8),
    *_rows("N6.", 9),
    *_rows("N8.", 3),
    "N9",
)

# Rows of parts that come later; a test may name them already.
LATER = ("N6.10", "N6.11", *_rows("N7.", 5), "N10", *_rows("A", 7))

# Rows that no test names yet. This list only shrinks: a row that has a test must leave it.
UNCOVERED = frozenset({"N4.1.2", "N4.1.4", "N4.1.6", "N4.1.8"})


@cache
def named() -> dict[str, tuple[str, ...]]:
    """Which rows are named, and by which tests."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for place, row in _marks(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(row, []).append(f"{path.name}::{place}")
    return {row: tuple(places) for row, places in found.items()}


def _marks(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The marks of every test; a mark of a class or of the module counts for the tests in it."""
    yield from _marks_of_body(tree.body, "", _assigned_marks(tree.body))


def _marks_of_body(body: list[ast.stmt], prefix: str, inherited: list[str]) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            marks = [*inherited, *_rows_in(node.decorator_list), *_assigned_marks(node.body)]
            yield from _marks_of_body(node.body, f"{node.name}::", marks)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from ((prefix + node.name, row) for row in (*inherited, *_rows_in(node.decorator_list)))


def _assigned_marks(body: list[ast.stmt]) -> list[str]:
    return [
        row
        for node in body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
        for row in _rows_in([node.value])
    ]


def _rows_in(expressions: list[ast.expr]) -> Iterator[str]:
    """The arguments of every ``pytest.mark.req(…)``, those inside ``pytest.param(…, marks=…)`` as well."""
    for expression in expressions:
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
                yield from (str(ast.literal_eval(argument)) for argument in node.args)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in UNCOVERED])
def test_every_row_is_named_by_a_test(row: str) -> None:
    assert row in named(), f'no test carries @pytest.mark.req("{row}")'


def test_the_list_of_uncovered_rows_shrinks() -> None:
    assert set(ROWS) >= UNCOVERED
    covered = {row: named()[row] for row in UNCOVERED if row in named()}
    assert not covered, "these have a test now: take them out of UNCOVERED"


def test_every_number_that_a_test_names_is_a_row() -> None:
    unknown = {row: places for row, places in named().items() if row not in {*ROWS, *LATER}}
    assert not unknown
