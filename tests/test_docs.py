"""Docs and code are held together: what exists is documented, what is documented exists, and examples run."""

from __future__ import annotations

import re
import shlex
import types
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest
import yaml
from pydantic import AliasChoices

from bascule import hookspecs
from bascule.builtin_plugins.sse_server import SseSettings
from bascule.builtin_plugins.stdio_server import StdioSettings
from bascule.core.cli import cli, exits
from bascule.core.discovery import Found, Loaded
from bascule.core.lineup import FAMILIES, assemble
from bascule.core.manifest import load_manifest
from bascule.core.settings import HookConfig, Settings
from bascule.hookspecs import Section

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])

CODE = re.compile(r"^\| `([A-Z_]+)` \| ([0-9, ]+) \|", re.MULTILINE)
EXIT = re.compile(r"^\| (\d+) \| (?:`([A-Z_]+)`|–) \|", re.MULTILINE)
OPTION = re.compile(r"--[a-z][a-z-]*")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _page(name: str) -> str:
    return _text(DOCS / name)


def _section(page: str, title: str) -> str:
    """What stands below a heading of the second level."""
    return next(part.partition("\n")[2] for part in page.split("\n## ")[1:] if part.partition("\n")[0] == title)


def _blocks(text: str, language: str) -> Iterator[str]:
    return (code for name, code in FENCE.findall(text) if name == language)


def _commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


COMMANDS = _commands()


# --- errors -----------------------------------------------------------------------------------------------


def _errors(root: type[hookspecs.BasculeError]) -> Iterator[type[hookspecs.BasculeError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__.startswith(f"{hookspecs.errors.__name__}."):
            yield from _errors(child)


def _codes() -> dict[str, set[int]]:
    codes: dict[str, set[int]] = {}
    for error in _errors(hookspecs.BasculeError):
        if "code" in vars(error):
            codes.setdefault(error.code, set()).add(error.status)
    codes["PLUGIN_HOST_UNAVAILABLE"].add(hookspecs.PluginHostUnavailable.refused("").status)
    codes["REQUEST_REFUSED"] |= {403, 404, 405, 408, 413, 415, 421, 429, 431, 505}
    # the command line's own, for what is no BasculeError
    codes |= {"INTERNAL_ERROR": {500}, "USAGE_ERROR": {400}, "INTERRUPTED": {499}}
    return codes


def test_every_error_code_is_explained_with_its_status() -> None:
    explained: dict[str, set[int]] = {}
    for code, statuses in CODE.findall(_page("errors.md")):
        explained.setdefault(code, set()).update(int(status) for status in statuses.split(","))
    assert explained == _codes()


def test_the_error_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"── (\w+)(?: +([A-Z_]{4,}) +(\d{3}))?", hookspecs.errors.__doc__ or "")
    real = {
        (error.__name__, error.code, str(error.status)) if "code" in vars(error) else (error.__name__, "", "")
        for error in _errors(hookspecs.BasculeError)
        if error is not hookspecs.BasculeError
    }
    assert set(drawn) == real


def test_every_error_is_at_hand_in_the_one_module_of_them_and_in_the_contract() -> None:
    names = {error.__name__ for error in _errors(hookspecs.BasculeError)}
    assert set(hookspecs.errors.__all__) == names
    assert names <= set(hookspecs.__all__)


# --- command line -----------------------------------------------------------------------------------------


def test_every_command_has_its_section_and_no_other_has() -> None:
    titles = set(re.findall(r"^## bascule (\w+)$", _page("cli.md"), re.MULTILINE))
    assert titles == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_and_no_other_is(name: str) -> None:
    page = _page("cli.md")
    shared = _section(page, "Options of every command")
    hosting = _section(page, "Options of commands that host plugins")
    hosting += _section(page, "Options of commands that a running bridge carries out")
    own = _section(page, f"bascule {name}")
    options = {
        text
        for command in _parts(COMMANDS[name])
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for text in parameter.opts
    }
    for option in options:
        assert f"`{option}" in own or f"`{option}" in shared or f"`{option}" in hosting
    for option in _options_in_tables(shared) - {"--help"}:
        assert option in options
    for option in _options_in_tables(own):
        assert option in options
    assert ("--plugin" in options) == ("--dev" in options)


def _parts(command: click.Command) -> list[click.Command]:
    """The command itself, or those of a group."""
    return list(command.commands.values()) if isinstance(command, click.Group) else [command]


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if isinstance(command, click.Group)])
def test_every_part_of_a_group_is_shown(name: str) -> None:
    section = _section(_page("cli.md"), f"bascule {name}")
    for part in _parts(COMMANDS[name]):
        assert f"bascule {name} {part.name}" in section


def _options_in_tables(section: str) -> set[str]:
    rows = [line for line in section.splitlines() if line.startswith("| `-")]
    return {option for row in rows for option in OPTION.findall(row.split(" | ")[0])}


def test_every_exit_code_is_explained() -> None:
    codes = {str(value): name for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert dict(EXIT.findall(_page("cli.md"))) == {"0": "", **codes}


def _shell_lines(text: str) -> Iterator[str]:
    for block in _blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            yield from line.split("#")[0].split(" | ")


BASCULE_LINES = sorted(
    {line.strip() for page in PAGES for line in _shell_lines(_text(page)) if line.strip().startswith("bascule ")}
)


@pytest.mark.parametrize("line", BASCULE_LINES)
def test_every_command_in_the_docs_is_one(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    if name.startswith("-"):
        return
    command = COMMANDS[name]
    if isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments)


@pytest.mark.skipif(not (ROOT / "Makefile").is_file(), reason="no repository")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_in_the_docs_is_one(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", _text(ROOT / "Makefile"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)", _text(page))) <= targets
    assert set(re.findall(r"^make ([a-z]+)", "\n".join(_shell_lines(_text(page))), re.MULTILINE)) <= targets


# --- sections of built-ins -------------------------------------------------------------------------------


@pytest.mark.req("A2")
@pytest.mark.parametrize(
    ("page", "title", "model"),
    [("sse.md", "Settings", SseSettings), ("clients.md", "Over stdio", StdioSettings)],
    ids=["sse_server", "stdio_server"],
)
def test_every_key_of_a_ways_section_is_explained_with_its_default(page: str, title: str, model: type[Section]) -> None:
    table = _section(_page(page), title)
    shown = dict(re.findall(r"^\| `(\w+)` \| (?:`([^`]+)`|\(none\)) \|", table, re.MULTILINE))
    defaults = {
        field.validation_alias.choices[0] if isinstance(field.validation_alias, AliasChoices) else name: default
        for (name, field), default in zip(model.model_fields.items(), dict(model()).values(), strict=True)
    }
    assert shown.keys() == defaults.keys()
    for key, default in defaults.items():
        assert (yaml.safe_load(shown[key]) or None) == (
            (list(default) if isinstance(default, frozenset) else default) or None
        )


# --- hooks ------------------------------------------------------------------------------------------------

HOOKS = [family.hook for family in FAMILIES]


def test_every_hook_has_its_section_and_no_other_has() -> None:
    assert sorted(re.findall(r"^## (\w+)$", _page("hooks.md"), re.MULTILINE)) == sorted(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_stands_in_the_tutorial(hook: str) -> None:
    assert hook in (hookspecs.__doc__ or "")
    assert f"[`{hook}`](#{hook})" in _page("hooks.md")


@pytest.mark.req("D3", "D5")
@pytest.mark.parametrize("hook", HOOKS)
def test_the_example_of_a_hook_is_a_hook_plugin(hook: str, tmp_path: Path) -> None:
    (code,) = _blocks(_section(_page("hooks.md"), hook), "python")
    module = types.ModuleType(f"example_of_{hook}")
    exec(compile(code, f"docs/hooks.md, {hook}", "exec"), vars(module))
    found = Loaded(Found("example", module.__name__), module)
    lineup = assemble([found], lambda name: HookConfig(Settings(), name, tmp_path))
    (plugin,) = lineup.hook_plugins
    assert plugin.error is None
    assert list(plugin.offers) == [hook]


@pytest.mark.req("N1.2")
def test_the_agent_in_the_readme_calls_a_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    (code,) = _blocks(_text(ROOT / "README.md"), "python")
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    assert "'message': 'hello'" in capsys.readouterr().out


# --- pages ------------------------------------------------------------------------------------------------


def _anchors(text: str) -> set[str]:
    outside_code = FENCE.sub("", text)
    titles = (title.lower().replace("`", "") for title in HEADING.findall(outside_code))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", _text(page))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not (ROOT / "core").is_dir() and not target.is_relative_to(DOCS):
            continue  # the suite stands apart from the repository
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(_text(target)), link


def _manifests() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, block in enumerate(_blocks(_text(page), "yaml")):
            if re.search(r"^contributes:", block, re.MULTILINE):
                yield f"{page.name}-{number}", block


MANIFESTS = dict(_manifests())


@pytest.mark.parametrize("text", MANIFESTS.values(), ids=MANIFESTS)
def test_every_manifest_in_the_docs_is_one(text: str, tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text(text, encoding="utf-8")
    lineup = assemble([_built_in("stdio_client")], lambda name: HookConfig(Settings(), name, tmp_path))
    manifest = load_manifest(
        tmp_path, transports=lineup.client_transports, permissions=lineup.permissions, limits=hookspecs.Limits()
    )
    assert manifest.tools


def _built_in(name: str) -> Loaded:
    return Loaded(Found(name, f"bascule.builtin_plugins.{name}"), import_module(f"bascule.builtin_plugins.{name}"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_readable(page: Path) -> None:
    text = _text(page)
    assert text.startswith("# "), "a page begins with its title"
    assert text.endswith("\n")
    assert not re.search(r"[ \t]+$", FENCE.sub("", text), re.MULTILINE), "blanks at the end of a line"


@pytest.mark.skipif(not (ROOT / "core").is_dir(), reason="no repository")
def test_every_room_of_the_core_is_in_the_plan_of_the_house() -> None:
    rooms = {path.stem for path in (ROOT / "core").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    table = _section(_page("architecture.md"), "Rooms")
    shown = {name for line in table.splitlines() for name in re.findall(r"`(\w+)/?`", line.split(" | ")[0])}
    assert rooms - {"__init__"} <= shown


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("*.md")), ids=lambda page: page.stem)
def test_a_decision_says_what_it_costs(page: Path) -> None:
    text = _text(page)
    for part in ("**Context.**", "**Decision.**", "**Cost.**", "**How well kept.**"):
        assert part in text
    assert f"(decisions/{page.name})" in _page("architecture.md")
