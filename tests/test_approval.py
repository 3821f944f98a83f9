"""What an owner approved runs, and nothing else (N6.10): outside development, at every start."""

from __future__ import annotations

import pytest

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import ApprovalOutdated, ApprovalState, PluginState, SettingsInvalid, TrustApprovalRequired


@pytest.fixture
def production(settings: Settings) -> Settings:
    return settings.with_(environment="production", launcher="local")


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


# --- approvals in a reviewed file -------------------------------------------------------------------------


@pytest.mark.req("N6.10")
async def test_a_host_with_a_reviewed_file_runs_what_stands_there_and_nothing_else(
    production, echo, plugin_copy, approve, tmp_path
):
    folder = plugin_copy(echo)
    reviewed = production.with_(approvals=str(tmp_path / "approvals.yaml"))
    async with Bridge(reviewed) as bridge:
        await bridge.plugins.install(folder)
        await approve(bridge)
    other = reviewed.with_(state=str(tmp_path / "another machine"))
    async with Bridge(other) as bridge:
        view = await bridge.plugins.install(folder)
        assert view.granted == view.permissions
        assert (await bridge.plugins.enable("mcp-fixture")).state is PluginState.READY
    text = (tmp_path / "approvals.yaml").read_text()
    assert "Returns the message, and all arguments exactly as they arrived." in text
    assert '"sha256": ' not in text
    assert text.isascii()
    (tmp_path / "approvals.yaml").write_text(text.replace("exactly as they arrived", "as they are"))
    async with Bridge(other) as bridge:
        await bridge.plugins.install(folder, keep=False) if not bridge.plugins.list() else None
        view = await bridge.plugins.enable("mcp-fixture")
        assert view.quarantined == ("mcp-fixture.echo",)
    (tmp_path / "approvals.yaml").unlink()
    async with Bridge(other) as bridge:
        with pytest.raises(TrustApprovalRequired):
            await bridge.plugins.enable("mcp-fixture")


@pytest.mark.parametrize(
    "entry",
    [
        "just text",
        "{command: 1}",
        "{command: {}, approved_at: never}",
        "{command: {}, approved_at: 2026-01-01, approved: {tools: {a: b}}}",
    ],
)
async def test_an_entry_that_nobody_could_have_approved_is_told(production, echo, tmp_path, entry):
    (tmp_path / "approvals.yaml").write_text(f"mcp-fixture: {entry}\n")
    async with Bridge(production.with_(approvals=str(tmp_path / "approvals.yaml"))) as bridge:
        with pytest.raises(SettingsInvalid, match="no approval"):
            await bridge.plugins.install(echo)
