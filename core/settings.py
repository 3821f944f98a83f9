"""The owner's settings, ``bascule.yaml``.

Cheap to import: YAML is loaded when there is a file to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PrivateAttr, WrapValidator

from ..hookspecs.config import Limits, SectionT
from ..hookspecs.errors import SettingsInvalid
from .demands import OwnersDemands, anchored
from .documents import Document, check, fault, quoted
from .naming import PLUGIN_ID

SETTINGS_NAME = "bascule.yaml"

_BELOW = {"startup_seconds": "startup_seconds_max", "tool_seconds": "tool_seconds_max", "result_bytes": "message_bytes"}
"""Limits that must not be above others."""


def _limits(value: Any, validated: Callable[[Any], Limits]) -> Limits:
    """Lay what the file says over the defaults; a default gives way where it would stand above its lowered bound."""
    limits = validated(value)
    for name, bound in _BELOW.items():
        most = getattr(limits, bound)
        if getattr(limits, name) > most and isinstance(value, dict) and name in value:
            problem = f"must not be above limits.{bound}, which is {most:.12g}"
            raise fault(problem, f"lower it, or raise limits.{bound}", at=(name,))
        limits = replace(limits, **{name: min(getattr(limits, name), most)})
    return limits


def _absolute(path: Path) -> Path:
    """Refuse a relative path. An absolute one is not resolved: a virtual environment is found by its link."""
    if path.is_absolute():
        return path
    raise fault(f"{quoted(str(path))} is not absolute", "write the whole path of the executable, from / on")


_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Path = Annotated[Path, BeforeValidator(anchored)]


class Settings(BaseModel):
    """``bascule.yaml``, validated; everything has a default.

    ``plugins`` holds the sections of the hook plugins as they stand in the file; :meth:`section` validates one.
    """

    model_config = {"extra": "forbid", "frozen": True}

    environment: Literal["production", "development"] = "production"
    state: _Path | None = None
    plugin_roots: tuple[_Path, ...] = ()
    approvals: _Path | None = None
    allowed_signers: _Path | None = None
    require_signature: bool = False
    launcher: _Name = "auto"
    launchers: dict[Annotated[str, Field(pattern=f"^{PLUGIN_ID.pattern}$")], _Name] = {}
    allow_untested_launchers: bool = False
    isolation: dict[Annotated[str, Field(pattern=f"^{PLUGIN_ID.pattern}$")], OwnersDemands] = {}
    http_server: _Name = "auto"
    executables: dict[Annotated[str, Field(pattern="^[^/]+$")], Annotated[Path, AfterValidator(_absolute)]] = {}
    limits: Annotated[Limits, WrapValidator(_limits)] = Limits()
    disabled_hook_plugins: tuple[_Name, ...] = ()
    required_hook_plugins: tuple[_Name, ...] = ()
    plugins: dict[_Name, dict[str, Any] | None] = Field(default={}, repr=False)

    _document: Document = PrivateAttr(default=Document(Path(SETTINGS_NAME)))

    @classmethod
    def load(cls, path: Path | None = None) -> Settings:
        """Read ``path``, or ``bascule.yaml`` in the working directory where there is one.

        Raises ``SettingsInvalid`` with every problem at once; a ``path`` that was asked for must exist.
        """
        if path is None and not os.path.lexists(SETTINGS_NAME):
            return cls()
        from .yaml_source import read

        document = read((path or Path(SETTINGS_NAME)).absolute())
        # a heading whose entries are all commented out is nothing
        data = {key: value for key, value in document.data.items() if value is not None or key not in cls.model_fields}
        settings = _checked(cls, data, document, context=document.path.parent)
        settings._document = document
        return settings

    @property
    def path(self) -> Path | None:
        """The file that these settings were read from."""
        return self._document.path if self._document.digest else None

    def where(self, *keys: str | int) -> str | None:
        """Say where ``keys`` stand, as ``file:line``."""
        return f"{self._document.path}:{line}" if (line := self._document.line(keys)) else None

    def section(self, name: str, model: type[SectionT]) -> SectionT:
        """Return the section of the hook plugin ``name``, validated; an absent one is an empty one.

        Raises ``SettingsInvalid``.
        """
        return _checked(model, self.plugins.get(name) or {}, self._document, at=("plugins", name))

    def with_(self, **changes: object) -> Settings:
        """Return these settings with some replaced, such as ``state`` by ``--state``; judged like the file's.

        Raises ``SettingsInvalid``.
        """
        command_line = Document(Path("command line"), lines={(name,): 0 for name in changes})
        settings = _checked(Settings, {**dict(self), **changes}, command_line)
        settings._document = self._document
        return settings


def _checked(model: type[SectionT], data: dict[str, Any], document: Document, **more: Any) -> SectionT:
    """Validate. Raises ``SettingsInvalid``."""
    value, problems = check(model, data, document, **more)
    if value is None:
        message, where, hint = document.summary(problems)
        raise SettingsInvalid(message, where=where, hint=hint)
    return value


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

    @property
    def plugin_roots(self) -> tuple[Path, ...]:
        return self.settings.plugin_roots

    def section(self, model: type[SectionT]) -> SectionT:
        return self.settings.section(self.name, model)
