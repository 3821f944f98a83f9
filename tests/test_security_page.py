"""The page on security promises nothing that no test shows."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "security.md"

pytestmark = [
    pytest.mark.req("N6.10"),
    pytest.mark.skipif(not PAGE.exists(), reason="the docs are not beside the tests"),
]


def rows() -> list[list[str]]:
    """The cells of every row that promises something."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] not in ("guaranteed", "---")]


@cache
def names(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_promise_names_its_tier_and_tests_that_exist():
    assert len(rows()) > 35
    for guaranteed, tier, shown in rows():
        assert set(tier.split(", ")) <= {"all", "full", "reduced", "none"}, guaranteed
        tests = re.findall(r"`(test_\w+\.py)::(test_\w+)`", shown)
        assert tests, guaranteed
        for file, name in tests:
            assert (TESTS / file).exists(), f"{guaranteed}: {file}"
            assert name in names(file), f"{guaranteed}: {file}::{name}"


def test_the_top_ten_are_all_there():
    headings = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {number for heading in headings for number in re.findall(r"MCP(\d\d)", heading)} == {
        f"{number:02}" for number in range(1, 11)
    }
