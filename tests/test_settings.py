"""`bascule.yaml`: what the owner may set, and how every fault in it is reported."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import get_type_hints

import pytest
from pydantic import BaseModel, Field, ValidationError

from bascule.core.settings import HookConfig, Settings
from bascule.hookspecs import Limits, Section, SettingsInvalid

HINTS = get_type_hints(Limits, include_extras=True)
BOUNDS = {
    name: (hint.__metadata__[0].metadata[1].ge, hint.__metadata__[0].metadata[2].le) for name, hint in HINTS.items()
}
DOCS = Path(__file__).resolve().parents[1] / "docs" / "settings.md"

Load = Callable[[str], Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write settings and load them."""

    def loaded(content: str) -> Settings:
        (tmp_path / "bascule.yaml").write_text(content, encoding="utf-8")
        return Settings.load(tmp_path / "bascule.yaml")

    return loaded


def refusal(load: Load, content: str) -> SettingsInvalid:
    with pytest.raises(SettingsInvalid) as caught:
        load(content)
    return caught.value


class SseSettings(Section):
    port: int = Field(default=7861, ge=1, le=65535)
    tool_groups: tuple[str, ...] = Field(default=(), alias="toolGroups")


class LooseSettings(BaseModel):
    """A stranger's section that would ignore what it does not know."""

    folder: str = "x"


# --- where settings come from -----------------------------------------------------------------------------


def test_without_a_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load(None)
    assert settings == Settings()
    assert settings.path is None
    assert settings.environment == "production"
    assert settings.state is None
    assert (settings.launcher, settings.http_server) == ("auto", "auto")
    assert settings.limits == Limits()
    assert (settings.plugin_roots, settings.disabled_hook_plugins, settings.required_hook_plugins) == ((), (), ())
    assert (settings.launchers, settings.executables, settings.plugins) == ({}, {}, {})


def test_the_file_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bascule.yaml").write_text("environment: development\n")
    monkeypatch.chdir(tmp_path)
    settings = Settings.load()
    assert settings.environment == "development"
    assert settings.path == tmp_path / "bascule.yaml"


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        Settings.load(tmp_path / "nowhere.yaml")
    assert caught.value.code == "SETTINGS_INVALID"
    assert caught.value.where == str(tmp_path / "nowhere.yaml")
    assert caught.value.message == "the file can't be read: No such file or directory"
    assert caught.value.hint == "check the path and the file"


def test_a_broken_link_is_not_taken_for_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bascule.yaml").symlink_to(tmp_path / "gone")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsInvalid) as caught:
        Settings.load()
    assert "can't be read" in caught.value.message


@pytest.mark.parametrize("content", ["", "# nothing\n", "plugins:\nlimits:\nexecutables:\nstate:\n"])
def test_a_file_that_says_nothing_sets_nothing(load: Load, content: str) -> None:
    assert dict(load(content)) == dict(Settings())


def test_a_file_says_what_it_says(load: Load) -> None:
    settings = load(
        "environment: development\n"
        "launcher: sandbox\n"
        "launchers: {fx: local}\n"
        "http_server: uvicorn\n"
        "executables: {node: /opt/node}\n"
        "disabled_hook_plugins: [a]\n"
        "required_hook_plugins: [b, c]\n"
        "plugins: {sse_server: {port: 1}}\n"
    )
    assert (settings.environment, settings.launcher, settings.launchers) == ("development", "sandbox", {"fx": "local"})
    assert (settings.http_server, settings.executables) == ("uvicorn", {"node": Path("/opt/node")})
    assert (settings.disabled_hook_plugins, settings.required_hook_plugins) == (("a",), ("b", "c"))
    assert settings.plugins == {"sse_server": {"port": 1}}


def test_relative_paths_stand_beside_the_file(
    load: Load, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setenv("HOME", "/home/me")
    settings = load("state: st/../state\nplugin_roots: [plugins, ~/more, /opt/plugins]\n")
    assert settings.state == tmp_path / "state"
    assert settings.plugin_roots == (tmp_path / "plugins", Path("/home/me/more"), Path("/opt/plugins"))


def test_a_bound_executable_keeps_its_links(load: Load, tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)  # resolved, a virtual environment would be lost
    assert load(f"executables: {{python: {tmp_path}/python}}\n").executables == {"python": tmp_path / "python"}


def test_settings_can_not_be_changed(load: Load) -> None:
    settings = load("environment: production\n")
    with pytest.raises(ValidationError):
        settings.environment = "development"


def test_secrets_of_sections_stay_out_of_the_representation(load: Load) -> None:
    assert "s3cret" not in repr(load("plugins: {x: {token: s3cret}}\n"))


# --- limits -----------------------------------------------------------------------------------------------


def test_limits_are_laid_over_the_defaults(load: Load) -> None:
    limits = load("limits: {tool_seconds: 45, stderr_bytes: 131072}\n").limits
    assert limits == replace(Limits(), tool_seconds=45.0, stderr_bytes=131072)


def test_every_limit_has_bounds_and_its_default_is_within() -> None:
    assert list(BOUNDS) == [field.name for field in fields(Limits)]
    for name, (least, most) in BOUNDS.items():
        assert least <= getattr(Limits(), name) <= most


@pytest.mark.parametrize("name", list(BOUNDS))
def test_a_limit_may_be_set_to_its_bounds_and_not_beyond(load: Load, tmp_path: Path, name: str) -> None:
    least, most = BOUNDS[name]
    raised = {
        "startup_seconds": "startup_seconds_max",
        "tool_seconds": "tool_seconds_max",
        "result_bytes": "message_bytes",
    }
    room = f", {raised[name]}: {BOUNDS[raised[name]][1]}" if name in raised else ""
    for value in (least, most):
        assert getattr(load(f"limits: {{{name}: {value}{room}}}\n").limits, name) == value
    for value, problem, cure in (
        (least - 1, f"must be greater than or equal to {least}", "give it another value"),
        (most + 1, f"must be less than or equal to {most}", "give it another value"),
    ):
        error = refusal(load, f"limits:\n  {name}: {value}\n")
        assert error.where == f"{tmp_path / 'bascule.yaml'}:2"
        assert error.message == f"limits.{name}: {problem}"
        assert error.hint == cure


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("startup_seconds", "startup_seconds_max"),
        ("tool_seconds", "tool_seconds_max"),
        ("result_bytes", "message_bytes"),
    ],
)
def test_a_limit_that_another_bounds_follows_it_down_but_is_not_set_above(load: Load, low: str, high: str) -> None:
    bound = max(BOUNDS[low][0], BOUNDS[high][0])
    assert getattr(load(f"limits: {{{high}: {bound}}}\n").limits, low) == bound
    error = refusal(load, f"limits:\n  {high}: {bound}\n  {low}: {bound + 1}\n")
    assert str(error.where).endswith(":3")
    assert error.message == f"limits.{low}: must not be above limits.{high}, which is {bound:g}"
    assert error.hint == f"lower it, or raise limits.{high}"


# --- what is refused --------------------------------------------------------------------------------------

FAULTS: list[tuple[str, str, int, str, str, str]] = [
    # name, content, line, field, problem, cure
    ("key", "\nenviroment: x\n", 2, "enviroment", "is not a key here", "did you mean environment?"),
    ("far key", "zzz: x\n", 1, "zzz", "is not a key here", "known: environment, state"),
    ("word", "environment: prodction\n", 1, "environment", "must be 'production' or 'development'", "mean production?"),
    ("number", "launcher: 5\n", 1, "launcher", "must be text, not a number", "in quotes"),
    ("empty", 'launcher: ""\n', 1, "launcher", "must have at least 1 character", "another value"),
    ("state", "state: [a]\n", 1, "state", "must be text, not a list", "in quotes"),
    ("no path", 'state: " "\n', 1, "state", "is no path", "relative to this file"),
    ("nobody", "state: ~no-such-user/x\n", 1, "state", "is no path", "absolute path"),
    ("roots", "plugin_roots: plugins\n", 1, "plugin_roots", "must be a list, not text", "[a, b]"),
    ("id", "launchers: {FX: local}\n", 1, "launchers.FX", "must match pattern '^[a-z0-9]", "another value"),
    (
        "path for name",
        "executables: {bin/node: /x}\n",
        1,
        'executables."bin/node"',
        "must match pattern",
        "another value",
    ),
    ("name for path", "executables:\n  node: node\n", 2, "executables.node", '"node" is not absolute', "from / on"),
    (
        "limit",
        "limits:\n  tool_second: 3\n",
        2,
        "limits.tool_second",
        "is not a key here",
        "did you mean tool_seconds?",
    ),
    (
        "unit",
        "limits: {message_bytes: 2 MiB}\n",
        1,
        "limits.message_bytes",
        "must be a whole number, not text",
        "units",
    ),
    ("fraction", "limits: {traces: 1.5}\n", 1, "limits.traces", "must be a whole number, not a decimal", "no point"),
    (
        "flag",
        "limits: {tool_seconds: true}\n",
        1,
        "limits.tool_seconds",
        "must be a number, not true or false",
        "digits",
    ),
    ("no value", "limits:\n  traces:\n", 2, "limits.traces", "must be a whole number, not empty", "digits"),
    ("limits", "limits: none\n", 1, "limits", "must be a mapping, not text", "`key: value`"),
    ("section", "plugins:\n  a: {}\n  b: 3\n", 3, "plugins.b", "must be a mapping, not a number", "`key: value`"),
    ("names", "disabled_hook_plugins: a\n", 1, "disabled_hook_plugins", "must be a list, not text", "[a, b]"),
    ("yaml", "a: b: c\n", 1, "", "this is not YAML", "quotes"),
    ("twice", "state: a\nstate: b\n", 2, "state", "stands here twice", "remove one"),
]


@pytest.mark.parametrize(
    ("content", "line", "field", "problem", "cure"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_a_fault_is_told_with_code_line_field_and_cure(
    load: Load, tmp_path: Path, content: str, line: int, field: str, problem: str, cure: str
) -> None:
    error = refusal(load, content)
    assert (error.code, error.status) == ("SETTINGS_INVALID", 422)
    assert error.where == f"{tmp_path / 'bascule.yaml'}:{line}"
    assert error.message.startswith(f"{field}: " if field else problem)
    assert problem in error.message
    assert cure in str(error.hint)


def test_all_problems_are_told_at_once_one_a_line(load: Load, tmp_path: Path) -> None:
    error = refusal(load, "enviroment: x\nlauncher: 5\nlimits:\n  traces: 0\n")
    assert error.where == f"{tmp_path / 'bascule.yaml'}:1"
    file = tmp_path / "bascule.yaml"
    assert str(error).splitlines() == [
        f"{file}:1: enviroment: is not a key here (did you mean environment?)",
        f'{file}:2: launcher: must be text, not a number (write it in quotes: "…")',
        f"{file}:4: limits.traces: must be greater than or equal to 1 (give it another value)",
    ]


# --- sections ---------------------------------------------------------------------------------------------


def test_a_section_is_validated_by_the_hook_plugins_model(load: Load) -> None:
    settings = load("plugins: {sse_server: {port: 8000, toolGroups: [a]}}\n")
    assert settings.section("sse_server", SseSettings) == SseSettings(port=8000, tool_groups=("a",))


@pytest.mark.parametrize(
    "content", ["environment: production\n", "plugins: {other: {port: 1}}\n", "plugins:\n  sse:\n"]
)
def test_an_absent_section_is_an_empty_one(load: Load, content: str) -> None:
    assert load(content).section("sse", SseSettings) == SseSettings()
    assert Settings().section("sse", SseSettings) == SseSettings()


@pytest.mark.parametrize(
    ("model", "body", "field", "problem", "cure"),
    [
        (SseSettings, "prt: 1", "prt", "is not a key here", "did you mean port?"),
        (SseSettings, "toolGropus: [a]", "toolGropus", "is not a key here", "did you mean toolGroups?"),
        (SseSettings, "port: 0", "port", "must be greater than or equal to 1", "another value"),
        (SseSettings, "port: http", "port", "must be a whole number, not text", "digits"),
        (LooseSettings, "foldr: x", "foldr", "is not a key here", "did you mean folder?"),
    ],
)
def test_a_fault_in_a_section_is_told_with_its_line(
    load: Load, tmp_path: Path, model: type[BaseModel], body: str, field: str, problem: str, cure: str
) -> None:
    settings = load(f"plugins:\n  sse_server:\n    {body}\n")
    with pytest.raises(SettingsInvalid) as caught:
        settings.section("sse_server", model)
    assert caught.value.where == f"{tmp_path / 'bascule.yaml'}:3"
    assert caught.value.message == f"plugins.sse_server.{field}: {problem}"
    assert cure in str(caught.value.hint)


def test_where_something_stands_can_be_asked(load: Load, tmp_path: Path) -> None:
    settings = load("plugins:\n  gone:\n    a: 1\n")
    assert settings.where("plugins", "gone") == f"{tmp_path / 'bascule.yaml'}:2"
    assert settings.where("plugins", "gone", "b") == f"{tmp_path / 'bascule.yaml'}:2"
    assert Settings().where("plugins") is None


def test_a_hook_plugin_sees_its_own_part(load: Load, tmp_path: Path) -> None:
    settings = load("environment: development\nlimits: {traces: 5}\nplugins: {a: {port: 1}, b: {port: 2}}\n")
    config = HookConfig(settings, "b", tmp_path / "state")
    assert (config.environment, config.state, config.limits.traces) == ("development", tmp_path / "state", 5)
    assert config.section(SseSettings).port == 2


# --- overrides --------------------------------------------------------------------------------------------


def test_the_command_line_goes_before_the_file(load: Load, tmp_path: Path) -> None:
    settings = load("state: a\nlauncher: sandbox\nplugins:\n  sse:\n    prt: 1\n")
    changed = settings.with_(environment="development", state=tmp_path / "b", executables={"py": Path(sys.executable)})
    assert (changed.environment, changed.state, changed.launcher) == ("development", tmp_path / "b", "sandbox")
    assert changed.executables == {"py": Path(sys.executable)}
    assert (settings.environment, settings.state) == ("production", tmp_path / "a")
    with pytest.raises(SettingsInvalid) as caught:  # it still knows its file
        changed.section("sse", SseSettings)
    assert caught.value.where == f"{tmp_path / 'bascule.yaml'}:5"


def test_an_override_is_judged_like_the_file() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        Settings().with_(environment="prod")
    assert caught.value.where == "command line"
    assert "must be 'production' or 'development'" in caught.value.message
    with pytest.raises(SettingsInvalid) as caught:
        Settings().with_(enviroment="production")
    assert caught.value.hint == "did you mean environment?"


# --- cost and documentation -------------------------------------------------------------------------------


def test_importing_the_settings_does_not_load_yaml() -> None:
    code = (
        "import sys, bascule.core.settings; print(sorted({'yaml', 'jsonschema', 'quart', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


TEXT = DOCS.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def test_the_documentations_example_loads_and_sets_every_key(load: Load) -> None:
    (example,) = EXAMPLES
    settings = load(example)
    assert settings.model_fields_set == set(Settings.model_fields)
    assert settings.section("sse_server", SseSettings).port == 7861


def test_every_key_is_in_the_documentation() -> None:
    assert [key for key in Settings.model_fields if f"| `{key}` |" not in TEXT] == []


def test_the_documented_limits_are_those_in_force() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", TEXT, re.MULTILINE)
    documented = {name: tuple(map(float, numbers)) for name, *numbers in rows}
    assert documented == {name: (getattr(Limits(), name), *bounds) for name, bounds in BOUNDS.items()}
