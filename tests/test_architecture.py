"""The walls of the house (docs/architecture.md), read from the imports: what reaches where it may not fails here."""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import bascule

PACKAGE = Path(bascule.__file__).resolve().parent  # the repository itself where the install is editable
ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("core", "hookspecs", "builtin_plugins")
SHIPPED_DATA = PACKAGE / "core" / "cli" / "demo"  # the fixture, in a wheel

REVISION = re.compile(r"\b20\d\d-[01]\d-[0-3]\d\b")

# Files of more than 400 lines, each with the reason why it is one piece.
LONG_FILES: dict[str, str] = {}
MOST_LINES = 400
KIT = "bascule.hookspecs.kit"  # the contract's conformance kit: third parties' tests import it, and no one else
MOST_CODE_IN_CORE = 9_000  # planned were 3,500; docs/decisions/0015-the-size-of-the-core.md says what became of that

# Modules that take long to import and that the first screen does not need.
HEAVY = (
    "hypercorn",
    "jsonschema",
    "jsonschema_rs",
    "msgspec",
    "pydantic",
    "quart",
    "rich",
    "sqlite3",
    "stevedore",
    "yaml",
)


@dataclass(frozen=True)
class Module:
    """One of our modules; ``imports`` are absolute names, those for type checkers included."""

    name: str
    path: Path
    is_package: bool

    @property
    def room(self) -> str:
        return self.name.split(".")[1] if "." in self.name else ""

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.path)

    @property
    def imports(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from self._imported_from(node)

    def _imported_from(self, node: ast.ImportFrom) -> Iterator[str]:
        base = node.module or ""
        if node.level:
            parts = self.name.split(".")
            above = parts[: len(parts) - node.level + self.is_package]
            base = ".".join([*above, *([base] if base else [])])
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield full if full in _names() else base


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def modules() -> tuple[Module, ...]:
    found = [Module("bascule", PACKAGE / "__init__.py", True)]
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            if path.is_relative_to(SHIPPED_DATA):
                continue
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            found.append(Module(".".join(("bascule", *parts[: len(parts) - is_package])), path, is_package))
    return tuple(found)


@cache
def _names() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def reaches(prefix: str) -> dict[str, str]:
    """Which of our modules import something of ``prefix``, and what."""
    return {module.name: imported for module in modules() for imported in module.imports if _within(imported, prefix)}


def _within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


# --- who may import whom ----------------------------------------------------------------------------------


def test_there_is_something_to_look_at() -> None:
    assert {module.room for module in modules()} == {"", *ROOMS}
    assert len(modules()) > 40


@pytest.mark.req("D3", "D4", "N6.1")
def test_the_core_imports_no_built_in() -> None:
    guilty = {name for name in reaches("bascule.builtin_plugins") if _within(name, "bascule.core")}
    assert not guilty


@pytest.mark.req("D4")
def test_built_ins_stand_on_the_contract_alone_as_strangers_do() -> None:
    guilty = []
    for module in modules():
        if module.room != "builtin_plugins":
            continue
        own = ".".join(module.name.split(".")[:3])
        guilty += [
            (module.name, imported)
            for imported in module.imports
            if _within(imported, "bascule")
            and not _within(imported, "bascule.hookspecs")
            and not (own != "bascule.builtin_plugins" and _within(imported, own))
        ]
    assert not guilty


@pytest.mark.req("D3")
def test_the_contract_imports_neither_core_nor_built_ins() -> None:
    for room in ("core", "builtin_plugins"):
        guilty = {name for name in reaches(f"bascule.{room}") if _within(name, "bascule.hookspecs")}
        assert not {name for name in guilty if not _within(name, KIT)}


@pytest.mark.req("D3")
def test_the_kit_reaches_the_bridge_alone_and_nothing_reaches_the_kit() -> None:
    reached = {
        imported
        for module in modules()
        if _within(module.name, KIT)
        for imported in module.imports
        if _within(imported, "bascule") and not _within(imported, "bascule.hookspecs")
    }
    assert reached == {"bascule.core.bridge"}
    assert not {name for name in reaches(KIT) if not _within(name, KIT)}


@pytest.mark.req("D3")
@pytest.mark.parametrize(("kit", "needed"), [(False, {"pluggy", "pydantic"}), (True, {"pytest", "hypothesis"})])
def test_the_contract_needs_pluggy_and_pydantic_and_its_kit_needs_what_tests_need(kit: bool, needed: set[str]) -> None:
    foreign = {
        imported.split(".")[0]
        for module in modules()
        if module.room == "hookspecs" and _within(module.name, KIT) == kit
        for imported in module.imports
        if not _within(imported, "bascule") and imported.split(".")[0] not in sys.stdlib_module_names
    }
    assert foreign <= needed
    assert kit or foreign == needed


@pytest.mark.req("N1.1")
@pytest.mark.parametrize(
    ("edge", "doors"),
    [
        ("core.upstream", ("core.hosting",)),
        ("core.downstream", ("core.view",)),
        ("core.codecs", ("core.upstream", "core.downstream")),
        ("core.cli", ()),
    ],
)
def test_edges_are_entered_by_their_doors_alone(edge: str, doors: tuple[str, ...]) -> None:
    allowed = [f"bascule.{name}" for name in (edge, *doors)]
    guilty = {name for name in reaches(f"bascule.{edge}") if not any(_within(name, door) for door in allowed)}
    assert not guilty


@pytest.mark.parametrize(
    ("library", "holders"),
    [
        ("pluggy", {"bascule.core.lineup", "bascule.hookspecs.markers"}),
        ("stevedore", {"bascule.core.discovery"}),
    ],
)
@pytest.mark.req("D1", "D3")
def test_the_two_plugin_libraries_are_used_in_one_place_each(library: str, holders: set[str]) -> None:
    assert set(reaches(library)) == holders


def test_inside_the_package_imports_are_relative() -> None:
    guilty = [
        (module.name, ast.unparse(node))
        for module in modules()
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.ImportFrom) and not node.level and _within(node.module or "", "bascule"))
        or (isinstance(node, ast.Import) and any(_within(alias.name, "bascule") for alias in node.names))
    ]
    assert not guilty


def test_the_root_imports_nothing() -> None:
    tree = modules()[0].tree
    assert ast.get_docstring(tree)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


# --- what may be said where -------------------------------------------------------------------------------


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every string in the code; a string that stands alone is a docstring."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node


def test_a_revision_of_mcp_is_named_in_the_codecs_alone() -> None:
    guilty = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        if not _within(module.name, "bascule.core.codecs")
        for node in _strings(module.tree)
        if REVISION.search(str(node.value))
    ]
    assert not guilty


# --- how much of it there is ------------------------------------------------------------------------------


def _lines_of_code(path: Path) -> int:
    """Count lines that hold code: no blanks, comments, docstrings."""
    text = path.read_text(encoding="utf-8")
    idle = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}
    idle |= {tokenize.ENCODING, tokenize.ENDMARKER}
    lines = {
        line
        for token in tokenize.tokenize(io.BytesIO(text.encode()).readline)
        if token.type not in idle
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Expr) and _is_text(node):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_the_core_stays_small() -> None:
    core = [m for m in modules() if _within(m.name, "bascule.core") and not _within(m.name, "bascule.core.cli")]
    sizes = {module.name: _lines_of_code(module.path) for module in core}
    total = sum(sizes.values())
    assert total < MOST_CODE_IN_CORE, sorted(sizes.items(), key=lambda item: -item[1])[:10]


def test_no_file_is_long_without_a_reason() -> None:
    files = {module.path.relative_to(PACKAGE).as_posix(): module.path for module in modules()}
    files |= {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "fixtures").rglob("*.py")}
    long = {name for name, path in files.items() if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES}
    assert long == set(LONG_FILES), "split what is new here; take out of LONG_FILES what is short again"


# --- how it starts ----------------------------------------------------------------------------------------


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


# What others wrote is imported once, the contract before the rooms that stand on it, and each module in a fork of its
# own: a start for each would take minutes.
_EACH_ALONE = """
import asyncio, gc, importlib, json, os, sqlite3, sys, traceback
import click, hypothesis, jsonschema_rs, msgspec, pluggy, pydantic, pytest, yaml
gc.disable()
for name in sys.argv[1:]:
    if not name.startswith("bascule.hookspecs"):
        importlib.import_module("bascule.hookspecs")
    print(name, flush=True)
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED HERE: each module alone, for want of fork")
@pytest.mark.timeout(900)  # a process for each module
def test_every_module_imports_alone_and_silently() -> None:
    names = sorted((module.name for module in modules()), key=lambda name: not name.startswith("bascule.hookspecs"))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", _EACH_ALONE, *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
        check=False,
    )
    assert run.stdout.splitlines() == names


def test_help_imports_only_what_it_needs() -> None:
    code = (
        "import sys\n"
        "from bascule.core.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as left:\n    assert not left.code\n"
        f"print('heavy:', *(name for name in {HEAVY} if name in sys.modules))"
    )
    run = _python(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "heavy:"


@pytest.mark.parametrize("name", HEAVY)
def test_what_counts_as_heavy_exists(name: str) -> None:
    assert importlib.util.find_spec(name) is not None
