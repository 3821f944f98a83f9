"""Hosts servers that were not written here, each from its manifest, and sees that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from interop.environments import (
    FASTMCP4,
    NODE_SERVERS,
    PYTHON_SERVERS,
    SDK2,
    BuildFailed,
    Environment,
    Unavailable,
)

from bascule.core.bridge import Bridge
from bascule.core.runs import AgentRun
from bascule.core.settings import Settings
from bascule.hookspecs import PluginState, PluginView, ProgressListener, ToolResult

SERVERS = Path(__file__).with_name("servers")

PROGRAMS: Mapping[str, tuple[Environment, str]] = {
    "time": (PYTHON_SERVERS, "mcp-server-time"),
    "git": (PYTHON_SERVERS, "mcp-server-git"),
    "sqlite": (PYTHON_SERVERS, "mcp-server-sqlite"),
    "fetch": (PYTHON_SERVERS, "mcp-server-fetch"),
    "everything": (NODE_SERVERS, "mcp-server-everything"),
    "filesystem": (NODE_SERVERS, "mcp-server-filesystem"),
    "memory": (NODE_SERVERS, "mcp-server-memory"),
    "sequential-thinking": (NODE_SERVERS, "mcp-server-sequential-thinking"),
    "sdk1": (PYTHON_SERVERS, "python"),
    "sdk2": (SDK2, "python"),
    "fastmcp4": (FASTMCP4, "python"),
}
"""Which program of which environment the command in each plugin's manifest is bound to."""

_TURNS, _TURN_SECONDS = 200, 0.01


# --- environments -----------------------------------------------------------------------------------------

_MISSING = pytest.StashKey[dict[str, Exception]]()


def provide(environment: Environment, config: pytest.Config) -> None:
    """Build an environment once; where it can't be had, skip loudly, or fail where that was asked for."""
    missing = config.stash.setdefault(_MISSING, {})
    if environment.name not in missing:
        try:
            environment.provide(lambda text: _say(text, config))
            return
        except (BuildFailed, Unavailable) as error:
            missing[environment.name] = error
    error = missing[environment.name]
    if isinstance(error, BuildFailed):
        pytest.fail(str(error), pytrace=False)
    if os.environ.get("BASCULE_INTEROP_REQUIRED") == "1":
        pytest.fail(f"BASCULE_INTEROP_REQUIRED is set, but {error}", pytrace=False)
    pytest.skip(str(error))


def _say(text: str, config: pytest.Config) -> None:
    """Tell whoever watches, though a test's output is captured."""
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{text}", flush=True)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for error in config.stash.get(_MISSING, {}).values():
        terminalreporter.write_sep("!", "interop was NOT tried", yellow=True, bold=True)
        terminalreporter.write_line(str(error), yellow=True)


# --- hosting ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForeignPlugin:
    """A plugin's folder in the test's own folder, and what the bare name in its manifest is bound to."""

    id: str
    folder: Path
    manifest: dict[str, Any]
    executable: Path

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the manifest, as its owner might."""
        change(self.manifest)
        (self.folder / "plugin.yaml").write_text(yaml.safe_dump(self.manifest))


@dataclass(frozen=True, slots=True)
class Hosted:
    """An enabled plugin and an agent's run that may call it."""

    bridge: Bridge
    view: PluginView
    run: AgentRun

    async def call(self, tool: str, *, progress: ProgressListener | None = None, **arguments: Any) -> ToolResult:
        return await self.run.call(f"{self.view.plugin_id}.{tool}", arguments, progress=progress)


Install = Callable[[str], ForeignPlugin]
Hosting = Callable[[ForeignPlugin], AbstractAsyncContextManager[Hosted]]


@pytest.fixture
def install(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Copies a plugin's folder and sees that its server is installed; what the server writes lies in that folder."""

    def installed(name: str) -> ForeignPlugin:
        environment, program = PROGRAMS[name]
        provide(environment, request.config)
        folder = tmp_path / name
        shutil.copytree(SERVERS / name, folder)
        _prepare(name, folder)
        if name == "memory":
            monkeypatch.setenv("MEMORY_FILE_PATH", str(folder / "kept" / "memory.jsonl"))
        manifest = yaml.safe_load((folder / "plugin.yaml").read_text())
        return ForeignPlugin(name, folder, manifest, environment.program(program))

    return installed


@pytest.fixture
def plugin(request: pytest.FixtureRequest, install: Install) -> ForeignPlugin:
    """The plugin that the test's parameter names."""
    return install(request.param)


@pytest.fixture
def everyone(install: Install) -> list[ForeignPlugin]:
    """All of them."""
    return [install(name) for name in PROGRAMS]


def _prepare(name: str, folder: Path) -> None:
    """Lay beside the manifest what its arguments speak of."""
    if name == "filesystem":
        (folder / "files").mkdir()
    elif name in ("memory", "sqlite"):
        (folder / "kept").mkdir()
    elif name == "git":
        repository = folder / "repository"
        subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", repository], check=True)
        for setting in ("user.name=A tester", "user.email=tester@localhost", "commit.gpgsign=false"):
            subprocess.run(["git", "-C", repository, "config", *setting.split("=")], check=True)


@pytest.fixture
def hosted(settings: Settings) -> Hosting:
    """Enables a plugin with all that it asks for, opens a run, and disables it: then nothing of it may be left."""

    @asynccontextmanager
    async def opened(plugin: ForeignPlugin) -> AsyncIterator[Hosted]:
        bound = settings.with_(executables={plugin.manifest["backend"]["command"]: plugin.executable})
        async with Bridge(bound, remember=False) as bridge:
            installed = await bridge.plugins.install(plugin.folder, keep=False)
            await bridge.plugins.grant(plugin.id, installed.permissions)
            before = _Standing.of(plugin.folder)
            view = await bridge.plugins.enable(plugin.id)
            assert view.state is PluginState.READY
            assert set(view.tools) == declared(plugin)
            async with bridge.run("interop") as run:
                yield Hosted(bridge, view, run)
            view = await bridge.plugins.disable(plugin.id)
            assert (view.state, view.tools) == (PluginState.DISABLED, ())
            await before.again(plugin.folder)

    return opened


def declared(plugin: ForeignPlugin) -> set[str]:
    """The tools that the manifest declares."""
    entries = plugin.manifest["contributes"]["tools"]
    return {entry if isinstance(entry, str) else entry["id"] for entry in entries}


# --- what may be left -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Standing:
    """Processes, pipes and tasks at one moment."""

    processes: frozenset[str]
    pipes: frozenset[str]
    tasks: frozenset[asyncio.Task[Any]]

    @classmethod
    def of(cls, folder: Path) -> _Standing:
        return cls(_processes(folder), _pipes(), frozenset(asyncio.all_tasks()))

    async def again(self, folder: Path) -> None:
        """No process may be left at this very moment; to close a pipe takes the loop a turn or two."""
        assert _processes(folder) == self.processes
        for _ in range(_TURNS):
            if _pipes() == self.pipes:
                break
            await asyncio.sleep(_TURN_SECONDS)
        assert _pipes() == self.pipes
        assert asyncio.all_tasks() == self.tasks


def _processes(folder: Path) -> frozenset[str]:
    """Our children, and whoever works in ``folder``: a server's own children may have left the tree."""
    found = {process.pid: process for process in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder):
                found[process.pid] = process
    return frozenset(str(process) for process in found.values())


def _pipes() -> frozenset[str]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(descriptor)
            if target.startswith(("pipe:", "socket:", "anon_inode:[pidfd]")):
                found.add(f"{descriptor.name} {target}")
    return frozenset(found)
