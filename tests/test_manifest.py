"""`plugin.yaml`: what a manifest says, and how every fault in one is reported."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AliasPath, BaseModel, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from bascule.core.documents import keys_of
from bascule.core.manifest import BACKEND_KEYS, Manifest, ManifestFile, ToolDeclaration, load_manifest
from bascule.hookspecs import (
    CORE_PERMISSIONS,
    ExtensionIdInvalid,
    ExtensionPermissionInvalid,
    Limits,
    ManifestInvalid,
    ManifestNotFound,
    PackageNotFound,
    Section,
    Visibility,
)

DOCS = Path(__file__).resolve().parents[1] / "docs" / "manifest.md"


class Mount(Section):
    path: str
    readonly: bool = True


class StdioBackend(Section):
    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    retries: int = Field(default=0, ge=0, le=9)
    mode: str | int = "strict"
    ports: UUID | None = None
    mounts: tuple[Mount, ...] | None = None
    named: dict[str, Mount] = Field(default_factory=dict)

    @field_validator("command")
    @classmethod
    def no_shell(cls, command: str) -> str:
        if command == "sh":
            raise ValueError("a shell is not {allowed}")
        if command.endswith(";"):
            raise ValueError("this is a shell line; name one program")
        return command


class LooseBackend(BaseModel):
    """A stranger's model that would ignore what it does not know."""

    host: str
    output_folder: str | None = Field(default=None, alias="outputFolder")

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    @field_validator("host")
    @classmethod
    def no_colon(cls, host: str) -> str:
        if ":" in host:
            raise PydanticCustomError("colon", "this holds a port; write it apart", {"at": 5, "hint": 7})
        return host


class Transport:
    starts_process = False

    def __init__(self, name: str, backend_model: type[BaseModel]) -> None:
        self.name = name
        self.backend_model = backend_model

    def preview(self, backend: Any, directory: Path) -> None:
        return None

    def connect(self, backend: Any, context: Any) -> Any:
        raise AssertionError("reading a manifest connects nothing")


TRANSPORTS = {"stdio": Transport("stdio", StdioBackend), "tcp": Transport("tcp", LooseBackend)}
VOCABULARY = [permission.name for permission in CORE_PERMISSIONS]

GOOD = """\
id: fx
name: Fixture
version: 1.0.0
permissions: [notes.read]
contributes:
  tools:
    - fx.search
    - id: fx.save
      permission: notes.read
backend:
  type: mcp
  transport: stdio
  command: uvx
  args: [fx]
"""

Load = Callable[..., Manifest]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a manifest and load it."""

    def loaded(content: str | bytes, limits: Limits | None = None) -> Manifest:
        raw = content.encode() if isinstance(content, str) else content
        (tmp_path / "plugin.yaml").write_bytes(raw)
        return load_manifest(tmp_path, transports=TRANSPORTS, permissions=VOCABULARY, limits=limits or Limits())

    return loaded


def refusal(load: Load, content: str | bytes, limits: Limits | None = None) -> ManifestInvalid:
    with pytest.raises(ManifestInvalid) as caught:
        load(content, limits)
    return caught.value


def only(error: ManifestInvalid) -> dict[str, Any]:
    assert len(error.problems) == 1, error.problems
    return dict(error.problems[0])


# --- what a manifest says ---------------------------------------------------------------------------------


@pytest.mark.req("N3.1", "N3.4", "N3.6")
def test_a_manifest_says_what_the_file_says(load: Load, tmp_path: Path) -> None:
    text = GOOD + "  startup_timeout_seconds: 60\n  tool_timeout_seconds: 12.5\n  progress_idle_seconds: 7\n"
    manifest = load(text + "description: |\n  Two\n  lines\n")
    assert (manifest.id, manifest.name, manifest.version) == ("fx", "Fixture", "1.0.0")
    assert manifest.description == "Two\nlines\n"
    assert (manifest.backend_type, manifest.transport) == ("mcp", "stdio")
    assert (manifest.startup_seconds, manifest.tool_seconds, manifest.progress_idle_seconds) == (60, 12.5, 7)
    assert manifest.backend == StdioBackend(command="uvx", args=("fx",))
    assert list(manifest.tools) == ["fx.search", "fx.save"]
    assert (manifest.tools["fx.search"].remote_name, manifest.tools["fx.search"].permission) == ("search", None)
    assert manifest.tools["fx.save"].permission == "notes.read"
    assert manifest.directory == tmp_path.resolve()
    assert manifest.path == tmp_path.resolve() / "plugin.yaml"


@pytest.mark.req("N3.6")
def test_timeouts_that_are_left_out_are_the_owners_defaults(load: Load) -> None:
    manifest = load(GOOD, replace(Limits(), startup_seconds=11.0, tool_seconds=12.0, progress_idle_seconds=13.0))
    assert (manifest.startup_seconds, manifest.tool_seconds, manifest.progress_idle_seconds) == (11, 12, 13)


@pytest.mark.req("N5.4")
def test_every_manifest_holds_tools_call(load: Load) -> None:
    assert load(GOOD).permissions == ("notes.read", "tools.call")
    assert load(GOOD.replace("[notes.read]", "[tools.call, notes.read]")).permissions == ("tools.call", "notes.read")
    assert load("id: fx" + MINIMAL).permissions == ("tools.call",)


MINIMAL = "\nname: F\nversion: v1\ncontributes: {tools: []}\nbackend: {type: mcp, transport: stdio, command: x}\n"


@pytest.mark.req("N3.5")
def test_the_digest_is_that_of_the_files_bytes(load: Load) -> None:
    manifest = load(GOOD)
    assert manifest.digest == hashlib.sha256(GOOD.encode()).hexdigest()
    assert manifest.text == GOOD
    assert load(GOOD + "# changed\n").digest != manifest.digest


@pytest.mark.req("N3.5")
def test_a_manifest_can_not_be_changed(load: Load) -> None:
    manifest = load(GOOD)
    with pytest.raises(ValidationError):
        manifest.id = "other"
    with pytest.raises(TypeError):
        manifest.tools["fx.more"] = manifest.tools["fx.save"]


def test_a_tools_entry_says_how_it_is_shown(load: Load) -> None:
    entry = "{id: fx.search, groups: [a, b.c, a], visibility: sensitive, confirm: yes}"
    tool = load(GOOD.replace("- fx.search", f"- {entry}")).tools["fx.search"]
    assert (tool.id, tool.groups) == ("fx.search", frozenset({"a", "b.c"}))
    assert (tool.visibility, tool.confirm) == (Visibility.SENSITIVE, True)


@pytest.mark.req("N5.1")
@pytest.mark.parametrize(
    "written", ["weird/name with space", "weird%2Fname%20with%20space", "weird%2fname with%20space"]
)
def test_a_tool_may_be_named_as_the_server_names_it_or_escaped(load: Load, written: str) -> None:
    tools = load(GOOD.replace("fx.search", f"fx.{written}")).tools
    tool = tools["fx.weird%2Fname%20with%20space"]
    assert (tool.id, tool.remote_name) == ("fx.weird%2Fname%20with%20space", "weird/name with space")


@pytest.mark.req("N5.1")
def test_a_percent_sign_that_is_no_escape_is_the_servers_own(load: Load) -> None:
    assert load(GOOD.replace("fx.search", "fx.100%")).tools["fx.100%25"].remote_name == "100%"


def test_the_transport_gets_the_keys_that_are_its_own(load: Load) -> None:
    text = GOOD.replace("transport: stdio", "transport: tcp").replace("command: uvx", "host: h")
    backend = load(text.replace("args: [fx]", "outputFolder: out")).backend
    assert backend == LooseBackend(host="h", outputFolder="out")


@pytest.mark.parametrize(
    "content", [GOOD.encode("utf-8-sig"), GOOD.replace("\n", "\r\n").encode(), GOOD.encode() + b"...\n"]
)
def test_what_editors_do_to_a_file_changes_nothing(load: Load, content: bytes) -> None:
    assert load(content).tools == load(GOOD).tools


# --- what is refused: the directory -----------------------------------------------------------------------


def read(directory: Path) -> Manifest:
    return load_manifest(directory, transports=TRANSPORTS, permissions=VOCABULARY, limits=Limits())


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackageNotFound) as caught:
        read(tmp_path / "nowhere")
    assert caught.value.code == "EXTENSION_PACKAGE_NOT_FOUND"
    assert caught.value.where == str(tmp_path / "nowhere")
    assert caught.value.hint == "name the directory that holds plugin.yaml"


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text(GOOD)
    with pytest.raises(PackageNotFound) as caught:
        read(tmp_path / "plugin.yaml")
    assert caught.value.hint == "name the directory that holds plugin.yaml"


def test_a_directory_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestNotFound) as caught:
        read(tmp_path)
    assert caught.value.code == "EXTENSION_MANIFEST_NOT_FOUND"
    assert "plugin.yaml" in caught.value.message
    assert caught.value.where == str(tmp_path)
    assert caught.value.hint == "name the directory that holds plugin.yaml"


def test_the_one_subdirectory_with_a_manifest_is_suggested(tmp_path: Path) -> None:
    for name in ("docs", "plugin"):
        (tmp_path / name).mkdir()
    (tmp_path / "plugin" / "plugin.yaml").write_text(GOOD)
    with pytest.raises(ManifestNotFound) as caught:
        read(tmp_path)
    assert caught.value.hint == 'did you mean "plugin/plugin.yaml"?'
    (tmp_path / "docs" / "plugin.yaml").write_text(GOOD)
    with pytest.raises(ManifestNotFound) as caught:
        read(tmp_path)
    assert caught.value.hint == "name the directory that holds plugin.yaml"


def test_the_other_spelling_of_the_file_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "plugin.yml").write_text(GOOD)
    with pytest.raises(ManifestNotFound) as caught:
        read(tmp_path)
    assert caught.value.hint == 'did you mean "plugin.yml"?'


@pytest.mark.req("N6.3")
def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(GOOD)
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "plugin.yaml").symlink_to(tmp_path / "secret")
    with pytest.raises(ManifestInvalid) as caught:
        read(tmp_path / "plugin")
    assert only(caught.value)["problem"] == "the file is a link out of the plugin's directory"
    assert caught.value.where == str(tmp_path / "plugin" / "plugin.yaml")


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").symlink_to("plugin.yaml")
    with pytest.raises(ManifestInvalid) as caught:
        read(tmp_path)
    assert "can't be read: Too many levels" in only(caught.value)["problem"]


def test_a_link_inside_the_directory_and_a_linked_directory_are_followed(tmp_path: Path) -> None:
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "real.yaml").write_text(GOOD)
    (tmp_path / "plugin" / "plugin.yaml").symlink_to("real.yaml")
    (tmp_path / "link").symlink_to("plugin")
    assert read(tmp_path / "link").directory == (tmp_path / "plugin").resolve()


# --- what is refused: the file ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("id: fx\n\tname: x\n", 2, r"this is not YAML: found character '\t' that cannot start any token"),
        ("id: fx\nname: a\nid: gx\n", 3, "id: stands here twice, first in line 1"),
        ("id: fx\nname: &x y\n", 2, "anchors (&), aliases (*) and tags (!) are not used here"),
        (b"id: fx\nname: caf\xe9\n", 2, "this is not UTF-8"),
        (b"#" * (256 * 1024 + 1), None, "the file is larger than 256 KiB"),
    ],
)
def test_a_file_that_can_not_be_read_is_refused(
    load: Load, tmp_path: Path, content: str | bytes, line: int | None, problem: str
) -> None:
    error = refusal(load, content)
    assert type(error) is ManifestInvalid
    assert error.code == "EXTENSION_MANIFEST_INVALID"
    assert error.message == problem
    assert error.where == str(tmp_path / "plugin.yaml") + (f":{line}" if line else "")
    assert error.hint == only(error)["hint"] != ""


@pytest.mark.parametrize(
    "content",
    [
        "[" * 262_000,
        "a: " + "{" * 262_000,
        "- " * 131_000,
        "? " * 131_000,
        "&a " * 87_000,
        "a: 1\n" * 10_000,
        "a: [" + "a: 1," * 10_000 + "]",
        "\n".join(f"k{n}: {n}" for n in range(9_000)),
        "%TAG ! a\n" * 29_000,
        "a: !<" + "%41" * 87_000 + "> x",
        "1" * 262_000,
        "k" * 100_000 + ": 1",
        "id: fx\ncontributes: {tools: [" + "a," * 20_000 + "]}",
        "permissions: [" + "a," * 20_000 + "]",
    ],
    ids=range(14),
)
def test_a_hostile_file_gets_a_short_answer(load: Load, content: str) -> None:
    """In seconds: where one of them costs the square of its size, this would go on for long."""
    error = refusal(load, content)
    assert 1 <= len(error.problems) <= 100
    assert len(str(error)) < 50_000


# --- what is refused: the content -------------------------------------------------------------------------

# fmt: off
CONTENT_FAULTS: list[tuple[str, str, str, int, str, str, str]] = [
    # name, replace, by, line, field, problem, cure
    ("no name", "name: Fixture\n", "", 1, "name", "is missing", "add `name: …`"),
    ("no id", "id: fx\n", "", 1, "id", "is missing", "add `id: …`"),
    ("no backend", GOOD[GOOD.index("backend:") :], "", 1, "backend.type", "is missing", "add `type: …`"),
    ("no tools", "tools:", "tolls:", 6, "contributes.tolls", "is not a key here", "did you mean tools?"),
    ("unknown key", "version:", "colour: red\nversion:", 3, "colour", "is not a key here", "known: id, name, version"),
    ("misspelt key", "version:", "descripton: x\nversion:", 3, "descripton", "not a key", "did you mean description?"),
    ("other case", "version:", "Description: x\nversion:", 3, "Description", "not a key", "did you mean description?"),
    ("odd key", "version:", '"a b": x\nversion:', 3, '"a b"', "is not a key here", "known: id"),
    ("version number", "1.0.0", "1.0", 3, "version", "must be text, not a decimal", "in quotes"),
    ("no version", " 1.0.0", "", 3, "version", "must be text, not empty", "in quotes"),
    ("name of two lines", "Fixture", '"a\\nb"', 2, "name", "must match pattern", "another value"),
    ("name that turns", "Fixture", '"a\\u202eb"', 2, "name", "hides or reorders", "remove it"),
    ("name with colours", "Fixture", '"a\\e[31mb"', 2, "name", "an escape that controls", "remove it"),
    ("name with half a character", "Fixture", '"a\\ud800"', 2, "name", "an escape that", "remove it"),
    ("empty name", "Fixture", '" "', 2, "name", "must match pattern", "another value"),
    ("long name", "Fixture", "x" * 101, 2, "name", "must have at most 100 characters", "another value"),
    ("one permission", "[notes.read]", "notes.read", 4, "permissions", "must be a list, not text", "[a, b]"),
    ("permission twice", "[notes.read]", "[notes.read, notes.read]", 4, "permissions[1]", "listed twice", "remove one"),
    ("tools mapping", "    - fx.search\n    - id", "    - x: y\n      id",
     7, "contributes.tools[0].x", "not a key", "known: id"),
    ("tool number", "- fx.search", "- 5", 7, "contributes.tools[0]", "must be a mapping, not a number", "write"),
    ("tool without id", "- fx.search", "- {confirm: true}",
     7, "contributes.tools[0].id", "is missing", "add `id: …`"),
    ("tool key", "- fx.search", "- {id: fx.a, grops: []}",
     7, "contributes.tools[0].grops", "not a key", "mean groups?"),
    ("bare tool", "fx.search", "search",
     7, "contributes.tools[0]", "is not the plugin's id, a dot and a tool's name", '"fx.search"'),
    ("another's tool", "fx.search", "gx.search", 7, "contributes.tools[0]", "not the plugin's id", '"fx.search"'),
    ("no tool", "fx.search", "fx.", 7, "contributes.tools[0]", "is not the plugin's id, a dot and", "such as"),
    ("tool twice", "fx.save", "fx.search", 8, "contributes.tools[1].id", '"fx.search" is listed twice', "remove one"),
    ("tool twice, escaped", "fx.save", "fx.%73earch", 8, "contributes.tools[1].id", "is listed twice", "remove one"),
    ("tool's escape", "fx.search", "fx.%FF", 7, "contributes.tools[0]", "'utf-8' codec can't decode", "another value"),
    ("look-alike", "fx.search", "fx.аdd",
     7, "contributes.tools[0]", r"'\u0430dd' mixes Cyrillic and Latin", "one script"),
    ("hidden in escapes", "fx.search", "fx.a%E2%80%8Bb", 7, "contributes.tools[0]", "ZERO WIDTH SPACE", "printable"),
    ("long tool", "fx.search", "fx." + "x" * 129, 7, "contributes.tools[0]", "has 129 characters", "1 to 128"),
    ("undeclared", "permission: notes.read", "permission: files.read",
     9, "contributes.tools[1].permission", "is not among the manifest's permissions", "add files.read there"),
    ("group", "- fx.search", "- {id: fx.a, groups: [a b]}",
     7, "contributes.tools[0].groups[0]", "must match pattern '^[A-Za-z0-9]", "another value"),
    ("groups", "- fx.search", "- {id: fx.a, groups: a}", 7, "contributes.tools[0].groups", "must be a list", "[a, b]"),
    ("visibility", "- fx.search", "- {id: fx.a, visibility: restrictd}",
     7, "contributes.tools[0].visibility", "must be 'public', 'restricted' or 'sensitive'", "did you mean restricted?"),
    ("confirm", "- fx.search", "- {id: fx.a, confirm: maybe}",
     7, "contributes.tools[0].confirm", "true or false", "write true"),
    ("backend", GOOD[GOOD.index("backend:") :], "backend: mcp\n",
     10, "backend.type", "is missing", "add `type: …`"),
    ("type", "type: mcp", "type: python", 11, "backend.type", "must be 'mcp'", "known: mcp"),
    ("misspelt type", "type: mcp", "tipe: mcp\n  type: mcp", 11, "backend.tipe", "not a key", "did you mean type?"),
    ("transport", "stdio", "stdoi",
     12, "backend.transport", 'no transport "stdoi" is registered; there are: stdio, tcp', "did you mean stdio?"),
    ("far transport", "stdio", "carrier-pigeon", 12, "backend.transport", "there are: stdio, tcp", "one of these"),
    ("transport's type", "stdio", "[stdio]", 12, "backend.transport", "must be text, not a list", "in quotes"),
    ("command", "  command: uvx\n", "", 10, "backend.command", "is missing", "add `command: …`"),
    ("their key", "args:", "argz:", 14, "backend.argz", "is not a key here", "did you mean args?"),
    ("our key", "args: [fx]", "tool_timeout: 3", 14, "backend.tool_timeout", "not a key", "mean tool_timeout_seconds?"),
    ("neither's key", "args: [fx]", "zzz: 3", 14, "backend.zzz", "is not a key here", "known: command, args, env"),
    ("their list", "[fx]", "[fx, 8080]", 14, "backend.args[1]", "must be text, not a number", "in quotes"),
    ("their value", "args: [fx]", "env: {A: }", 14, "backend.env.A", "must be text, not empty", "in quotes"),
    ("their bound", "args: [fx]", "retries: 10", 14, "backend.retries", "less than or equal to 9", "another value"),
    ("their number", "args: [fx]", "retries: many",
     14, "backend.retries", "must be a whole number, not text", "digits"),
    ("their rule", "uvx", "sh", 13, "backend.command", "a shell is not {allowed}", "give it another value"),
    ("their choice", "args: [fx]", "mode: [x]", 14, "backend.mode", "must be text, not a list", "in quotes"),
    ("deep in theirs", "args: [fx]", "mounts:\n    - path: /a\n    - {path: /b, readonyl: no}",
     16, "backend.mounts[1].readonyl", "is not a key here", "did you mean readonly?"),
    ("lacking in theirs", "args: [fx]", "named:\n    a:\n      readonly: no",
     15, "backend.named.a.path", "is missing", "add `path: …`"),
    ("their cure", "uvx", '"ls;"', 13, "backend.command", "this is a shell line", "name one program"),
    ("their sort", "args: [fx]", "ports: {a: b}",
     14, "backend.ports", "must be a string, bytes or UUID", "give it another value"),
    ("no time", "args: [fx]", "startup_timeout_seconds: 0",
     14, "backend.startup_timeout_seconds", "more than 0 and at most 300", "limits.startup_seconds_max"),
    ("long start", "args: [fx]", "startup_timeout_seconds: 301",
     14, "backend.startup_timeout_seconds", "at most 300", "limits.startup_seconds_max"),
    ("long call", "args: [fx]", "tool_timeout_seconds: 600.5",
     14, "backend.tool_timeout_seconds", "at most 600", "limits.tool_seconds_max"),
    ("long silence", "args: [fx]", "progress_idle_seconds: 601",
     14, "backend.progress_idle_seconds", "at most 600", "limits.tool_seconds_max"),
    ("negative time", "args: [fx]", "tool_timeout_seconds: -1",
     14, "backend.tool_timeout_seconds", "more than 0 and at most 600", "limits.tool_seconds_max"),
    ("time as text", "args: [fx]", 'tool_timeout_seconds: "30"',
     14, "backend.tool_timeout_seconds", "a number, not text", "without quotes"),
    ("time with unit", "args: [fx]", "tool_timeout_seconds: 30s",
     14, "backend.tool_timeout_seconds", "a number, not text", "or units"),
    ("time as flag", "args: [fx]", "tool_timeout_seconds: true",
     14, "backend.tool_timeout_seconds", "not true or false", "digits"),
]
# fmt: on


@pytest.mark.req("N3.1", "N3.4", "N3.6", "N5.1")
@pytest.mark.parametrize(
    ("old", "new", "line", "field", "problem", "cure"),
    [row[1:] for row in CONTENT_FAULTS],
    ids=[row[0] for row in CONTENT_FAULTS],
)
def test_a_fault_is_told_with_code_line_field_and_cure(
    load: Load, tmp_path: Path, old: str, new: str, line: int, field: str, problem: str, cure: str
) -> None:
    assert old in GOOD
    error = refusal(load, GOOD.replace(old, new, 1))
    assert type(error) is ManifestInvalid
    assert error.code == "EXTENSION_MANIFEST_INVALID"
    found = next(problem for problem in error.problems if problem["field"] == field)
    assert found["line"] == line
    assert problem in found["problem"]
    assert cure in found["hint"]
    assert f"{tmp_path / 'plugin.yaml'}:{line}: {field}: " in str(error)
    assert found["hint"] in str(error)
    assert all(other["hint"] for other in error.problems)


def test_a_key_that_a_strangers_model_would_ignore_is_refused(load: Load) -> None:
    text = GOOD.replace("transport: stdio", "transport: tcp").replace("command: uvx", "host: h")
    found = only(refusal(load, text.replace("args: [fx]", "output_foldr: out")))
    assert (found["line"], found["field"]) == (14, "backend.output_foldr")
    assert found["hint"] == "did you mean outputFolder?"


def test_an_error_of_a_strangers_own_making_is_told_in_its_words(load: Load) -> None:
    text = GOOD.replace("transport: stdio", "transport: tcp").replace("args: [fx]\n", "")
    found = only(refusal(load, text.replace("command: uvx", "host: a:1")))
    assert (found["line"], found["field"]) == (13, "backend.host")
    assert (found["problem"], found["hint"]) == ("this holds a port", "write it apart")


@pytest.mark.parametrize("bad", ["FX", "fx.y", "-fx", "_fx", "f x", "x" * 64, "фх", '"fx\\n"', '""'])
def test_an_id_of_another_form_has_a_code_of_its_own(load: Load, bad: str) -> None:
    error = refusal(load, f"id: {bad}{MINIMAL}")
    found = only(error)
    assert type(error) is ExtensionIdInvalid
    assert error.code == "EXTENSION_ID_INVALID"
    assert (found["line"], found["field"]) == (1, "id")
    assert found["problem"] == "must match pattern '^[a-z0-9][a-z0-9_-]{0,62}$'"


def test_an_id_that_is_a_number_is_told_to_take_quotes(load: Load) -> None:
    error = refusal(load, f"id: 123{MINIMAL}")
    assert error.code == "EXTENSION_ID_INVALID"
    assert only(error)["hint"] == 'write it in quotes: "…"'
    assert load(f'id: "123"{MINIMAL}').id == "123"


@pytest.mark.req("N5.4")
@pytest.mark.parametrize(
    ("old", "new", "line", "field", "cure"),
    [
        ("[notes.read]", "[notes.read, notes.wite]", 4, "permissions[1]", "did you mean notes.write?"),
        ("[notes.read]", "[notes.read, fly]", 4, "permissions[1]", "name one of these"),
        (
            "permission: notes.read",
            "permission: notesread",
            9,
            "contributes.tools[1].permission",
            "did you mean notes.read?",
        ),
    ],
)
def test_a_permission_that_no_one_registered_has_a_code_of_its_own(
    load: Load, old: str, new: str, line: int, field: str, cure: str
) -> None:
    error = refusal(load, GOOD.replace(old, new, 1))
    found = only(error)
    assert type(error) is ExtensionPermissionInvalid
    assert error.code == "EXTENSION_PERMISSION_INVALID"
    assert (found["line"], found["field"]) == (line, field)
    assert "is registered" in found["problem"]
    assert cure in found["hint"]
    assert all(word in found["problem"] for word in VOCABULARY)


@pytest.mark.req("N5.4")
def test_a_permission_that_a_hook_plugin_registers_may_be_declared(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text(GOOD.replace("[notes.read]", "[notes.read, calendar.read]"))
    vocabulary = [*VOCABULARY, "calendar.read"]
    manifest = load_manifest(tmp_path, transports=TRANSPORTS, permissions=vocabulary, limits=Limits())
    assert "calendar.read" in manifest.permissions


@pytest.mark.req("N5.4")
def test_tools_call_is_always_known(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text(GOOD.replace("notes.read", "tools.call"))
    assert load_manifest(tmp_path, transports=TRANSPORTS, permissions=[], limits=Limits()).permissions == (
        "tools.call",
    )


@pytest.mark.req("N5.4")
def test_a_tool_may_ask_for_tools_call_without_declaring_it(load: Load) -> None:
    manifest = load(GOOD.replace("permission: notes.read", "permission: tools.call"))
    assert manifest.tools["fx.save"].permission == "tools.call"


def test_more_tools_than_the_owner_allows_are_refused(load: Load) -> None:
    limits = replace(Limits(), tools_per_plugin=2)
    assert len(load(GOOD, limits).tools) == 2
    found = only(refusal(load, GOOD.replace("- fx.search", "- fx.search\n    - fx.more"), limits))
    assert (found["line"], found["field"]) == (6, "contributes.tools")
    assert found["problem"] == "lists 3 tools, more than 2"
    assert "limits.tools_per_plugin" in found["hint"]


def test_as_many_tools_as_the_limits_allow_may_have_all_that_is_said_of_one(load: Load) -> None:
    most = Limits().tools_per_plugin
    entry = "    - {{id: fx.t{}, permission: notes.read, groups: [a], visibility: public, confirm: true}}\n"
    tools = "".join(entry.format(number) for number in range(most))
    head, _, tail = GOOD.partition("    - fx.search\n")
    assert len(load(head + tools + tail[tail.index("backend:") :]).tools) == most


def test_more_keys_and_values_than_a_manifest_can_need_are_refused(load: Load) -> None:
    found = only(refusal(load, GOOD + "x: [" + "[]," * 60_000 + "]\n"))
    assert found["problem"] == "this holds more than 25,000 keys and values"
    assert (found["field"], found["hint"]) == ("", "shorten it")


def test_all_problems_are_told_at_once_in_the_files_order(load: Load, tmp_path: Path) -> None:
    error = refusal(load, "id: FX\nversion: 1.0\npermissions: [fly]\ncontributes: {tools: [5]}\nbackend: {type: x}\n")
    assert [problem["line"] for problem in error.problems] == [1, 1, 2, 3, 4, 5, 5]
    assert error.code == "EXTENSION_ID_INVALID"
    lines = str(error).splitlines()
    assert len(lines) == 7
    assert all(line.startswith(f"{tmp_path / 'plugin.yaml'}:") and line.endswith(")") for line in lines)
    assert error.as_dict()["problems"] == [dict(problem) for problem in error.problems]


def test_an_empty_file_is_told_what_it_lacks(load: Load) -> None:
    error = refusal(load, "# nothing yet\n")
    fields = [problem["field"] for problem in error.problems]
    assert sorted(fields) == ["backend.transport", "backend.type", "contributes", "id", "name", "version"]


def test_values_are_not_repeated_in_messages_about_their_type(load: Load) -> None:
    error = refusal(load, GOOD.replace("args: [fx]", "env: {TOKEN: 4711471147114711}"))
    assert only(error)["field"] == "backend.env.TOKEN"
    assert "4711" not in str(error)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


ALPHABET = st.characters(codec="utf-8", exclude_categories=["Cs"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(ALPHABET, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "tools", "type", "transport", "args", "é"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from(["id", "name", "permissions", "contributes", "backend", "x"]), VALUES))
def test_whatever_stands_in_the_file_the_answer_is_a_manifest_or_a_list_of_problems(load: Load, data: Any) -> None:
    error = refusal(load, yaml.dump(data, Dumper=_PlainDumper, allow_unicode=True))  # `version` is never there
    assert all(problem["problem"] and problem["hint"] for problem in error.problems)


# --- the documentation ------------------------------------------------------------------------------------

EXAMPLES = re.findall(r"```yaml\n(id:.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)  # the others are parts


def test_the_documentation_has_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.req("N3.5")
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_documentation_loads(load: Load, example: str) -> None:
    manifest = load(example)
    assert manifest.tools
    assert all(name.startswith(f"{manifest.id}.") for name in manifest.tools)


def test_no_key_of_the_backend_is_forgotten() -> None:
    aliases = [field.validation_alias for field in ManifestFile.model_fields.values()]
    assert [alias.path[1] for alias in aliases if isinstance(alias, AliasPath)] == list(BACKEND_KEYS)


@pytest.mark.parametrize("key", [*keys_of(ManifestFile), "tools", *keys_of(ToolDeclaration), *BACKEND_KEYS])
def test_every_key_is_in_the_documentation(key: str) -> None:
    assert f"`{key}`" in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("permission", VOCABULARY)
def test_every_permission_is_in_the_documentation(permission: str) -> None:
    assert f"`{permission}`" in DOCS.read_text(encoding="utf-8")
