"""The package that a command runs, fetched once, at approval, into an environment of the plugin's own (N6.11).

It lies below the state directory, ``packages/PLUGIN/KEY``; ``pin.json`` is written last and says that it is whole. A
start takes the program from there, without an index. Nothing that a package brings runs while it is fetched: wheels
alone, and npm without install scripts. pip and npm check what they load against the index's hashes; ours say what came.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...hookspecs import PackageFetchFailed
from .runs import PackageRun
from .tree import file_sha256

MOST_BYTES = 1024**3
FETCH_SECONDS = 600.0
_POLL_SECONDS = 0.5
_WORDS = 2_000  # of what pip or npm said last
_ELSEWHERE = (
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "NODE_OPTIONS",
)
_QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "NO_UPDATE_NOTIFIER": "1"}


@dataclass(frozen=True, slots=True)
class Program:
    """What is started instead of ``uvx`` or ``npx``: ``executable`` is a path or a bare name (``node``)."""

    executable: str
    arguments: tuple[str, ...]
    root: Path


@dataclass(frozen=True, slots=True)
class Packages:
    """The fetched environments below ``root``."""

    root: Path

    def place(self, plugin_id: str, run: PackageRun) -> Path:
        """Where the environment is, or would be."""
        return self.root / plugin_id / run.key

    def pin(self, plugin_id: str, run: PackageRun) -> Mapping[str, Any] | None:
        """What was fetched, ``None`` where nothing was: names of files to their hashes, under ``files``."""
        try:
            pin = json.loads((self.place(plugin_id, run) / "pin.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return pin if isinstance(pin, dict) else None

    def program(self, plugin_id: str, run: PackageRun) -> Program:
        """The program in the fetched environment. Raises ``PackageFetchFailed`` where it holds none."""
        place = self.place(plugin_id, run)
        return _python_program(place, run) if run.kind == "pypi" else _node_program(place, run)

    def forget(self, plugin_id: str) -> None:
        """Remove every environment of the plugin."""
        shutil.rmtree(self.root / plugin_id, ignore_errors=True)

    async def fetch(self, plugin_id: str, run: PackageRun) -> None:
        """Fetch anew. Raises ``PackageFetchFailed``; then nothing of it is left."""
        place = self.place(plugin_id, run)
        await asyncio.to_thread(_clear, place)
        try:
            fetch = _fetch_python if run.kind == "pypi" else _fetch_node
            files = await fetch(place, run)
            self.program(plugin_id, run)
            pin = {"kind": run.kind, "packages": list(run.specs), "files": files}
            (place / "pin.json").write_text(json.dumps(pin, indent=1, sort_keys=True), encoding="utf-8")
        except OSError as error:
            _clear(place)
            raise PackageFetchFailed(f"the package can't be kept: {error.strerror}", where=str(place)) from error
        except BaseException:
            _clear(place)
            raise


def _clear(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o755, parents=True, exist_ok=True)


# --- PyPI -------------------------------------------------------------------------------------------------


async def _fetch_python(place: Path, run: PackageRun) -> dict[str, str]:
    env, wheels = place / "env", place / "wheels"
    python = str(_scripts(env) / "python")
    await _run([sys.executable, "-m", "venv", str(env)], place)
    pip = [python, "-m", "pip", "--quiet"]
    await _run([*pip, "download", "--only-binary", ":all:", "--dest", str(wheels), "--", *run.specs], place)
    found = sorted(wheels.iterdir())
    files = {wheel.name: f"sha256:{file_sha256(wheel)}" for wheel in found}
    await _run([*pip, "install", "--no-index", "--no-deps", *map(str, found)], place)
    spare = [name for name in ("setuptools", "pip") if not any(wheel.name.startswith(f"{name}-") for wheel in found)]
    await _run([*pip, "uninstall", "--yes", *spare], place)  # what is not there need not be looked at at every start
    shutil.rmtree(wheels)
    return files


def _scripts(env: Path) -> Path:
    return env / ("Scripts" if os.name == "nt" else "bin")


def _python_program(place: Path, run: PackageRun) -> Program:
    scripts = _scripts(place / "env")
    script = scripts / run.command
    if not script.is_file():
        raise _no_command(run, sorted(each.name for each in scripts.glob("*")))
    with script.open("rb") as file:
        written_in_python = file.read(2) == b"#!" and not run.command.startswith("python")
    if written_in_python:  # past its first line, which holds no blank and only so many characters
        return Program(str(scripts / "python"), (str(script), *run.arguments), place)
    return Program(str(script), run.arguments, place)


# --- npm --------------------------------------------------------------------------------------------------


async def _fetch_node(place: Path, run: PackageRun) -> dict[str, str]:
    npm = shutil.which("npm")
    if npm is None:
        raise PackageFetchFailed("npm is not on PATH", hint="install it: it fetches what npx would run")
    (place / "package.json").write_text('{"name": "fetched", "version": "0.0.0", "private": true}', encoding="utf-8")
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--save-exact", "--loglevel=error", "--global=false"]
    await _run([npm, "install", *flags, "--prefix", str(place), "--", *run.specs], place)
    lock = json.loads((place / "package-lock.json").read_text(encoding="utf-8"))
    listed = lock.get("packages", {})
    return {
        name.removeprefix("node_modules/"): str(entry.get("integrity") or "none")
        for name, entry in listed.items()
        if (name and not entry.get("optional")) or entry.get("integrity")
    }


def _node_program(place: Path, run: PackageRun) -> Program:
    name = run.packages[0][0]
    package = place / "node_modules" / name
    try:
        offered = json.loads((package / "package.json").read_text(encoding="utf-8")).get("bin") or {}
    except (OSError, ValueError) as error:
        raise _no_command(run, []) from error
    if isinstance(offered, str):
        offered = {name.rpartition("/")[2]: offered}
    wanted = run.command or (next(iter(offered), "") if len(offered) == 1 else name.rpartition("/")[2])
    script = (package / str(offered.get(wanted, "-"))).resolve()
    if wanted not in offered or not script.is_file() or not script.is_relative_to(place.resolve()):
        raise _no_command(run, sorted(map(str, offered)))
    return Program("node", (str(script), *run.arguments), place)


# --- both -------------------------------------------------------------------------------------------------


def _no_command(run: PackageRun, offered: Sequence[str]) -> PackageFetchFailed:
    wanted = repr(run.command) if run.command else "that is meant"
    return PackageFetchFailed(
        f"{run.specs[0]} has no command {wanted}",
        where="backend.args",
        hint=f"it has {', '.join(offered[:20]) or 'none'}",
    )


async def _run(argv: Sequence[str], place: Path) -> None:
    """Run one of our own steps, bounded in time and in what it leaves on the disk."""
    log = place / "log"
    env = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE} | _QUIET
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=place, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            problem = await _watch(process, place)
        finally:
            if process.returncode is None:
                _kill(process)
                await process.wait()
    said = log.read_bytes()[-_WORDS:].decode("utf-8", "replace").strip()
    log.unlink()
    if problem is not None or process.returncode:
        raise PackageFetchFailed(
            problem or f"{Path(argv[0]).name} could not fetch it (exit code {process.returncode})",
            hint="its last words are in the diagnosis",
            diagnosis=said or None,
        )


async def _watch(process: asyncio.subprocess.Process, place: Path) -> str | None:
    deadline = asyncio.get_running_loop().time() + FETCH_SECONDS
    waiter = asyncio.ensure_future(process.wait())
    try:
        while True:
            await asyncio.wait({waiter}, timeout=_POLL_SECONDS)
            if waiter.done():
                return None
            if asyncio.get_running_loop().time() > deadline:
                return f"it was not fetched within {FETCH_SECONDS:g} s"
            if await asyncio.to_thread(_size, place) > MOST_BYTES:
                return f"it is larger than {MOST_BYTES >> 20:,} MiB"
    finally:
        waiter.cancel()


def _size(place: Path) -> int:
    total = 0
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
