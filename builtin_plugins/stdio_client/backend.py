"""What a manifest may say under ``backend`` for the transport ``stdio``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from ...hookspecs import Secret, Section, loads_code

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an environment variable; use letters, digits and _")
    if loads_code(name):
        raise ValueError(f"{name} makes a program load other code than was approved; remove it")
    return name


class StdioBackend(Section):
    """How the server is started. ``command`` and ``args`` reach it as an array; there is no shell (N3.2).

    ``env`` holds literal values; ``pass_env`` names host variables that the child may see. ``stdout``
    ``tolerant`` skips and counts lines that are not JSON, ``strict`` takes them for a fault.
    """

    command: Annotated[str, Field(min_length=1, max_length=4096)]
    args: Annotated[tuple[Annotated[str, Field(max_length=65_536)], ...], Field(max_length=1_000)] = ()
    env: Annotated[dict[str, Annotated[Secret, Field(max_length=65_536)]], Field(max_length=200, default_factory=dict)]
    pass_env: Annotated[tuple[str, ...], Field(max_length=200)] = ()
    stdout: Literal["strict", "tolerant"] = "strict"
    shutdown_grace_seconds: Annotated[float, Field(ge=0, le=30)] | None = None

    @field_validator("command", "args", mode="after")
    @classmethod
    def _no_nul(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if any("\0" in text for text in ((value,) if isinstance(value, str) else value)):
            raise ValueError("holds a NUL character, which no process can be given")
        return value

    @field_validator("env", mode="after")
    @classmethod
    def _env_is_harmless(cls, value: dict[str, Secret]) -> dict[str, Secret]:
        for name, text in value.items():
            _checked_name(name)
            if "\0" in text.reveal():
                raise ValueError(f"{name} holds a NUL character, which no environment can carry")
        return value

    @field_validator("pass_env", mode="after")
    @classmethod
    def _passed_names_are_harmless(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            _checked_name(name)
        return value
