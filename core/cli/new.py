"""``bascule new``: a plugin or a hook plugin to start from, small and whole, with tests that pass."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template

import click

from ..naming import PLUGIN_ID
from . import options
from .output import print_json, say

TEMPLATES = Path(__file__).parent / "templates"

_DISTRIBUTION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MOST = 63
_TAKEN = frozenset({"bascule", "conftest", "pytest", "stdio"})


@click.group()
def new() -> None:
    """Write a plugin or a hook plugin to start from."""


_into = click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Where its folder is made; here, if nothing is said.",
)


@new.command("plugin")
@click.argument("name")
@_into
@options.common
def plugin(name: str, into: Path, as_json: bool, **_: object) -> int:
    """Write a plugin: a manifest, a small MCP server, a test.

    NAME is its id: a-z, 0-9, - and _.

    \b
    bascule new plugin my-tools
    """
    if not PLUGIN_ID.fullmatch(name):
        raise click.UsageError(f"{name!r} is no plugin id: it begins with a-z or 0-9 and holds a-z, 0-9, - and _")
    title = name.replace("-", " ").replace("_", " ").capitalize()
    words = {"name": name, "title": title, "module": name.replace("-", "_")}
    written = _write("plugin", into / name, words, tests=into)
    _tell(
        written,
        as_json,
        f'bascule call {name}.greet \'{{"name": "Ada"}}\' --dev --plugin {shlex.quote(str(into / name))}',
    )
    return 0


@new.command("hook-plugin")
@click.argument("name")
@_into
@options.common
def hook_plugin(name: str, into: Path, as_json: bool, **_: object) -> int:
    """Write a hook plugin: a client transport as a distribution of its own, with the conformance kit as its test.

    NAME is the distribution's: a-z, 0-9 and -.

    \b
    bascule new hook-plugin my-transport
    """
    transport = name.removeprefix("bascule-")
    module = name.replace("-", "_")
    if not _DISTRIBUTION.fullmatch(name) or len(name) > _MOST:
        raise click.UsageError(f"{name!r} is no name for it: it begins with a-z and holds a-z, 0-9 and single -")
    if module in sys.stdlib_module_names or keyword.iskeyword(module) or {module, transport} & _TAKEN:
        raise click.UsageError(
            f"{name!r} is taken, as a module or as a transport; choose another, such as my-{transport}"
        )
    words = {
        "name": name,
        "module": module,
        "transport": transport,
        "entry": transport.replace("-", "_"),
        "Transport": "".join(part.capitalize() for part in transport.removesuffix("-transport").split("-"))
        + "Transport",
    }
    written = _write("hook-plugin", into / name, words, tests=into / name)
    _tell(
        written,
        as_json,
        f"cd {shlex.quote(str(into / name))} && python -m pip install --editable '.[test]' && python -m pytest",
    )
    return 0


def _write(kind: str, folder: Path, words: Mapping[str, str], *, tests: Path) -> list[Path]:
    """Fill the templates of ``kind`` into ``folder``, which must be new or empty; the test goes to ``tests``."""
    targets = {}
    for source in sorted((TEMPLATES / kind).glob("*.template")):
        name = source.name.removesuffix(".template").replace("module", words["module"])
        targets[source] = (tests if name.startswith("test_") else folder) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise click.UsageError(f"{folder} is not empty; nothing was written")
        for target in targets.values():
            if target.exists():
                raise click.UsageError(f"{target} is there already; nothing was written")
        for source, target in targets.items():
            target.write_text(Template(source.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{folder} can't be written: {error.strerror}") from error
    return list(targets.values())


def _tell(written: list[Path], as_json: bool, following: str) -> None:
    if as_json:
        print_json({"files": [str(path) for path in written], "next": following})
        return
    for path in written:
        say(f"wrote {path}")
    say(f"\nNext: {following}", bold=True)
