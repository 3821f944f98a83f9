"""What is written down of a call, and how it travels from the event loop to the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

Detail = tuple[bytes, int]
"""The beginning of a JSON text, not redacted yet, and how many bytes the whole of it has."""

StartRow = tuple[
    str, str | None, str, str | None, int | None, float, bytes, str | None, str | None, str | None, Detail | None, Any
]
EndRow = tuple[
    str, str | None, float | None, float | None, float | None, float | None, Detail | None, Any, bool | None, str
]
Waiter = tuple["asyncio.Future[None]", str]
"""Who waits for a row to be there, and the row's id."""


class StepStart(msgspec.Struct, frozen=True, kw_only=True):
    """A call about to be sent; the fields are those of ``Step``.

    ``started_at`` is in seconds since 1970. ``arguments`` are encoded before ``open`` returns and may change then;
    ``arguments_bytes`` need not be given where they are.
    """

    id: str
    tool: str
    started_at: float
    run: str | None = None
    plugin: str | None = None
    generation: int | None = None
    caller: Mapping[str, Any] = {}
    decision: str | None = None
    decision_reason: str | None = None
    decision_rule: str | None = None
    arguments: Any = None
    arguments_bytes: int | None = None


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call; the fields are those of ``Step``, times in seconds. ``result`` is encoded at once."""

    outcome: str
    code: str | None = None
    queued: float | None = None
    validating: float | None = None
    upstream: float | None = None
    total: float | None = None
    result: Any = None
    result_bytes: int | None = None
    output_valid: bool | None = None


class Batch:
    """Rows that are written in one transaction: all that came in while the one before was written."""

    __slots__ = ("born", "ends", "run_ends", "runs", "starts", "waiters")

    def __init__(self) -> None:
        self.runs: list[tuple[Any, ...]] = []
        self.run_ends: list[tuple[Any, ...]] = []
        self.starts: list[StartRow] = []
        self.ends: list[EndRow] = []
        self.waiters: list[Waiter] = []
        self.born = 0.0

    def __bool__(self) -> bool:
        return bool(self.starts or self.ends or self.waiters or self.runs or self.run_ends)

    def follow(self, later: Batch) -> None:
        """Put the rows of ``later`` behind these."""
        self.runs += later.runs
        self.run_ends += later.run_ends
        self.starts += later.starts
        self.ends += later.ends
        self.waiters += later.waiters
        self.born = later.born

    def forget(self, ids: set[str]) -> None:
        """Drop the beginnings of these runs and steps: no one was told that they are there."""
        self.runs = [row for row in self.runs if row[0] not in ids]
        self.starts = [row for row in self.starts if row[0] not in ids]

    @property
    def detail_bytes(self) -> int:
        starts = sum(len(row[10][0]) for row in self.starts if row[10])
        return starts + sum(len(row[6][0]) for row in self.ends if row[6])
