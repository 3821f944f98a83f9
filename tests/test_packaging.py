"""What is shipped is what is tested: wheel, links of the editable install and sdist hold the same files (D1, D2)."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LINKS = ("__init__.py", "py.typed", "core", "hookspecs", "builtin_plugins")
SHIPPED = "bascule/core/cli/demo/"  # fixtures/mcp-echo, so that `bascule demo` runs from the wheel
MOST_DISTRIBUTIONS = 36  # beside bascule itself
MOST_BYTES = 60_000_000

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

in_repository = pytest.mark.skipif(not (ROOT / "core").is_dir(), reason="these tests build the repository's own tree")


def _files(*names: str) -> set[str]:
    """The files below ``names`` that belong to the repository, not what running them left there."""
    found: set[str] = set()
    for name in names:
        path = ROOT / name
        found |= {name} if path.is_file() else {p.relative_to(ROOT).as_posix() for p in path.rglob("*") if p.is_file()}
    return {name for name in found if "__pycache__" not in name and not name.endswith((".pyc", ".pyo"))}


def _build(tree: Path, target: str, out: Path) -> Path:
    """Build with the build backend itself: no index is asked."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


def _names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


# --- the tree ---------------------------------------------------------------------------------------------


@in_repository
@pytest.mark.req("D2")
def test_the_top_level_is_the_design_cards() -> None:
    for name in ("pyproject.toml", "core", "hookspecs", "builtin_plugins", "fixtures", "tests"):
        assert (ROOT / name).exists()
        assert not (ROOT / name).is_symlink()


@in_repository
@pytest.mark.parametrize("name", LINKS)
def test_the_editable_install_is_five_links(name: str) -> None:
    link = ROOT / ".dev" / "bascule" / name
    assert link.is_symlink(), "run make links (and, on Windows, git config core.symlinks true before a new clone)"
    assert os.readlink(link) == f"../../{name}"


@in_repository
def test_no_folder_of_tests_or_fixtures_is_a_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))
    assert not list((ROOT / "fixtures").rglob("__init__.py"))


@pytest.mark.req("D1", "D4")
def test_each_built_in_is_registered_by_an_entry_point_of_its_own() -> None:
    points = importlib.metadata.distribution("bascule").entry_points.select(group="bascule.plugins")
    declared = {point.name: point.value for point in points}
    for name, value in declared.items():
        shared = (
            f"bascule.builtin_plugins.sandbox.{name.removesuffix('_launcher')}"  # these launchers have much in common
        )
        assert value in (f"bascule.builtin_plugins.{name}", shared)
    assert declared == PROJECT["entry-points"]["bascule.plugins"], "install anew: the entry points have changed"
    if (ROOT / "core").is_dir():
        folder = ROOT / "builtin_plugins"
        assert {value.split(".")[2] for value in declared.values()} == {
            path.stem for path in folder.iterdir() if path.stem.strip("_") == path.stem and path.suffix in ("", ".py")
        }


@pytest.mark.req("D1")
def test_the_packages_of_the_design_card_are_what_it_is_built_of() -> None:
    run_time, for_tests = (
        {Requirement(text).name for text in texts}
        for texts in (PROJECT["dependencies"], PROJECT["optional-dependencies"]["test"])
    )
    assert {"pluggy", "stevedore", "jsonschema", "pydantic", "hypercorn", "quart"} <= run_time
    assert "pytest" in for_tests


def test_constraints_are_exact_versions_and_name_no_index() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    for line in lines:
        (specifier,) = Requirement(line).specifier
        assert specifier.operator == "=="
        assert "://" not in line


@in_repository
def test_no_file_names_a_package_index() -> None:
    """Which index is asked is the machine's affair, not the repository's."""
    index = re.compile(r"registry\.npm|pypi\.org|pythonhosted|deb\.debian|--index-url|--extra-index")
    told = [ROOT / ".ci" / "run", ROOT / "Makefile", *ROOT.glob("*.*"), *(ROOT / "tests").rglob("*.*")]
    told += (ROOT / "docs").rglob("*.md")
    told = [path for path in told if path.is_file() and "__pycache__" not in path.parts]
    guilty = [path for path in told if index.search(path.read_text("utf-8", "replace"))]
    assert set(guilty) <= {Path(__file__).resolve()}


@in_repository
def test_every_dependency_is_constrained() -> None:
    constrained = {
        canonicalize_name(Requirement(line).name)
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    }
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["test"], *extras["check"], *extras["fast"]]
    assert {canonicalize_name(Requirement(text).name) for text in wanted} <= constrained, "run make constraints"


# --- what an install brings -------------------------------------------------------------------------------


def _runtime_distributions() -> set[str]:
    seen: set[str] = set()
    waiting = ["bascule"]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        requirements = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        waiting += [r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    return seen - {"bascule"}


def _size(name: str) -> int:
    files = importlib.metadata.distribution(name).files or []
    places = [Path(str(file.locate())) for file in files]
    return sum(place.stat().st_size for place in places if place.is_file())


@pytest.mark.req("D1")
def test_a_plain_install_stays_light() -> None:
    names = _runtime_distributions()
    size = sum(map(_size, names))
    assert len(names) <= MOST_DISTRIBUTIONS, sorted(names)
    assert size <= MOST_BYTES, sorted(((_size(name), name) for name in names), reverse=True)[:10]


# --- wheel and sdist --------------------------------------------------------------------------------------


@in_repository
@pytest.mark.slow
@pytest.mark.req("D2")
def test_the_wheel_holds_what_the_links_show(wheel: Path) -> None:
    code = {f"bascule/{name}" for name in _files(*LINKS)}
    demo = {name.replace("fixtures/mcp-echo/", SHIPPED) for name in _files("fixtures/mcp-echo")}
    inside = _names_in(wheel)
    assert {name for name in inside if ".dist-info/" not in name} == code | demo
    assert demo, "the fixture is shipped"


@in_repository
@pytest.mark.slow
def test_the_wheel_puts_nothing_beside_the_package(wheel: Path) -> None:
    tops = {PurePosixPath(name).parts[0] for name in _names_in(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"bascule"}


@in_repository
@pytest.mark.slow
def test_nothing_hostile_is_shipped(wheel: Path) -> None:
    assert not [name for name in _names_in(wheel) if "hostile" in name or "variants" in name or "tests/" in name]


@in_repository
@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
    (tree,) = (tmp_path / "sdist").iterdir()
    for name in ("README.md", "LICENSE", "pyproject.toml", "tests", "fixtures/variants"):
        assert (tree / name).exists()
    again = _build(tree, "wheel", tmp_path / "again")
    assert _names_in(again) == _names_in(wheel)


@in_repository
@pytest.mark.slow
def test_the_wheel_runs_from_a_folder_that_is_not_ours(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import bascule; from bascule.core.cli.tour import demo_directory as demo\n"
        "print(bascule.__file__, (demo() / 'plugin.yaml').is_file(), demo(), sep='\\n')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    file, found, demo = run.stdout.splitlines()
    assert Path(file).is_relative_to(site)
    assert found == "True"
    assert Path(demo).is_relative_to(site)
