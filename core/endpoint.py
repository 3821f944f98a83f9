"""Where a running bridge answers: ``<state>/bridge.json``, written when its REST API is open, gone when it is closed.

The file is the owner's alone (0600). One that a killed bridge left is recognised by the lock of the state directory,
which the system frees.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..hookspecs.errors import StateUnavailable

ENDPOINT_NAME = "bridge.json"
_MOST_BYTES = 64 * 1024


class Endpoint:
    """The file of one bridge, which holds the state directory's lock; a context that leaves none behind."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ENDPOINT_NAME
        self._announced = False

    def announce(self, url: str) -> None:
        """Say that the REST API answers at ``url``, or by an empty one that there is none.

        Raises ``StateUnavailable``.
        """
        self._announced = True
        started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        write_private(self._path, json.dumps({"pid": os.getpid(), "url": url, "started": started}) + "\n")

    def all_open(self) -> None:
        """Every way in is open: where no API has announced itself by now there is none. Raises ``StateUnavailable``."""
        if not self._announced:
            self.announce("")

    def __enter__(self) -> Self:
        self._remove()  # a killed bridge's
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Found:
    """What the file says; ``url`` is empty where the bridge has no API."""

    pid: int
    url: str
    started: str


def find(directory: Path) -> Found | None:
    """Read the file; ``None`` where there is none, or one that is no such document."""
    try:
        with (directory / ENDPOINT_NAME).open("rb") as file:
            value: Any = json.loads(file.read(_MOST_BYTES))
        return Found(int(value["pid"]), str(value["url"]), str(value["started"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_private(path: Path, text: str) -> None:
    """Replace the file at ``path`` at once, for this user alone; raises ``StateUnavailable``."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise StateUnavailable(
            f"can't be written: {error.strerror or error}",
            where=str(path),
            hint="make the directory writable for this user, or use another with --state",
        ) from error
