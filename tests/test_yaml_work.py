"""Files that people write, from someone who means ill: reading one is a bounded amount of work, whatever it holds."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from bascule.core.documents import Document
from bascule.core.yaml_source import MAX_NODES, read

SIZE = 48 * 1024
MOST_NODES = 500
CALLS_A_NODE = 300  # PyYAML's functions in Python: some 150 for the dearest, an empty mapping
CALLS_A_BYTE = 20  # some 10 for the dearest, the name of a directive


def filled(unit: str, head: str = "", tail: str = "") -> str:
    """Repeat ``unit`` between ``head`` and ``tail`` up to ``SIZE``."""
    return head + unit * ((SIZE - len(head) - len(tail)) // len(unit)) + tail


MANY_NODES = {
    "empty lists": filled("[],", "a: [", "]"),
    "empty mappings, deep down": filled("{},", "a: {a: {a: {a: {a: [", "]}}}}}"),
    "nested lists side by side": filled("[[[[[[[[]]]]]]]],", "a: [", "]"),
    "nested mappings side by side": filled("{a: {a: {a: b}}},", "a: [", "]"),
    "tiny scalars": filled("a,", "a: [", "]"),
    "numbers": filled("1,", "a: [", "]"),
    "empty strings": filled('"",', "a: [", "]"),
    "pairs": filled("a: b,", "a: [", "]"),
    "a list of many lines": filled("- a\n", "a:\n"),
    "a list of nothing": filled("-\n", "a:\n"),
    "lists that begin in one line": filled("- - - - a\n", "a:\n"),
    "a list with comments": filled("-\n#\n", "a:\n"),
    "one key again and again": filled("a: b\n"),
    "one key again and again, within braces": filled("a: b,", "a: {", "}"),
    "keys without a value": filled("a,", "a: {", "}"),
    "many keys": "".join(f"k{number}: v\n" for number in range(5_000)),
    "marked keys": filled("? a\n"),
    "tags": filled("! a,", "a: [", "]"),
    "aliases": filled("*a ,", "a: [&a b,", "]"),
    "anchors": "a: [" + "".join(f"&a{number} a," for number in range(5_000)) + "]",
    "an end that does not fit": filled("a,", "a: [", "}"),
}

FEW_NODES = {
    "open brackets": filled("[", "a: "),
    "open braces": filled("{", "a: "),
    "open braces with keys": filled("{a: ", "a: "),
    "lists in lists in one line": filled("- "),
    "marked keys in marked keys": filled("? "),
    "deeper at every line": "\n".join(f"{' ' * depth}a:" for depth in range(300)),
    "one anchor twice": filled("&a a,", "a: [", "]"),
    "comments": filled("#\n", "a: 1\n"),
    "one comment": filled("#", "a: 1 "),
    "empty lines": filled("\n", "a: 1\n"),
    "blanks": filled(" "),
    "a long plain scalar": filled("x", "a: "),
    "a long plain scalar of words": filled("x ", "a: "),
    "a long plain scalar of lines": filled(" x\n", "a:\n"),
    "a long key": filled("x", tail=": a"),
    "a long quoted scalar": filled("x", 'a: "', '"'),
    "a quoted scalar of escapes": filled("\\x41", 'a: "', '"'),
    "a quoted scalar of lines": filled(" x\n", 'a: "', '"'),
    "a quoted scalar of quotes": filled("''", "a: '", "'"),
    "a quote that never ends": filled("x", 'a: "'),
    "a literal block": filled(" x\n", "a: |\n"),
    "a folded block": filled(" x\n", "a: >\n"),
    "many documents": filled("---\n"),
    "many documents with something in them": filled("a: b\n---\n"),
    "many ends of documents": filled("...\n"),
    "directives": filled("%A b\n"),
    "directives for tags": "".join(f"%TAG !{number}! a\n" for number in range(3_000)),
    "dashes": filled("-"),
    "colons": filled(": "),
    "commas": filled(",", "a: [", "]"),
}


def work(path: Path, most_nodes: int) -> tuple[Document, int]:
    """Read the file; return what was read, and how many functions in Python were called for it."""
    calls = 0

    def count(frame: FrameType, event: str, value: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        document = read(path, most_nodes=most_nodes)
    finally:
        sys.setprofile(before)
    return document, calls


@pytest.mark.parametrize("name", MANY_NODES)
def test_a_file_of_many_parts_is_read_up_to_the_bound_and_no_further(name: str, tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(MANY_NODES[name])
    document, calls = work(path, MOST_NODES)
    (problem,) = document.problems
    assert problem.problem == "this holds more than 500 keys and values"
    assert problem.hint == "shorten it"
    assert not document.data
    assert calls < CALLS_A_NODE * MOST_NODES


@pytest.mark.parametrize("name", FEW_NODES)
def test_what_else_a_file_may_be_made_of_costs_no_more_than_its_length(name: str, tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(FEW_NODES[name])
    document, calls = work(path, MOST_NODES)
    assert "keys and values" not in "".join(problem.problem for problem in document.problems)
    assert calls < CALLS_A_BYTE * SIZE


def test_the_bound_is_on_what_the_whole_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    most = MAX_NODES - 3  # the mapping, the key, the list
    path.write_text("a: [" + "1," * most + "]")
    assert len(read(path).data["a"]) == most
    path.write_text("a: [\n" + "1,\n" * most + "1]")
    (problem,) = read(path).problems
    assert problem.problem == "this holds more than 25,000 keys and values"
    assert problem.line == most + 2
