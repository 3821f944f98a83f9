"""What every test may use: the fixtures' folders, settings in a folder of their own, and a bridge on them."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from command_line import PROGRAM, CommandLine, environment_of_commands
from warm_commands import WarmCommands

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.core.store import Store
from bascule.core.tokens import Tokens
from bascule.hookspecs.kit import free_port

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ECHO = FIXTURES / "mcp-echo"
VARIANTS = FIXTURES / "variants"
HOOK_PLUGINS = FIXTURES / "hook-plugins"

Host = Callable[..., AbstractAsyncContextManager[Bridge]]

Until = Callable[..., Awaitable[None]]

_TEST_SECONDS = 100.0


def pytest_collection_finish() -> None:
    """Leave thousands of tests and modules out of every later collection: those that ask for one took half a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own; a task that it leaves behind fails it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def scenario() -> None:
        async with asyncio.timeout(_seconds_of(pyfuncitem)):
            await pyfuncitem.obj(**arguments)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"

    asyncio.run(scenario())
    return True


def _seconds_of(item: pytest.Function) -> float:
    """A test that is marked to take longer may."""
    marker = item.get_closest_marker("timeout")
    return max(_TEST_SECONDS, float(marker.args[0]) - 20 if marker and marker.args else 0)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that has no event of its own; bounded."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture(name="until")
def until_() -> Until:
    """Waits, with a bound, for something that has no event of its own."""
    return until


@pytest.fixture
def echo() -> Path:
    """The fixture plugin `mcp-fixture`."""
    return ECHO


@pytest.fixture
def variant() -> Callable[[str], Path]:
    """The folder of a hostile variant, by name; its plugin is called `fx-NAME`."""
    return lambda name: VARIANTS / name


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings in environment development with a state directory of the test's own.

    `python3` is bound to this interpreter: what PATH has may be a shim that takes its time.
    """
    return Settings.load(None).with_(
        environment="development", state=tmp_path / "state", executables={"python3": Path(sys.executable)}
    )


@pytest.fixture
def host(settings: Settings) -> Host:
    """Opens a bridge that hosts the given plugin folders with all permissions, and has settled."""

    @asynccontextmanager
    async def opened(*plugins: Path, use: Settings | None = None, grant: bool = True) -> AsyncIterator[Bridge]:
        async with Bridge(use or settings, plugins=plugins, grant=grant, remember=False) as bridge:
            await bridge.settled()
            yield bridge

    return opened


Approve = Callable[..., Awaitable[None]]


@pytest.fixture
def approve() -> Approve:
    """Answers both questions about a plugin with yes, and grants all that it asks for."""

    async def yes(bridge: Bridge, plugin_id: str = "mcp-fixture", *, unsandboxed: bool = True) -> None:
        view = await bridge.plugins.approval(plugin_id)
        view = await bridge.plugins.approve(plugin_id, view.digest, unsandboxed=unsandboxed)
        view = await bridge.plugins.approve(plugin_id, view.digest)
        assert not view.pending
        await bridge.plugins.grant(plugin_id, view.permissions)

    return yes


@pytest.fixture
def plugin_copy(tmp_path: Path) -> Callable[..., Path]:
    """Copies a fixture plugin into the test's own folder and edits its manifest."""

    def copied(source: Path, edit: Callable[[dict[str, object]], None] | None = None, name: str = "plugin") -> Path:
        target = tmp_path / name
        shutil.copytree(source, target)
        if edit is not None:
            manifest = yaml.safe_load((target / "plugin.yaml").read_text())
            edit(manifest)
            (target / "plugin.yaml").write_text(yaml.safe_dump(manifest))
        return target

    return copied


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets: their paths hold some hundred bytes, and ``tmp_path`` is longer for some users."""
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp" if os.access("/tmp", os.W_OK) else None) as folder:
        yield Path(folder)


# --- the command line, as its users have it ---------------------------------------------------------------


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    """The tokens of a state directory of the test's own."""
    with Store.open(tmp_path / "state") as store:
        yield Tokens(store)


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands that tests run keep their bytecode: a checkout may be read-only, and they start faster.

    It is one folder for all workers of a run: the first command compiles for hundreds of others.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "bytecode"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def warm(bytecode: Path) -> Iterator[WarmCommands]:
    """What runs the commands that need no interpreter of their own."""
    commands = WarmCommands(PROGRAM, environment_of_commands(bytecode))
    yield commands
    commands.close()


@pytest.fixture
def bascule(tmp_path: Path, bytecode: Path, request: pytest.FixtureRequest) -> Iterator[CommandLine]:
    """Runs ``bascule`` as its users do: ``bascule("hooks", "--json").json``."""
    folder = tmp_path / "user"
    folder.mkdir()
    fresh = request.node.get_closest_marker("fresh") is not None or "BASCULE_FRESH" in os.environ
    fresh = fresh or not sys.platform.startswith("linux")  # others pass no files on, or don't fork safely
    command_line = CommandLine(folder, bytecode, None if fresh else request.getfixturevalue("warm"))
    yield command_line
    command_line.close()


# --- hook plugins of others -------------------------------------------------------------------------------


class Strangers:
    """A folder on the path that holds distributions of hook plugins, as an installer lays them down.

    Real packaging metadata (``*.dist-info`` with ``METADATA`` and ``entry_points.txt``) without a build, so that a
    test with a dozen of them takes no time. What an installer itself does is proved by one test that runs pip.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def install(self, *names: str) -> None:
        """Lay down distributions of ``fixtures/hook-plugins`` by their names."""
        for name in names:
            source = HOOK_PLUGINS / name
            project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            for module in source.glob("*.py"):
                shutil.copy(module, self.folder)
            self._register(project["name"], project["version"], project["entry-points"]["bascule.plugins"])

    def write(self, name: str, code: str, *, entry: str = "", version: str = "1.0.0") -> None:
        """Lay down a distribution with one module that holds ``code``; ``entry`` is its entry point's value."""
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(code, encoding="utf-8")
        self._register(name, version, {module: entry or module})

    def _register(self, name: str, version: str, points: Mapping[str, str]) -> None:
        metadata = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir(exist_ok=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = "".join(f"{point} = {value}\n" for point, value in points.items())
        (metadata / "entry_points.txt").write_text(f"[bascule.plugins]\n{lines}")

    def uninstall(self, name: str) -> None:
        for path in self.folder.glob(f"{name.replace('-', '_')}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        importlib.invalidate_caches()


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Strangers]:
    """Hook plugins of others, for bridges in this process and for the commands that the test runs."""
    installed = Strangers(tmp_path / "site")
    monkeypatch.syspath_prepend(str(installed.folder))
    if "bascule" in request.fixturenames:
        request.getfixturevalue("bascule").env["PYTHONPATH"] = str(installed.folder)
    yield installed
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{installed.folder}{os.sep}"):
            del sys.modules[name]


# --- the SSE server, really listening ---------------------------------------------------------------------


@dataclass(frozen=True)
class Served:
    """A bridge whose SSE server really listens. ``base`` is its address, without a path."""

    bridge: Bridge
    port: int

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture(params=["hypercorn", "uvicorn"])
def http_server(request: pytest.FixtureRequest) -> str:
    """Every HTTP server that runs our apps, one after the other."""
    pytest.importorskip(request.param)
    return str(request.param)


@pytest.fixture
def serve(settings: Settings, http_server: str) -> Serve:
    """Hosts the given plugin folders behind the SSE server; keywords are its section of the settings."""

    @asynccontextmanager
    async def opened(*plugins: Path, use: Settings | None = None, **section: object) -> AsyncIterator[Served]:
        port = free_port()
        changed = (use or settings).with_(
            http_server=http_server,
            plugins={"sse_server": {"port": port, **section}},
            disabled_hook_plugins=("quart_api",),
        )
        async with Bridge(changed, plugins=plugins, grant=True, remember=False) as bridge, bridge.serve() as names:
            assert names == ["sse"], bridge.failures
            await bridge.settled()
            assert not bridge.failures
            yield Served(bridge, port)

    return opened
