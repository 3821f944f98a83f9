"""What becomes of a plugin, from its folder to its end: on real processes, from outside."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import (
    HostChanged,
    HostStatus,
    McpCapabilityMissing,
    McpProtocolError,
    McpToolInvalid,
    McpVersionUnsupported,
    PluginAlreadyInstalled,
    PluginContributionInvalid,
    PluginHostStartFailed,
    PluginHostUnavailable,
    PluginNotFound,
    PluginPermissionRequired,
    PluginPermissionUndeclared,
    PluginState,
    StateLocked,
    ToolNotFound,
    TrustApprovalRequired,
)

ECHO_TOOLS = ["echo", "environment", "exit", "fail", "large", "sleep"]


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


async def pid_of(bridge: Bridge, plugin: str = "mcp-fixture") -> int:
    async with bridge.run("test") as run:
        return int((await run.call(f"{plugin}.environment")).output["pid"])


@pytest.mark.req("N1.2", "N4.1.3", "N4.1.7", "N4.1.10", "N4.1.11", "N8.1")
async def test_an_enabled_plugin_is_ready_and_all_its_tools_stand_in_the_registry(host, echo):
    async with host(echo) as bridge:
        (view,) = bridge.plugins.list()
        assert view.state is PluginState.READY
        assert view.host.status is HostStatus.READY
        assert view.tools == tuple(f"mcp-fixture.{name}" for name in ECHO_TOOLS)
        assert (view.host.protocol_version, view.host.tools_count) == ("2025-11-25", 6)
        assert view.host.server_name
        assert view.host.started_at is not None
        assert view.host.error is None


@pytest.mark.req("N3.5")
async def test_installing_reads_the_manifest_and_starts_nothing(settings, echo):
    async with Bridge(settings) as bridge:
        view = await bridge.plugins.install(echo)
        assert view.state is PluginState.AWAITING_GRANTS
        assert view.permissions == ("notes.read", "tools.call")
        assert children() == []


@pytest.mark.req("N4.1.1", "N3.5")
async def test_enabling_without_grants_is_refused_and_starts_nothing(settings, echo):
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(echo)
        await bridge.plugins.grant("mcp-fixture", ["tools.call"])
        with pytest.raises(PluginPermissionRequired, match=r"notes\.read"):
            await bridge.plugins.enable("mcp-fixture")
        assert bridge.plugins.get("mcp-fixture").state is PluginState.AWAITING_GRANTS
        assert children() == []
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        assert (await bridge.plugins.enable("mcp-fixture")).state is PluginState.READY


async def test_a_grant_that_the_manifest_does_not_declare_is_refused(settings, echo):
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(echo)
        with pytest.raises(PluginPermissionUndeclared, match=r"files\.write"):
            await bridge.plugins.grant("mcp-fixture", ["files.write"])


@pytest.mark.req("N6.9", "N4.1.1")
async def test_outside_development_an_unsandboxed_server_is_refused_before_the_grants_are_looked_at(settings, echo):
    async with Bridge(settings.with_(environment="production", launcher="local")) as bridge:
        await bridge.plugins.install(echo)
        with pytest.raises(TrustApprovalRequired) as refusal:
            await bridge.plugins.enable("mcp-fixture")
        assert refusal.value.status == 403
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        with pytest.raises(TrustApprovalRequired):
            await bridge.plugins.enable("mcp-fixture")
        assert children() == []
        async with bridge.run("test") as run:
            assert await run.tools() == []


@pytest.mark.req("N4.2.4")
async def test_concurrent_enables_start_one_process(settings, echo):
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(echo)
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        views = await asyncio.gather(*(bridge.plugins.enable("mcp-fixture") for _ in range(10)))
        assert {view.state for view in views} == {PluginState.READY}
        assert len(children()) == 1


@pytest.mark.req("N4.2.1")
async def test_disabling_withdraws_the_tools_before_the_process_ends(settings, echo):
    async with Bridge(settings) as bridge, bridge.events() as events:
        await bridge.plugins.install(echo)
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        await bridge.plugins.enable("mcp-fixture")
        pid = await pid_of(bridge)
        seen: list[tuple[str, bool]] = []

        async def watch() -> None:
            async for event in events:
                if type(event).__name__ == "ToolsChanged" and not event.tools:
                    seen.append(("withdrawn", psutil.pid_exists(pid)))
                if isinstance(event, HostChanged) and event.plugin_state == "disabled" and seen:
                    seen.append(("disabled", psutil.pid_exists(pid)))
                    return

        watching = asyncio.create_task(watch())
        view = await bridge.plugins.disable("mcp-fixture")
        await watching
        assert (view.state, view.host.status) == (PluginState.DISABLED, HostStatus.STOPPED)
        assert seen == [("withdrawn", True), ("disabled", False)]


@pytest.mark.req("N4.2.1")
async def test_leaving_the_bridge_ends_every_server(host, echo, variant):
    async with host(echo, variant("ignore-eof-and-sigterm")):
        assert len(children()) == 2
    assert children() == []


@pytest.mark.req("N4.2.2", "N8.1", "N9")
async def test_a_server_that_exits_takes_its_tools_along_and_can_be_restarted(host, echo, until):
    async with host(echo) as bridge, bridge.run("test") as run:
        waiting = asyncio.create_task(run.call("mcp-fixture.sleep", {"seconds": 60}))
        await until(lambda: len(children()) == 1)
        with pytest.raises(PluginHostUnavailable):
            await run.call("mcp-fixture.exit", {"code": 7})
        with pytest.raises(PluginHostUnavailable) as lost:
            await waiting
        assert lost.value.diagnosis is None
        view = bridge.plugins.get("mcp-fixture")
        assert (view.state, view.host.status) == (PluginState.ERROR, HostStatus.UNHEALTHY)
        assert view.tools == ()
        assert view.host.error["code"] == "PLUGIN_HOST_UNAVAILABLE"
        assert "exit code 7" in view.host.error["message"]
        with pytest.raises(ToolNotFound):
            await run.call("mcp-fixture.echo", {"message": "gone"})
        view = await bridge.plugins.restart("mcp-fixture")
        assert view.host.status is HostStatus.READY
        assert (await run.call("mcp-fixture.echo", {"message": "back"})).output["message"] == "back"


@pytest.mark.req("N4.2.2")
async def test_a_server_killed_from_outside_fails_what_waits_at_once(host, echo):
    async with host(echo) as bridge, bridge.run("test") as run:
        pid = await pid_of(bridge)
        waiting = [asyncio.create_task(run.call("mcp-fixture.sleep", {"seconds": 60})) for _ in range(20)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(error) for error in done} <= {PluginHostUnavailable, ToolNotFound}
        assert bridge.plugins.get("mcp-fixture").host.status is HostStatus.UNHEALTHY


@pytest.mark.req("N7.4", "N9")
async def test_restart_is_for_a_running_or_failed_host_alone(settings, echo):
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(echo)
        with pytest.raises(PluginHostUnavailable) as awaiting:
            await bridge.plugins.restart("mcp-fixture")
        assert awaiting.value.status == 409
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        with pytest.raises(PluginHostUnavailable):
            await bridge.plugins.restart("mcp-fixture")
        await bridge.plugins.enable("mcp-fixture")
        await bridge.plugins.disable("mcp-fixture")
        with pytest.raises(PluginHostUnavailable):
            await bridge.plugins.restart("mcp-fixture")
        assert bridge.plugins.get("mcp-fixture").state is PluginState.DISABLED
        assert children() == []


async def test_a_restart_is_a_new_generation_of_the_host(host, echo):
    async with host(echo) as bridge:
        first = await pid_of(bridge)
        await bridge.plugins.restart("mcp-fixture")
        assert await pid_of(bridge) != first
        async with bridge.run("test") as run:
            await run.call("mcp-fixture.echo", {"message": "x"})
            (step,) = await run.trace()
        assert step.generation == 2


@pytest.mark.req("N4.2.3")
async def test_a_server_that_announces_other_tools_is_not_trusted_until_it_is_restarted(host, variant, until):
    async with host(variant("list-changed-burst")) as bridge, bridge.run("test") as run:
        plugin = "fx-list-changed-burst"
        await asyncio.gather(run.call(f"{plugin}.announce"), return_exceptions=True)
        await until(lambda: bridge.plugins.get(plugin).state is PluginState.ERROR)
        view = bridge.plugins.get(plugin)
        assert (view.host.status, view.tools, view.restart_allowed) == (HostStatus.UNHEALTHY, (), True)
        assert (await bridge.plugins.restart(plugin)).state is PluginState.READY


async def test_announcements_before_the_first_listing_are_part_of_the_start(host, variant):
    async with host(variant("list-changed-early")) as bridge:
        assert bridge.failures == {}
        assert bridge.plugins.list()[0].state is PluginState.READY


@pytest.mark.req("N4.1.5", "N8.3", "N9")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("no-tools-capability", McpCapabilityMissing),
        ("unknown-version", McpVersionUnsupported),
        ("invalid-initialize", McpProtocolError),
        ("invalid-initialize-number", McpProtocolError),
        ("invalid-initialize-text", McpProtocolError),
        ("invalid-initialize-capabilities", McpProtocolError),
        ("refused-initialize", McpProtocolError),
        ("invalid-schema", McpToolInvalid),
        ("duplicate-tools", McpToolInvalid),
        ("too-many-tools", McpToolInvalid),
        ("cursor-loop", McpProtocolError),
        ("endless-pages", McpProtocolError),
        ("endless-line-at-start", McpProtocolError),
        ("exit-at-start", PluginHostStartFailed),
        ("silent", PluginHostStartFailed),
        ("stdout-noise-strict", McpProtocolError),
        ("undeclared-tool", PluginContributionInvalid),
        ("missing-tool", PluginContributionInvalid),
    ],
)
async def test_a_start_that_fails_leaves_nothing_behind_and_says_why(host, variant, name, error):
    before = {process.pid for process in children()}
    async with host(variant(name)) as bridge:
        assert type(bridge.failures[f"fx-{name}"]) is error
        view = bridge.plugins.get(f"fx-{name}")
        assert (view.state, view.host.status, view.tools) == (PluginState.ERROR, HostStatus.ERROR, ())
        assert view.host.error["code"] == error.code
        assert {process.pid for process in children()} == before


async def test_a_server_that_dies_at_start_leaves_its_last_words_to_the_owner_alone(host, variant):
    async with host(variant("exit-at-start")) as bridge:
        failure = bridge.failures["fx-exit-at-start"]
        assert "exit code 3" in failure.message
        assert failure.diagnosis
        assert "diagnosis" not in bridge.plugins.get("fx-exit-at-start").host.error


@pytest.mark.req("N4.1.5")
async def test_an_older_revision_is_spoken_where_the_server_knows_no_newer(host, variant):
    async with host(variant("old-version")) as bridge, bridge.run("test") as run:
        assert bridge.plugins.list()[0].host.protocol_version == "2024-11-05"
        await run.call("fx-old-version.ping")


async def test_disabling_breaks_off_a_start_that_takes_long(settings, plugin_copy, variant, until):
    async with Bridge(settings, plugins=[variant("slow-start")], grant=True, remember=False) as bridge:
        await until(lambda: bridge.plugins.get("fx-slow-start").state is PluginState.ENABLING)
        await until(lambda: len(children()) == 1)
        view = await bridge.plugins.disable("fx-slow-start")
        assert view.state is PluginState.DISABLED
        assert children() == []


async def test_cancelling_an_enable_ends_its_child(settings, variant, until):
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(variant("slow-start"))
        await bridge.plugins.grant("fx-slow-start", bridge.plugins.get("fx-slow-start").permissions)
        enabling = asyncio.create_task(bridge.plugins.enable("fx-slow-start"))
        await until(lambda: len(children()) == 1)
        enabling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enabling
        assert children() == []
        assert bridge.plugins.get("fx-slow-start").state is PluginState.ERROR


async def test_one_slow_and_one_broken_plugin_do_not_hold_up_the_others(settings, echo, variant, plugin_copy, until):
    missing = plugin_copy(echo, lambda m: (m.update(id="absent"), m["backend"].update(command="no-such-program")))
    missing.joinpath("plugin.yaml").write_text(
        missing.joinpath("plugin.yaml").read_text().replace("mcp-fixture.", "absent.")
    )
    plugins = [variant("slow-start"), missing, echo]
    async with Bridge(settings, plugins=plugins, grant=True, remember=False) as bridge:
        await until(lambda: bridge.plugins.get("mcp-fixture").state is PluginState.READY)
        assert bridge.plugins.get("fx-slow-start").state is PluginState.ENABLING
        await until(lambda: "absent" in bridge.failures)
        assert bridge.failures["absent"].code == "EXTENSION_PACKAGE_NOT_FOUND"
        assert "slow-start" in str(bridge.readiness())


async def test_uninstalling_ends_the_host_and_forgets_the_plugin(settings, echo):
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(echo)
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        await bridge.plugins.enable("mcp-fixture")
        await bridge.plugins.uninstall("mcp-fixture")
        assert children() == []
        with pytest.raises(PluginNotFound):
            bridge.plugins.get("mcp-fixture")
        await bridge.plugins.install(echo)
        with pytest.raises(PluginAlreadyInstalled):
            await bridge.plugins.install(echo)


async def test_an_enabled_plugin_comes_back_with_the_bridge_and_a_changed_manifest_waits(settings, echo, plugin_copy):
    folder = plugin_copy(echo)
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(folder)
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        await bridge.plugins.enable("mcp-fixture")
    async with Bridge(settings) as bridge:
        await bridge.settled()
        assert bridge.plugins.get("mcp-fixture").state is PluginState.READY
    with (folder / "plugin.yaml").open("a") as manifest:
        manifest.write("# changed\n")
    async with Bridge(settings) as bridge:
        await bridge.settled()
        assert bridge.plugins.get("mcp-fixture").state is PluginState.AWAITING_GRANTS
        assert children() == []


async def test_taking_a_grant_away_from_an_enabled_plugin_disables_it(settings, echo):
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(echo)
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        await bridge.plugins.enable("mcp-fixture")
        view = await bridge.plugins.grant("mcp-fixture", ["tools.call"])
        assert view.state is PluginState.AWAITING_GRANTS
        assert children() == []


async def test_a_second_bridge_on_the_same_state_says_so_and_stops(settings: Settings, tmp_path: Path):
    async with Bridge(settings):
        with pytest.raises(StateLocked) as locked:
            async with Bridge(settings):
                pass
        assert locked.value.code == "STATE_LOCKED"


@pytest.mark.slow
@pytest.mark.parametrize("many", [40, pytest.param(200, marks=pytest.mark.soak)])
async def test_after_rounds_of_enable_and_disable_nothing_is_left(settings, echo, many):
    async with Bridge(settings) as bridge:
        await bridge.plugins.install(echo)
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])

        async def rounds(count: int) -> None:
            for _ in range(count):
                await bridge.plugins.enable("mcp-fixture")
                await bridge.plugins.disable("mcp-fixture")

        await rounds(5)
        us = psutil.Process()
        descriptors, tasks, threads = us.num_fds(), len(asyncio.all_tasks()), us.num_threads()
        await rounds(many)  # whatever even one of them leaves is seen
        assert children() == []
        assert us.num_fds() == descriptors
        assert len(asyncio.all_tasks()) == tasks
        assert us.num_threads() <= threads + 1
