"""What an owner approved runs, and nothing else (N6.10): outside development, at every start."""

from __future__ import annotations

import pytest

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import ApprovalOutdated, ApprovalState, PluginState, TrustApprovalRequired


@pytest.fixture
def production(settings: Settings) -> Settings:
    return settings.with_(environment="production")


@pytest.mark.req("N6.10", "N6.9")
async def test_two_questions_and_it_runs(production, echo):
    async with Bridge(production) as bridge:
        await bridge.plugins.install(echo)
        view = await bridge.plugins.approval("mcp-fixture")
        assert (view.state, view.pending, view.required) == (ApprovalState.NONE, True, True)
        assert view.command is not None
        assert view.command.argv[1:] == ("server.py",)
        with pytest.raises(TrustApprovalRequired):
            await bridge.plugins.enable("mcp-fixture")
        with pytest.raises(ApprovalOutdated, match="all your rights"):
            await bridge.plugins.approve("mcp-fixture", view.digest)
        view = await bridge.plugins.approve("mcp-fixture", view.digest, unsandboxed=True)
        assert len(view.tools) == 6
        with pytest.raises(TrustApprovalRequired, match="tools"):
            await bridge.plugins.enable("mcp-fixture")
        await bridge.plugins.approve("mcp-fixture", view.digest)
        await bridge.plugins.grant("mcp-fixture", view.permissions)
        enabled = await bridge.plugins.enable("mcp-fixture")
        assert enabled.state is PluginState.READY
        assert (enabled.approval, enabled.quarantined) == ("complete", ())
        async with bridge.run("test") as run:
            assert (await run.call("mcp-fixture.echo", {"message": "hello"})).output["message"] == "hello"


@pytest.mark.req("N6.10")
async def test_a_digest_that_was_not_shown_is_refused(production, echo):
    async with Bridge(production) as bridge:
        await bridge.plugins.install(echo)
        with pytest.raises(ApprovalOutdated):
            await bridge.plugins.approve("mcp-fixture", "0" * 64, unsandboxed=True)


@pytest.mark.req("N6.10")
async def test_a_changed_file_is_told_and_starts_nothing(production, echo, plugin_copy, approve):
    folder = plugin_copy(echo)
    async with Bridge(production) as bridge:
        await bridge.plugins.install(folder)
        await approve(bridge)
        with (folder / "server.py").open("a") as file:
            file.write("\n")
        with pytest.raises(TrustApprovalRequired) as refusal:
            await bridge.plugins.enable("mcp-fixture")
        assert refusal.value.difference == ('file changed: "server.py"',)
        assert bridge.plugins.get("mcp-fixture").approval == "changed"
