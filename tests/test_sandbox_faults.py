"""Sandboxed servers that flood, break the protocol or will not end: the bridge and a neighbour take no harm."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from sandbox import LAUNCHERS, below, copied, hosting, need, reachable, settings_for

from bascule.builtin_plugins.sandbox import landlock
from bascule.hookspecs import BasculeError, CallError, PluginHostUnavailable, PluginState

MIB = 1024 * 1024
MOST_GROWTH = 16 * MIB
SOON = 60.0

FAULTS: Mapping[str, tuple[str, dict[str, Any]] | None] = {
    # floods
    "endless-line": None,
    "endless-line-at-start": None,
    "flood-stderr": ("ping", {}),
    "notification-flood": ("flood", {"count": 100_000, "method": "notifications/message"}),
    "stdout-noise-strict": None,
    "stdout-noise-tolerant": ("ping", {}),
    "never-reads-stdin": ("ping", {}),
    "list-changed-burst": None,
    # the protocol
    "answer-twice": ("twice", {}),
    "answer-unknown-id": ("stray", {}),
    "cursor-loop": None,
    "duplicate-tools": None,
    "endless-pages": None,
    "exit-at-start": None,
    "exit-mid-call": ("exit", {}),
    "invalid-initialize": None,
    "invalid-schema": None,
    "no-tools-capability": None,
    "server-requests": ("answers", {}),
    "unknown-version": None,
    # the end
    "ignore-eof-and-sigterm": ("pid", {}),
    "leave-grandchild": ("grandchild", {}),
    "setsid-grandchild": ("grandchild", {}),
    "slow-exit": None,
}


@pytest.fixture(params=sorted(LAUNCHERS))
def launcher(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


async def nothing_below(folder: Path) -> None:
    """Wait until no process of ``folder`` is left."""
    async with asyncio.timeout(SOON):
        while below(folder):
            await asyncio.sleep(0.05)


@pytest.mark.req("N6.10", "N4.2.1", "N4.2.2")
@pytest.mark.parametrize("fault", sorted(FAULTS))
async def test_a_fault_hurts_its_own_server_alone(launcher: str, fault: str) -> None:
    us = psutil.Process()
    with reachable() as folder:
        echo, variants = copied(folder, "mcp-echo", "variants")
        isolation = {f"fx-{fault}": {"readable": [variants]}}
        limits = {"startup_seconds": 20, "tool_seconds": 5, "shutdown_grace_seconds": 0.3}
        settings = settings_for(launcher, folder, isolation=isolation, limits=limits)
        async with hosting(settings, echo) as bridge, bridge.run("test") as run:
            assert not bridge.failures, bridge.failures
            gc.collect()
            memory, descriptors = us.memory_info().rss, us.num_fds()
            view = await bridge.plugins.install(variants / fault, keep=False)
            await bridge.plugins.grant(view.plugin_id, view.permissions)
            with suppress(BasculeError):
                await bridge.plugins.enable(view.plugin_id)
            if (call := FAULTS[fault]) is not None:
                assert bridge.plugins.get(view.plugin_id).state is PluginState.READY, bridge.plugins.why(view.plugin_id)
                with suppress(CallError):
                    await run.call(f"{view.plugin_id}.{call[0]}", call[1])
            for number in range(5):
                answer = await run.call("mcp-fixture.echo", {"message": str(number)})
                assert answer.output["message"] == str(number)
            await bridge.plugins.disable(view.plugin_id)
            await nothing_below(variants)
            gc.collect()
            assert us.memory_info().rss - memory < MOST_GROWTH
            assert us.num_fds() <= descriptors
        await nothing_below(folder)


@pytest.mark.req("N6.10", "N4.2.1")
@pytest.mark.parametrize("end", ["disable", "restart", "shutdown"])
async def test_daemons_end_with_their_server(launcher: str, end: str) -> None:
    with reachable() as folder:
        (plugin,) = copied(folder, "misdeeds")
        settings = settings_for(launcher, folder, limits={"shutdown_grace_seconds": 0.3})
        async with hosting(settings, plugin) as bridge:
            async with bridge.run("test") as run:
                assert (await run.call("fx-misdeeds.daemons")).output == {"started": 3}
            started = {process.pid for process in below(folder)}
            assert len(started) > 3
            if end == "disable":
                await bridge.plugins.disable("fx-misdeeds")
                await nothing_below(folder)
            elif end == "restart":
                await bridge.plugins.restart("fx-misdeeds")
                assert not started & {process.pid for process in below(folder)}
        await nothing_below(folder)


@pytest.mark.req("N6.10")
async def test_a_server_that_kills_all_it_can_kills_itself_alone(launcher: str) -> None:
    if launcher == "landlock" and landlock.version() < 6 and os.geteuid() != 0:
        pytest.skip("NOT TESTED HERE: this kernel's Landlock lets it signal every process of this user")
    with reachable() as folder:
        echo, plugin = copied(folder, "mcp-echo", "misdeeds")
        async with hosting(settings_for(launcher, folder), echo, plugin) as bridge, bridge.run("test") as run:
            with pytest.raises(PluginHostUnavailable):
                await run.call("fx-misdeeds.kill-everyone")
            assert (await run.call("mcp-fixture.echo", {"message": "x"})).output["message"] == "x"
            await bridge.plugins.restart("fx-misdeeds")
            assert (await run.call("fx-misdeeds.daemons")).output == {"started": 3}
        await nothing_below(folder)


async def test_where_the_supervisor_is_killed_the_server_goes_with_it(launcher: str) -> None:
    with reachable() as folder:
        (echo,) = copied(folder, "mcp-echo")
        async with hosting(settings_for(launcher, folder), echo) as bridge, bridge.run("test") as run:
            assert (await run.call("mcp-fixture.echo", {"message": "x"})).output["message"] == "x"
            servers = below(folder)
            (supervisor,) = {parent.pid for each in servers for parent in each.parents() if _supervises(parent)}
            os.kill(supervisor, signal.SIGKILL)
            await nothing_below(folder)
            with pytest.raises(CallError):
                await run.call("mcp-fixture.echo", {"message": "x"})
            await bridge.plugins.restart("mcp-fixture")
            assert (await run.call("mcp-fixture.echo", {"message": "x"})).output["message"] == "x"


def _supervises(process: psutil.Process) -> bool:
    return any(word.endswith("supervisor.py") for word in process.cmdline())
