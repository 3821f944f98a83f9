"""What an owner approved runs, and nothing else (N6.10): outside development, at every start."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.core.trust import reviewed
from bascule.hookspecs import (
    ApprovalOutdated,
    ApprovalState,
    PluginContributionInvalid,
    PluginHostUnavailable,
    PluginState,
    SettingsInvalid,
    StateUnavailable,
    TrustApprovalRequired,
)


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
    committed = production.with_(approvals=str(tmp_path / "approvals.yaml"))
    async with Bridge(committed) as bridge:
        await bridge.plugins.install(folder)
        await approve(bridge)
    other = committed.with_(state=str(tmp_path / "another machine"))
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


async def test_no_more_is_written_than_can_be_read_again(production, echo, tmp_path, monkeypatch):
    async with Bridge(production.with_(approvals=str(tmp_path / "approvals.yaml"))) as bridge:
        await bridge.plugins.install(echo)
        view = await bridge.plugins.approval("mcp-fixture")
        view = await bridge.plugins.approve("mcp-fixture", view.digest, unsandboxed=True)
        written = (tmp_path / "approvals.yaml").read_bytes()
        monkeypatch.setattr(reviewed, "MOST_BYTES", len(written))
        with pytest.raises(StateUnavailable, match=f"of which {len(written):,} are read"):
            await bridge.plugins.approve("mcp-fixture", view.digest)
    assert (tmp_path / "approvals.yaml").read_bytes() == written
    assert [each.name for each in tmp_path.glob("*approvals*")] == ["approvals.yaml"]


@pytest.mark.req("N6.10")
async def test_what_is_uninstalled_is_approved_no_more(production, echo, approve):
    async with Bridge(production) as bridge:
        await bridge.plugins.install(echo)
        await approve(bridge)
        fetched = production.state / "packages" / "mcp-fixture" / "0" / "code.py"
        fetched.parent.mkdir(parents=True)
        fetched.write_text("")
        await bridge.plugins.uninstall("mcp-fixture")
        assert not fetched.parent.parent.exists()
        await bridge.plugins.install(echo)
        assert (await bridge.plugins.approval("mcp-fixture")).state is ApprovalState.NONE
        with pytest.raises(TrustApprovalRequired, match="has not been approved"):
            await bridge.plugins.enable("mcp-fixture")


@pytest.mark.req("N6.10")
async def test_development_asks_for_nothing_and_measures_by_the_manifest_alone(settings, variant, until):
    async with Bridge(settings, plugins=[variant("list-changed-burst")], grant=True, remember=False) as bridge:
        await bridge.settled()
        view = await bridge.plugins.approval("fx-list-changed-burst")
        assert (view.required, view.state) == (False, ApprovalState.NONE)
        async with bridge.run("test") as run:
            with suppress(PluginHostUnavailable):  # the answer may be on its way when the server is given up
                await run.call("fx-list-changed-burst.announce", {"change": True})
        await until(lambda: bridge.plugins.get("fx-list-changed-burst").state is PluginState.ERROR, 60)


@pytest.mark.req("N6.10", "N4.1.9")
async def test_the_one_start_before_an_approval_demands_exactly_what_the_manifest_declares(production, variant):
    async with Bridge(production) as bridge:
        await bridge.plugins.install(variant("undeclared-tool"))
        view = await bridge.plugins.approval("fx-undeclared-tool")
        with pytest.raises(PluginContributionInvalid, match="extra"):
            await bridge.plugins.approve("fx-undeclared-tool", view.digest, unsandboxed=True)
        assert (await bridge.plugins.approval("fx-undeclared-tool")).state is ApprovalState.NONE


@pytest.mark.req("N6.10")
async def test_the_one_start_grants_calls_and_registers_nothing(production, echo):
    async with Bridge(production) as bridge:
        await bridge.plugins.install(echo)
        view = await bridge.plugins.approval("mcp-fixture")
        await bridge.plugins.approve("mcp-fixture", view.digest, unsandboxed=True)
        after = bridge.plugins.get("mcp-fixture")
        assert (after.granted, after.tools, after.state) == ((), (), PluginState.AWAITING_GRANTS)
        assert psutil.Process().children(recursive=True) == []
        with pytest.raises(ApprovalOutdated):
            await bridge.plugins.approve("mcp-fixture", view.digest, unsandboxed=True)
