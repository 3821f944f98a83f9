"""The owner's settings, ``bascule.yaml``.

Cheap to import: YAML is loaded when there is a file to read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    create_model,
)
from pydantic_core import InitErrorDetails, core_schema

from ..hookspecs.config import Limits
from ..hookspecs.errors import SettingsInvalid
from .documents import Document, DocumentInvalid, Problem, quoted, summary
from .naming import PLUGIN_ID
from .validation import check, fault

SETTINGS_NAME = "bascule.yaml"

SectionT = TypeVar("SectionT", bound=BaseModel)
Environment = Literal["production", "development"]

_KIB = 1024
_MIB = 1024 * 1024

LIMIT_BOUNDS: dict[str, tuple[float, float]] = {
    "message_bytes": (4 * _KIB, 64 * _MIB),
    "result_bytes": (1 * _KIB, 64 * _MIB),
    "http_body_bytes": (4 * _KIB, 64 * _MIB),
    "sse_event_bytes": (4 * _KIB, 64 * _MIB),
    "tools_per_plugin": (1, 20_000),
    "list_pages": (1, 10_000),
    "schema_bytes": (1 * _KIB, 4 * _MIB),
    "schema_depth": (4, 128),
    "calls_per_host": (1, 65_536),
    "calls_per_caller": (1, 65_536),
    "startup_seconds": (0.1, 3_600),
    "startup_seconds_max": (0.1, 3_600),
    "tool_seconds": (0.1, 86_400),
    "tool_seconds_max": (0.1, 86_400),
    "progress_idle_seconds": (0.1, 86_400),
    "check_seconds": (0.05, 60),
    "confirm_seconds": (1, 3_600),
    "shutdown_grace_seconds": (0, 60),
    "write_queue_bytes": (64 * _KIB, 256 * _MIB),
    "write_seconds": (0.05, 60),
    "stderr_bytes": (1 * _KIB, 4 * _MIB),
    "notifications_per_second": (1, 100_000),
    "notifications_burst": (1, 1_000_000),
    "traces": (1, 10_000_000),
    "trace_days": (0.01, 3_650),
    "trace_detail_bytes": (0, 1 * _MIB),
    "parallel_starts": (1, 256),
}
"""The least and the most that each limit may be set to: beyond them the bridge would not work, or not be bounded."""

_NOT_ABOVE = {
    "startup_seconds": "startup_seconds_max",
    "tool_seconds": "tool_seconds_max",
    "result_bytes": "message_bytes",
}


def _limit(default: float, least: float, most: float) -> Any:
    return type(default), Field(default, ge=least, le=most, strict=True)


@cache
def _limits_section() -> type[BaseModel]:
    """The model of ``limits``; made when there are some."""
    return create_model(
        "_LimitsSection",
        __config__=ConfigDict(extra="forbid"),
        **{field.name: _limit(getattr(Limits(), field.name), *LIMIT_BOUNDS[field.name]) for field in fields(Limits)},
    )


def _limits(value: Any) -> Limits:
    """Lay what the file says over the defaults; a default gives way where it would stand above its lowered bound."""
    if isinstance(value, Limits):
        return value
    section = _limits_section().model_validate(value)
    limits, given = section.model_dump(), section.model_fields_set
    for name, bound in _NOT_ABOVE.items():
        if limits[name] > limits[bound] and name in given:
            words = f"must not be above limits.{bound}, which is {limits[bound]:.12g}"
            problem = fault(words, f"lower it, or raise limits.{bound}")
            details = InitErrorDetails(type=problem, loc=(name,), input=limits[name])
            raise ValidationError.from_exception_data("limits", [details])
        limits[name] = min(limits[name], limits[bound])
    return Limits(**limits)


class _LaidOver:
    """Validates by :func:`_limits` alone: ``PlainValidator`` would have a schema of the dataclass built in vain."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(_limits)


def _anchored(value: Any, info: ValidationInfo) -> Any:
    """Make a path absolute: relative ones stand beside the file, ``~`` is the owner's home."""
    if not isinstance(value, str):
        return value
    path = os.path.expanduser(value)
    if not value.strip() or path.startswith("~"):
        raise fault(f"{quoted(value)} is no path that exists", "write an absolute path, or one relative to this file")
    return ((info.context or Path.cwd()) / path).resolve()


def _absolute(path: Path) -> Path:
    if path.is_absolute():
        return path
    raise fault(f"{quoted(str(path))} is not absolute", "write the whole path of the executable, from / on")


def _bare(name: str) -> str:
    if name in ("", ".", "..") or "/" in name:
        raise fault(f"{quoted(name)} is not a bare name", "write the name that a manifest uses, such as `node`")
    return name


def _plugin_id(name: str) -> str:
    if PLUGIN_ID.fullmatch(name):
        return name
    raise fault(f"{quoted(name)} can't be a plugin's id", "write the id that the plugin's manifest has")


def _section(value: Any) -> Any:
    return {} if value is None else value


_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Path = Annotated[Path, BeforeValidator(_anchored)]


class Settings(BaseModel):
    """``bascule.yaml``, validated; everything has a default.

    ``plugins`` holds the sections of the hook plugins as they stand in the file; :meth:`section` validates one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    environment: Environment = "production"
    state: _Path | None = None
    plugin_roots: tuple[_Path, ...] = ()
    launcher: _Name = "local"
    launchers: dict[Annotated[str, AfterValidator(_plugin_id)], _Name] = Field(default_factory=dict)
    http_server: _Name = "auto"
    executables: dict[Annotated[str, AfterValidator(_bare)], Annotated[Path, AfterValidator(_absolute)]] = Field(
        default_factory=dict
    )
    limits: Annotated[Limits, _LaidOver()] = Limits()
    disabled_hook_plugins: tuple[_Name, ...] = ()
    required_hook_plugins: tuple[_Name, ...] = ()
    plugins: dict[_Name, Annotated[dict[str, Any], BeforeValidator(_section)]] = Field(default_factory=dict, repr=False)

    _document: Document = PrivateAttr(default=Document(Path(SETTINGS_NAME)))

    @classmethod
    def load(cls, path: Path | None = None) -> Settings:
        """Read ``path``, or ``bascule.yaml`` in the working directory where there is one.

        Raises ``SettingsInvalid`` with every problem at once; a ``path`` that was asked for must exist.
        """
        if path is None:
            path = Path(SETTINGS_NAME)
            if not os.path.lexists(path):
                return cls()
        path = path.absolute()
        document = _read(path)
        # a heading whose entries are all commented out is nothing
        data = {key: value for key, value in document.data.items() if value is not None or key not in cls.model_fields}
        settings, problems = check(cls, data, document, context=path.parent)
        if settings is None:
            raise _refusal(path, problems)
        settings._document = document
        return settings

    @property
    def path(self) -> Path | None:
        """The file that these settings were read from."""
        return self._document.path if self._document.digest else None

    def where(self, *keys: str | int) -> str | None:
        """Say where ``keys`` stand, as ``file:line``."""
        line = self._document.line(keys)
        return f"{self._document.path}:{line}" if line else None

    def section(self, name: str, model: type[SectionT]) -> SectionT:
        """Return the section of the hook plugin ``name``, validated; an absent one is an empty one.

        Raises ``SettingsInvalid``.
        """
        section, problems = check(model, self.plugins.get(name, {}), self._document, at=("plugins", name))
        if section is None:
            raise _refusal(self._document.path, problems)
        return section

    def with_(self, **changes: object) -> Settings:
        """Return these settings with some replaced, such as ``state`` by ``--state``; judged like the file's.

        Raises ``SettingsInvalid``.
        """
        command_line = Document(Path("command line"))
        settings, problems = check(type(self), {**dict(self), **changes}, command_line)
        if settings is None:
            raise _refusal(command_line.path, problems)
        settings._document = self._document
        return settings


@dataclass(frozen=True, slots=True)
class HookConfig:
    """What one hook plugin, known by its entry point's ``name``, may see of the settings."""

    settings: Settings
    name: str
    state: Path

    @property
    def environment(self) -> str:
        return self.settings.environment

    @property
    def limits(self) -> Limits:
        return self.settings.limits

    def section(self, model: type[SectionT]) -> SectionT:
        return self.settings.section(self.name, model)


def _read(path: Path) -> Document:
    from .yaml_source import read

    try:
        return read(path)
    except DocumentInvalid as invalid:
        raise _refusal(path, invalid.problems) from None


def _refusal(path: Path, problems: Iterable[Problem]) -> SettingsInvalid:
    message, where, hint = summary(path, [*problems])
    return SettingsInvalid(message, where=where, hint=hint)
