"""What every test may use: the fixtures' folders, settings in a folder of their own, and a bridge on them."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from sse_client import free_port

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ECHO = FIXTURES / "mcp-echo"
VARIANTS = FIXTURES / "variants"

Host = Callable[..., AbstractAsyncContextManager[Bridge]]

Until = Callable[..., Awaitable[None]]

_TEST_SECONDS = 100.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own; a task that it leaves behind fails it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def scenario() -> None:
        async with asyncio.timeout(_TEST_SECONDS):
            await pyfuncitem.obj(**arguments)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"

    asyncio.run(scenario())
    return True


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
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
        changed = (use or settings).with_(http_server=http_server, plugins={"sse_server": {"port": port, **section}})
        async with Bridge(changed, plugins=plugins, grant=True, remember=False) as bridge, bridge.serve() as names:
            assert names == ["sse"], bridge.failures
            await bridge.settled()
            assert not bridge.failures
            yield Served(bridge, port)

    return opened
