"""What a server inherits of the bridge: its three pipes and nothing else, on every event loop and launcher."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from sandbox import LAUNCHERS, hosting, need, reachable, settings_for
from scripted import Scripted, scripted

from bascule.core.settings import Settings
from bascule.hookspecs import CallError, PluginHostUnavailable, ToolCallTimeout

LISTS = """
def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True

OPEN = [fd for fd in range(1024) if is_open(fd)]
def call(*_): return text(json.dumps(OPEN))
"""

CLOSES = """
def call(*_):
    os.close(1)
    time.sleep(600)
"""

pytestmark = pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="NOT TESTED HERE: there is no /dev/fd")

Use = Callable[..., tuple[Scripted, Settings]]


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    if request.param == "asyncio":
        return asyncio.new_event_loop
    reason = "NOT TESTED HERE: uvloop is not installed (the extra fast)"
    factory: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip("uvloop", reason=reason).new_event_loop
    return factory


@pytest.fixture(params=["local", *LAUNCHERS])
def use(request: pytest.FixtureRequest) -> Iterator[Use]:
    name = request.param
    if name != "local":
        need(name)
    with reachable() as folder:
        settings = Settings(environment="development", launcher="local", state=folder / "state")

        def written(code: str, seconds: float = 120) -> tuple[Scripted, Settings]:
            code = f"def record(**_): ...\n{code}"  # its folder is read-only in a sandbox
            plugin = scripted(folder, code, startup_timeout_seconds=60, tool_timeout_seconds=seconds)
            return plugin, settings if name == "local" else settings_for(name, folder)

        yield written


def run(loop: Callable[[], asyncio.AbstractEventLoop], work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work)


def test_no_descriptor_that_the_bridge_was_left_reaches_a_server(loop, use):
    """An open directory is a way out of any sandbox."""
    plugin, settings = use(LISTS)
    directory = os.open("/", os.O_RDONLY)
    try:
        os.set_inheritable(directory, True)

        async def scenario() -> list[int]:
            async with hosting(settings, plugin.path) as bridge, bridge.run("agent") as agent:
                found: list[int] = json.loads((await agent.call("fx.do")).text)
                return found

        assert run(loop, scenario()) == [0, 1, 2]
    finally:
        os.close(directory)


def closes_its_output(loop, use, seconds: float) -> CallError:
    """What becomes of a call of whose server the output is closed while it lives on."""
    plugin, settings = use(CLOSES, seconds)

    async def scenario() -> CallError:
        async with hosting(settings, plugin.path) as bridge, bridge.run("agent") as agent:
            with pytest.raises(CallError) as caught:
                await agent.call("fx.do")
            return caught.value

    error: CallError = run(loop, scenario())
    return error


@pytest.mark.parametrize("use", [name for name in ("local", *LAUNCHERS) if name != "bubblewrap"], indirect=True)
def test_a_server_that_closes_its_output_and_lives_on_is_noticed(loop, use):
    """The call fails for what happened, long before its time is over."""
    error = closes_its_output(loop, use, 120)
    assert isinstance(error, PluginHostUnavailable)
    assert "closed its output" in str(error)


@pytest.mark.parametrize("use", [name for name in LAUNCHERS if name == "bubblewrap"], indirect=True)
def test_under_bubblewrap_only_the_calls_time_tells_that_its_server_closed_its_output(loop, use):
    """bubblewrap's own process in the sandbox holds the output, too."""
    assert isinstance(closes_its_output(loop, use, 1), ToolCallTimeout)
