"""Runs commands in forks of one process that has imported Bascule: a process each, without the half second of a start.

A start costs forty times what most commands do, and the tests give a thousand of them. What a fork shares with a real
start is all that the tests look at: a process of its own, whose streams, environment, folder, signals, exit code and
last words at the interpreter's end are its own. What it does not share is what the interpreter reads when it starts
(``PYTHON*``, the locale) and that modules are imported when they are needed: whoever tests that says ``fresh``.

Run as a program, this is that process: it takes one command after another from a socket, and ends with it.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

# a process keeps these as they were when it started
_AT_THE_START = ("PYTHON", "LC_", "LANG", "TZ", "MALLOC", "LD_", "OPENSSL", "PYDANTIC")

# what our modules import when they need it
_LATE = (
    "concurrent.futures.thread",
    "jsonschema_rs",
    "rich.columns",
    "rich.console",
    "rich.table",
    "rich.text",
    "rich.tree",
)

_BYTECODE = "PYTHONPYCACHEPREFIX"  # what is installed has bytecode already: not all of it should be compiled first


class WarmCommands:
    """One process that has imported everything, and what it runs: one command at a time.

    ``env`` is the environment in which it starts. It begins with the first command.
    """

    def __init__(self, program: str, env: Mapping[str, str]) -> None:
        self._program = program
        self._env = dict(env)
        self._busy = threading.Lock()
        self._door: socket.socket | None = None

    def run(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, seconds: float, **options: Any
    ) -> subprocess.CompletedProcess[bytes] | None:
        """Run a command to its end, as `subprocess.run` does; ``None`` where only a start would be the same.

        Raises ``subprocess.TimeoutExpired``.
        """
        known = command[0] == self._program and not options.keys() - {"stdin", "stdout", "stderr", "input"}
        if not known or _at_the_start(env) != _at_the_start(self._env) or not self._busy.acquire(blocking=False):
            return None
        try:
            with _Streams(options) as streams:
                return self._run(command, {"argv": command, "env": dict(env), "cwd": str(cwd)}, streams, seconds)
        except BaseException:
            self.close()  # who knows what it is at
            raise
        finally:
            self._busy.release()

    def _run(
        self, command: Sequence[str], request: dict[str, Any], streams: _Streams, seconds: float
    ) -> subprocess.CompletedProcess[bytes]:
        end = time.monotonic() + seconds
        door = self._opened()
        text = json.dumps(request).encode()
        socket.send_fds(door, [len(text).to_bytes(4, "big")], streams.theirs)
        door.sendall(text)
        pid = int.from_bytes(_read(door, 4), "big")
        streams.begin()
        try:
            door.settimeout(max(0.0, end - time.monotonic()))
            code = int.from_bytes(_read(door, 4), "big", signed=True)
        except OSError as late:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, seconds) from late
        door.settimeout(None)
        out, err = streams.end(end)
        return subprocess.CompletedProcess(command, code, out, err)

    def close(self) -> None:
        """End the process, once what it runs has ended."""
        if self._door is not None:
            self._door.close()
            self._door = None

    def _opened(self) -> socket.socket:
        if self._door is None:
            self._door, theirs = socket.socketpair()
            with theirs:
                subprocess.run(
                    [sys.executable, __file__, str(theirs.fileno()), str(Path(self._program).parent)],
                    env={**self._env, "HOME": "/no/home/of/anyone", _BYTECODE: ""},  # a home read too early is seen
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    check=True,
                )
        return self._door


def _read(door: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = door.recv(count - len(data))
        assert more, "the process that runs the tests' commands has ended; its last words are on stderr"
        data += more
    return data


class _Streams:
    """A command's three streams, given and taken as by `subprocess.run`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._input: bytes | None = options.get("input")
        self._ours: list[int] = []
        self._opened: list[int] = []
        self._read: dict[int, list[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._write = -1
        reading = subprocess.PIPE if self._input is not None else options.get("stdin", subprocess.DEVNULL)
        self.theirs = [
            self._one(0, reading),
            self._one(1, options.get("stdout", subprocess.PIPE)),
            self._one(2, options.get("stderr", subprocess.PIPE)),
        ]

    def _one(self, number: int, wanted: Any) -> int:
        if wanted == subprocess.PIPE:
            reading, writing = os.pipe()
            theirs, ours = (reading, writing) if number == 0 else (writing, reading)
            self._opened.append(theirs)
            if number == 0:
                self._thread(self._feed, ours)
            else:
                self._read[number] = []
                self._thread(self._drain, ours, self._read[number])
            return theirs
        if wanted == subprocess.DEVNULL:
            self._opened.append(os.open(os.devnull, os.O_RDWR))
            return self._opened[-1]
        return wanted if isinstance(wanted, int) else int(wanted.fileno())

    def _thread(self, work: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))

    def _feed(self, ours: int) -> None:
        left = memoryview(self._input or b"")
        with open(ours, "wb", buffering=0) as pipe, suppress(BrokenPipeError):  # it need not read all of it
            while left:
                left = left[pipe.write(left) :]

    def _drain(self, ours: int, read: list[bytes]) -> None:
        with open(ours, "rb") as pipe:
            read.append(pipe.read())

    def begin(self) -> None:
        """The command has its ends now."""
        self._close()
        for thread in self._threads:
            thread.start()

    def end(self, end: float) -> tuple[bytes | None, bytes | None]:
        """What it wrote, once all who could write have ended, or by ``time.monotonic`` the time is over."""
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                raise subprocess.TimeoutExpired("a command that left its streams to another process", 0)
        out, err = (b"".join(self._read[number]) if number in self._read else None for number in (1, 2))
        return out, err

    def _close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()


def _at_the_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_THE_START)}


# --- the process that has imported everything -------------------------------------------------------------------


def _import_all() -> None:
    """Import what any command may need; nothing of it is used here."""
    import bascule

    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # as the command line does before it imports any of it
    for module in pkgutil.walk_packages(bascule.__path__, "bascule."):
        if "templates" not in module.name and "hookspecs.kit" not in module.name:
            with suppress(ImportError):  # what is missing here is missing in every command
                importlib.import_module(module.name)
    for name in _LATE:
        with suppress(ImportError):
            importlib.import_module(name)


def _next(door: socket.socket) -> dict[str, Any] | None:
    """The next command, its streams in place; in the process that is to run it. ``None`` is the end."""
    while True:
        length, streams, _, _ = socket.recv_fds(door, 4, 3)
        if not length:
            return None
        text = b""
        while len(text) < int.from_bytes(length, "big"):
            text += door.recv(1_048_576)
        pid = os.fork()
        if pid == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            request: dict[str, Any] = json.loads(text)
            return request
        for stream in streams:
            os.close(stream)
        door.sendall(pid.to_bytes(4, "big"))
        _, status = os.waitpid(pid, 0)
        with suppress(BrokenPipeError):  # it took too long
            door.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def _become(request: Mapping[str, Any]) -> None:
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.pycache_prefix = request["env"].get(_BYTECODE) or None
    sys.argv[:] = request["argv"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, before: TextIO) -> TextIO:
    """A standard stream as the interpreter opens it when it starts: it remembers whether it can seek, say."""
    buffer = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
    buffer.raw.name = before.name
    live = number == 2 or buffer.isatty()
    stream = io.TextIOWrapper(buffer, before.encoding, before.errors, newline="\n", line_buffering=live)
    stream.mode = before.mode
    return stream


def _main() -> None:
    if os.fork():
        os._exit(0)  # no child of the tests': some count those
    sys.path[0] = sys.argv[2]  # as it is for a script that stands there
    _import_all()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as door:
        request = _next(door)
    if request is not None:
        from bascule.core.cli import main

        _become(request)
        sys.exit(main())


if __name__ == "__main__":
    _main()
