"""What a hook plugin may know of the owner's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """The base of a hook plugin's own section in ``bascule.yaml``: unknown keys are errors, with a suggestion.

    Example::

        class TcpSettings(Section):
            connect_timeout_seconds: float = 5.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


SectionT = TypeVar("SectionT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds on everything that others send or do, in bytes, counts and seconds (``limits`` in the settings)."""

    message_bytes: int = 2 * 1024 * 1024
    result_bytes: int = 256 * 1024
    http_body_bytes: int = 4 * 1024 * 1024
    sse_event_bytes: int = 1024 * 1024 - 4096
    tools_per_plugin: int = 2_000
    list_pages: int = 100
    schema_bytes: int = 64 * 1024
    schema_depth: int = 32
    calls_per_host: int = 1_024
    calls_per_caller: int = 256
    startup_seconds: float = 30.0
    startup_seconds_max: float = 300.0
    tool_seconds: float = 30.0
    tool_seconds_max: float = 600.0
    progress_idle_seconds: float = 60.0
    check_seconds: float = 2.0
    confirm_seconds: float = 120.0
    shutdown_grace_seconds: float = 2.0
    write_queue_bytes: int = 4 * 1024 * 1024
    write_seconds: float = 2.0
    stderr_bytes: int = 64 * 1024
    notifications_per_second: int = 200
    notifications_burst: int = 2_000
    traces: int = 10_000
    trace_days: float = 30.0
    trace_detail_bytes: int = 16 * 1024
    parallel_starts: int = 8


class Config(Protocol):
    """Handed to each hook when the bridge is assembled; an implementation may leave it out of its arguments."""

    @property
    def environment(self) -> str:
        """``production`` or ``development``."""

    @property
    def state(self) -> Path:
        """The state directory; a hook plugin may keep files in ``state / "hook-plugins" / <its name>``."""

    @property
    def limits(self) -> Limits:
        """The bounds in force."""

    def section(self, model: type[SectionT]) -> SectionT:
        """Return this hook plugin's own section of ``plugins`` in ``bascule.yaml``, validated by ``model``.

        An absent section is an empty one. Raises ``SettingsInvalid`` that names file, key and cure.
        """
