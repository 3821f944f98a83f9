"""Bascule as its owner runs it, a process of its own, for clients that were not written here."""

from __future__ import annotations

import subprocess
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from bascule.hookspecs.kit import free_port

ROOT = Path(__file__).resolve().parents[2]

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


@dataclass(slots=True)
class Served:
    """A bridge that serves: what it has said on stdout so far, and on stderr (``log``)."""

    port: int
    state: Path
    said: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/sse"

    @property
    def rest(self) -> str:
        """Where the REST API is, if that is the way in."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The owner's."""
        return (self.state / "owner.token").read_text().strip()

    def everything(self) -> str:
        return "".join(self.said + self.log)


@contextmanager
def served(
    folder: Path, plugin: Path, section: Mapping[str, Any], *, way: str = "sse_server", **settings: Any
) -> Iterator[Served]:
    """Run ``bascule serve`` for one plugin, with one way in; on the way out it must end in order, and by itself."""
    port = free_port()
    config = folder / "bascule.yaml"
    others = sorted({"sse_server", "quart_api"} - {way})
    ways = {"disabled_hook_plugins": others, "plugins": {way: {"port": port, **section}}}
    config.write_text(yaml.safe_dump({**ways, **settings}))
    bascule = Path(sysconfig.get_path("scripts"), "bascule")
    arguments = ["serve", "-v", "--dev", "--plugin", plugin, "--config", config, "--state", folder / "state"]
    process = subprocess.Popen(
        [bascule, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    bridge = Served(port, folder / "state")
    serving = threading.Event()
    readers = [
        threading.Thread(target=_read, args=(process.stdout, bridge.said, serving)),
        threading.Thread(target=_read, args=(process.stderr, bridge.log, None)),
    ]
    for reader in readers:
        reader.start()
    try:
        assert serving.wait(_START_SECONDS), bridge.everything()
        assert process.poll() is None, bridge.everything()
        yield bridge
        process.terminate()
        assert process.wait(_STOP_SECONDS) == 0, bridge.everything()
    finally:
        process.kill()
        process.wait()
        for reader in readers:
            reader.join()


def _read(stream: IO[str], lines: list[str], serving: threading.Event | None) -> None:
    """Keep what a process says; tell when it serves, or when it will say nothing more."""
    with stream:
        for line in stream:
            lines.append(line)
            if serving is not None and line.startswith("serving "):
                serving.set()
    if serving is not None:
        serving.set()
