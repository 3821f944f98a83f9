"""Isolation is part of what is approved: the tier that a launcher really gives, and what it lets a server do."""

from __future__ import annotations

import pytest
from sandbox import copied, need, reachable, settings_for

from bascule.core.bridge import Bridge
from bascule.hookspecs import PluginState, TrustApprovalRequired

PLUGIN = "mcp-fixture"

pytestmark = pytest.mark.req("N6.10", "N6.9")


@pytest.mark.parametrize(("launcher", "tier"), [("bubblewrap", "full"), ("landlock", "reduced")])
async def test_a_sandboxed_server_needs_no_express_yes_and_runs_outside_development(launcher, tier, approve):
    need(launcher)
    with reachable() as folder:
        (echo,) = copied(folder, "mcp-echo")
        async with Bridge(settings_for(launcher, folder, environment="production")) as bridge:
            await bridge.plugins.install(echo)
            view = await bridge.plugins.approval(PLUGIN)
            assert (view.tier, view.launcher) == (tier, launcher)
            assert view.isolation["network"] == "none"
            assert view.warnings == ()
            await approve(bridge, unsandboxed=False)
            assert (await bridge.plugins.enable(PLUGIN)).state is PluginState.READY
            async with bridge.run("test") as run:
                assert (await run.call(f"{PLUGIN}.echo", {"message": "x"})).output["message"] == "x"


WIDER = {
    "network": ({"network": "any"}, 'isolation network: "none" -> "any"'),
    "memory": ({"memory_mb": 4096}, "isolation memory_mb: 1024 -> 4096"),
    "reads": ({"readable": ["/var/tmp"]}, 'isolation readable: + "/var/tmp"'),
    "writes": ({"writable": ["data", "/var/tmp"]}, 'isolation writable: + "/var/tmp"'),
}


@pytest.mark.parametrize("what", WIDER)
async def test_an_owner_who_widens_it_says_yes_to_that(what, approve):
    need("bubblewrap")
    demands, named = WIDER[what]
    with reachable() as folder:
        (echo,) = copied(folder, "mcp-echo")
        settings = settings_for("bubblewrap", folder, environment="production")
        async with Bridge(settings) as bridge:
            await bridge.plugins.install(echo)
            await approve(bridge, unsandboxed=False)
        async with Bridge(settings.with_(isolation={PLUGIN: demands})) as bridge:
            with pytest.raises(TrustApprovalRequired) as refusal:
                await bridge.plugins.enable(PLUGIN)
            assert named in refusal.value.difference
            await approve(bridge, unsandboxed=False)
            assert (await bridge.plugins.enable(PLUGIN)).state is PluginState.READY


@pytest.mark.parametrize("other", ["landlock", "local"])
async def test_less_than_was_approved_is_not_silently_taken(other, approve):
    need("bubblewrap")
    if other == "landlock":
        need(other)
    with reachable() as folder:
        (echo,) = copied(folder, "mcp-echo")
        async with Bridge(settings_for("bubblewrap", folder, environment="production")) as bridge:
            await bridge.plugins.install(echo)
            await approve(bridge, unsandboxed=False)
        settings = settings_for("bubblewrap", folder, environment="production").with_(launcher=other)
        async with Bridge(settings) as bridge:
            with pytest.raises(TrustApprovalRequired) as refusal:
                await bridge.plugins.enable(PLUGIN)
            assert any(line.startswith("isolation tier: ") for line in refusal.value.difference)


async def test_what_a_server_writes_in_its_own_directory_is_its_data_and_no_change(approve):
    need("bubblewrap")
    with reachable() as folder:
        (echo,) = copied(folder, "mcp-echo")
        manifest = echo / "plugin.yaml"
        manifest.write_text(manifest.read_text() + "isolation: {writable: [notes]}\n")
        (echo / "notes").mkdir()
        async with Bridge(settings_for("bubblewrap", folder, environment="production")) as bridge:
            await bridge.plugins.install(echo)
            await approve(bridge, unsandboxed=False)
            (echo / "notes" / "today.txt").write_text("milk")
            assert (await bridge.plugins.enable(PLUGIN)).state is PluginState.READY
            await bridge.plugins.disable(PLUGIN)
            (echo / "code.py").write_text("1")
            with pytest.raises(TrustApprovalRequired, match=r"code\.py"):
                await bridge.plugins.enable(PLUGIN)
