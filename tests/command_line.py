"""The command line as its users have it: what runs ``bascule`` for tests, and what comes of it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warm_commands import WarmCommands

PROGRAM = str(Path(sys.executable).parent / "bascule")


def environment_of_commands(bytecode: Path) -> dict[str, str]:
    """All that a command of a test has in its environment, but its home."""
    return {
        "PATH": os.pathsep.join([str(Path(PROGRAM).parent), os.environ.get("PATH", os.defpath)]),
        "LANG": "C.UTF-8",
        "PYTHONWARNINGS": "error",
        "PYTHONPYCACHEPREFIX": str(bytecode),
    }


@dataclass(frozen=True)
class Outcome:
    """What a command left behind. ``json`` is its one document."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Running:
    """A command that runs; its stderr goes to a file, its stdout is read line by line."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self._errors = errors
        self._lines: queue.Queue[bytes] = queue.Queue()
        if process.stdout is not None:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def line(self, seconds: float = 60.0) -> str:
        """The next line of stdout; empty at its end."""
        return self._lines.get(timeout=seconds).decode()

    def until(self, *words: str) -> str:
        """The next line of stdout that holds all ``words``."""
        while line := self.line():
            if all(word in line for word in words):
                return line
        raise AssertionError(f"it ended without {words}: {self.err}")

    @property
    def err(self) -> str:
        return self._errors.read_text(encoding="utf-8", errors="replace")

    def ended(self, number: int | None = None, seconds: float = 60.0) -> Outcome:
        """Send signal ``number``, wait for the end and say what came of it."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(seconds)
        rest = []
        while self.process.stdout is not None and (line := self._lines.get(timeout=seconds)):
            rest.append(line)
        return checked(Outcome(code, b"".join(rest).decode(), self.err))


def checked(outcome: Outcome) -> Outcome:
    """Nobody ever sees a traceback, nor what Python says of a stream that broke at exit."""
    for line in (outcome.out + outcome.err).splitlines():
        assert not line.startswith(("Traceback", "Exception ignored", "Task exception")), outcome.err
    return outcome


class CommandLine:
    """The console script ``bascule`` of this environment, in a folder and a home of the test's own.

    ``env`` is the whole environment of what it runs; warnings are errors there, too.
    """

    def __init__(self, folder: Path, bytecode: Path, warm: WarmCommands | None = None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.state = self.home / ".local" / "state" / "bascule"
        self.home.mkdir()
        self._warm = warm
        self._started: list[subprocess.Popen[bytes]] = []
        self.program = [PROGRAM]
        self.env = {**environment_of_commands(bytecode), "HOME": str(self.home)}

    def __call__(self, *arguments: str | Path, seconds: float = 60.0, **options: Any) -> Outcome:
        """Run a command to its end. ``env`` adds variables, ``None`` takes one away; ``input`` is text.

        It runs in a fork of a process that has imported Bascule, where that is the same; see `warm_commands`.
        """
        if "input" in options:
            options["input"] = options["input"].encode()
        else:
            options.setdefault("stdin", subprocess.DEVNULL)
        command = [*self.program, *map(str, arguments)]
        env = self.environment(options.pop("env", {}))
        run = None
        if self._warm is not None:
            run = self._warm.run(command, env=env, cwd=self.folder, seconds=seconds, **options)
        if run is None:
            options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
            run = subprocess.run(command, env=env, cwd=self.folder, timeout=seconds, check=False, **options)
        return checked(Outcome(run.returncode, (run.stdout or b"").decode(), (run.stderr or b"").decode()))

    def start(self, *arguments: str | Path, **options: Any) -> Running:
        """Start a command; whatever still runs when the test is over is killed with its group."""
        errors = self.folder / f"stderr-{len(self._started)}"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [*self.program, *map(str, arguments)],
                env=self.environment(options.pop("env", {})),
                cwd=self.folder,
                stdin=options.pop("stdin", subprocess.DEVNULL),
                stdout=options.pop("stdout", subprocess.PIPE),
                stderr=options.pop("stderr", file),
                start_new_session=True,
                **options,
            )
        self._started.append(process)
        return Running(process, errors)

    def environment(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        return {name: value for name, value in {**self.env, **changes}.items() if value is not None}

    def settings(self, text: str) -> Path:
        """Write ``bascule.yaml`` where every command finds it."""
        path = self.folder / "bascule.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):  # what was not written yet
                        stream.close()
