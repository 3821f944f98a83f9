"""Files that people write: what YAML is taken for, and how a file that is none is reported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bascule.core.documents import Document, Problem
from bascule.core.yaml_source import read

Read = Callable[[str | bytes], Document]


@pytest.fixture
def load(tmp_path: Path) -> Read:
    """Write a file and read it."""

    def loaded(content: str | bytes) -> Document:
        raw = content.encode() if isinstance(content, str) else content
        (tmp_path / "some.yaml").write_bytes(raw)
        return read(tmp_path / "some.yaml")

    return loaded


def problems(load: Read, content: str | bytes) -> Sequence[Problem]:
    document = load(content)
    assert not document.data or not document.problems
    return document.problems


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("0x1F", "0x1F"),
        ("0o17", "0o17"),
        (".5", ".5"),
        ("1e999", "1e999"),
        (".inf", ".inf"),
        ("1.2.3", "1.2.3"),
        ('"1"', "1"),
        ("'true'", "true"),
        ("9" * 65, "9" * 65),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("010", 10),
        ("-7", -7),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ("{a: [1, {b: c}]}", {"a": [1, {"b": "c"}]}),
        ("|\n  a\n  b", "a\nb\n"),
    ],
)
def test_what_json_knows_is_read_as_such_and_all_else_is_text(load: Read, text: str, value: Any) -> None:
    found = load(f"key: {text}\n").data["key"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", "---\n...\n"])
def test_an_empty_file_is_an_empty_mapping(load: Read, content: str) -> None:
    assert load(content).data == {}


def test_every_value_has_its_line(load: Read) -> None:
    document = load('a: 1\nb:\n  - x\n  - c: |\n      long\n      text\n    d:\n      e\n"": {f: 1}\n')
    assert {
        keys: document.line(keys) for keys in [("a",), ("b",), ("b", 0), ("b", 1, "c"), ("b", 1, "d"), ("", "f")]
    } == {
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 3,
        ("b", 1, "c"): 4,
        ("b", 1, "d"): 7,
        ("", "f"): 9,
    }
    assert document.line(("b", 1, "zzz", "y")) == 4  # what is not there is looked for where it would stand
    assert document.line(()) == 1


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "some.yaml")
    (problem,) = read(tmp_path / "some.yaml").problems
    assert re.search("can't be read: (it is no regular file|Is a directory|Too many levels)", problem.problem)
    assert "file" in problem.hint


FILE_FAULTS: list[tuple[str, str | bytes, int | None, str, str, str]] = [
    # name, content, line, field, problem, cure
    ("tab", "id: fx\nbackend:\n\ttype: mcp\n", 3, "", "not YAML", "no tabs"),
    ("tab inside", "id: [a,\n\tb]\n", 2, "", "not YAML", "no tabs"),
    ("colon", "id: fx\nname: a: b\n", 2, "", "not YAML", "quotes"),
    ("indent", "backend:\n  - b\n c: 1\n", 3, "", "not YAML", "indentation"),
    ("quote", 'id: fx\nname: "x\n', 2, "", "not YAML", "quotes"),
    ("bracket", "id: fx\nargs: [a, b\nname: x\n", 3, "", "not YAML", "brackets"),
    ("no colon", "id: fx\nname\n", 2, "", "not YAML", "indentation"),
    ("sign", "id: fx\nname: @x\n", 2, "", "not YAML", "quotes"),
    ("list", "- id: fx\n", 1, "", "no mapping", "`key: value`"),
    ("text", "hello\n", 1, "", "no mapping", "`key: value`"),
    ("twice", "id: fx\nname: a\nid: gx\n", 3, "id", "stands here twice, first in line 1", "remove one"),
    ("twice below", "backend:\n  type: a\n  type: b\n", 3, "backend.type", "twice, first in line 2", "remove one"),
    ("anchor", "id: &x fx\n", 1, "", "anchors (&)", "write the value out"),
    ("alias of nothing", "id: fx\nname: *x\n", 2, "", "undefined alias 'x'", "quotes"),
    ("merge", "id: fx\nbackend:\n  <<: {a: b}\n", 3, "backend", "no merge (<<)", "quotes"),
    ("tag", "id: !!str fx\n", 1, "", "tags (!)", "write the value out"),
    ("python", "id: !!python/object/apply:os.system [ls]\n", 1, "", "tags (!)", "write the value out"),
    ("two documents", "id: fx\n---\nid: gx\n", 2, "", "found another document", "quotes"),
    ("number for a key", "id: fx\nbackend:\n  1: a\n", 3, "backend", "a key must be text", "quotes"),
    ("list for a key", "id: fx\n? [a]\n: b\n", 2, "", "a key must be text", "quotes"),
    ("deep", "a: " + "[" * 32 + "]" * 32, 1, "", "nested deeper than 32", "flatten"),
    ("control", "id: fx\nname: \x1b[31m\n", 2, "", "U+001B controls", "remove it"),
    ("turned", "id: fx\nname: \u202eevil\n", 2, "", "U+202E controls, hides or reorders", "remove it"),
    ("hidden line", "id: fx\n# x\rname: evil\n", 2, "", "U+000D controls, hides or reorders", "remove it"),
    ("separator", "id: fx\n# x\u2028name: evil\n", 2, "", "U+2028 controls, hides or reorders", "remove it"),
    ("hidden text", "id: fx\nname: a\U000e0041\n", 2, "", "U+E0041 controls, hides or reorders", "remove it"),
    ("surrogate", 'id: fx\nname: "\\ud800"\n', 2, "name", "an escape that controls", "remove it"),
    ("hidden escape", 'id: fx\nname: "a\\u200b"\n', 2, "name", "an escape that controls, hides", "remove it"),
    ("nul", 'id: fx\nname: "a\\0"\n', 2, "name", "an escape that controls", "remove it"),
    ("escape", 'id: fx\nname: "\\UFFFFFFFF"\n', 2, "", "an escape is out of range", "check"),
    ("latin-1", b"id: fx\nname: caf\xe9\n", 2, "", "is not UTF-8", "save the file as UTF-8"),
    ("utf-16", "id: fx\n".encode("utf-16"), 1, "", "is not UTF-8", "save the file as UTF-8"),
    ("large", b"# " + b"x" * (256 * 1024), None, "", "larger than 256 KiB", "shorten it"),
]


@pytest.mark.parametrize(
    ("content", "line", "field", "problem", "cure"),
    [row[1:] for row in FILE_FAULTS],
    ids=[row[0] for row in FILE_FAULTS],
)
def test_a_file_that_is_not_plain_yaml_is_refused_with_line_and_cure(
    load: Read, content: str | bytes, line: int | None, field: str, problem: str, cure: str
) -> None:
    (found,) = problems(load, content)
    assert (found.line, found.field) == (line, field)
    assert problem in found.problem
    assert cure in found.hint


def test_the_bounds_themselves_are_kept(load: Read) -> None:
    assert load("a: 1 " + "#" * (256 * 1024 - 5)).data == {"a": 1}
    assert load("a: " + "[" * 31 + "]" * 31).data.keys() == {"a"}


def test_all_anchors_aliases_and_tags_are_told_at_once(load: Read) -> None:
    assert [problem.line for problem in problems(load, "id: &a fx\nname: *a\nversion: !x y\n")] == [1, 2, 3]


def test_aliases_that_would_grow_without_end_are_not_followed(load: Read) -> None:
    laughs = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert {problem.problem for problem in problems(load, "l0: &l0 ha\n" + laughs)} == {
        "anchors (&), aliases (*) and tags (!) are not used here"
    }


def test_all_keys_that_may_not_stand_are_told_at_once(load: Read) -> None:
    found = problems(load, "a: 1\na: 2\nb:\n  1: x\n  <<: y\n  c: z\n  c: z\n")
    assert [(problem.line, problem.field) for problem in found] == [(2, "a"), (4, "b"), (5, "b"), (7, "b.c")]
