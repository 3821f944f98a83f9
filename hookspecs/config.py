"""What a hook plugin may know of the owner's settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """The base of a hook plugin's own section in ``bascule.yaml``: unknown keys are errors, with a suggestion.

    Example::

        class TcpSettings(Section):
            connect_timeout_seconds: float = 5.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


SectionT = TypeVar("SectionT", bound=BaseModel)


_KIB = 1024
_MIB = 1024 * 1024


def _within(least: float, most: float) -> Any:
    return Field(strict=True, ge=least, le=most)


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds on everything that others send or do, in bytes, counts and seconds (``limits`` in the settings).

    Beside each default stand the least and the most that the owner may set it to: beyond them the bridge would not
    work, or not be bounded.
    """

    message_bytes: Annotated[int, _within(4 * _KIB, 64 * _MIB)] = 2 * _MIB
    result_bytes: Annotated[int, _within(1 * _KIB, 64 * _MIB)] = 256 * _KIB
    http_body_bytes: Annotated[int, _within(4 * _KIB, 64 * _MIB)] = 4 * _MIB
    sse_event_bytes: Annotated[int, _within(4 * _KIB, 64 * _MIB)] = _MIB - 4096
    tools_per_plugin: Annotated[int, _within(1, 20_000)] = 2_000
    list_pages: Annotated[int, _within(1, 10_000)] = 100
    schema_bytes: Annotated[int, _within(1 * _KIB, 4 * _MIB)] = 64 * _KIB
    schema_depth: Annotated[int, _within(4, 128)] = 32
    calls_per_host: Annotated[int, _within(1, 65_536)] = 1_024
    calls_per_caller: Annotated[int, _within(1, 65_536)] = 256
    startup_seconds: Annotated[float, _within(0.1, 3_600)] = 30.0
    startup_seconds_max: Annotated[float, _within(0.1, 3_600)] = 300.0
    tool_seconds: Annotated[float, _within(0.1, 86_400)] = 30.0
    tool_seconds_max: Annotated[float, _within(0.1, 86_400)] = 600.0
    progress_idle_seconds: Annotated[float, _within(0.1, 86_400)] = 60.0
    check_seconds: Annotated[float, _within(0.05, 60)] = 2.0
    confirm_seconds: Annotated[float, _within(1, 3_600)] = 120.0
    shutdown_grace_seconds: Annotated[float, _within(0, 60)] = 2.0
    write_queue_bytes: Annotated[int, _within(64 * _KIB, 256 * _MIB)] = 4 * _MIB
    write_seconds: Annotated[float, _within(0.05, 60)] = 2.0
    stderr_bytes: Annotated[int, _within(1 * _KIB, 4 * _MIB)] = 64 * _KIB
    notifications_per_second: Annotated[int, _within(1, 100_000)] = 200
    notifications_burst: Annotated[int, _within(1, 1_000_000)] = 2_000
    traces: Annotated[int, _within(1, 10_000_000)] = 10_000
    trace_days: Annotated[float, _within(0.01, 3_650)] = 30.0
    trace_detail_bytes: Annotated[int, _within(0, 1 * _MIB)] = 16 * _KIB
    run_idle_seconds: Annotated[float, _within(0.05, 2_592_000)] = 3_600.0
    runs_per_owner: Annotated[int, _within(1, 100_000)] = 1_000
    parallel_starts: Annotated[int, _within(1, 256)] = 8


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

    @property
    def plugin_roots(self) -> tuple[Path, ...]:
        """Below which directories plugins may be installed from afar."""

    def section(self, model: type[SectionT]) -> SectionT:
        """Return this hook plugin's own section of ``plugins`` in ``bascule.yaml``, validated by ``model``.

        An absent section is an empty one. Raises ``SettingsInvalid`` that names file, key and cure.
        """
