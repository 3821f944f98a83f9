"""Hook plugins that load well and break when they are used: each is told, and hurts no one else."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from bascule.core.bridge import Bridge
from bascule.hookspecs import ToolNotFound

HELLO = ("mcp-fixture.echo", {"message": "hello"})

pytestmark = pytest.mark.req("D4", "D5")


async def test_a_server_transport_that_does_not_open_leaves_the_others_open(strangers, settings, short_path):
    strangers.install("broken-server-transport", "bascule-unix-server")
    chosen = settings.with_(disabled_hook_plugins=("sse_server", "quart_api"), state=short_path)
    async with Bridge(chosen, remember=False) as bridge, bridge.serve() as opened:
        assert opened == ["unix"]
        assert "the certificate is gone" in str(bridge.failures["broken"])


async def test_a_converter_that_breaks_is_not_met_by_a_call(strangers, host, echo):
    strangers.install("broken-converter")
    async with host(echo) as bridge, bridge.run("test") as run:
        assert "broken" in bridge.lineup.converters
        assert (await run.call(*HELLO)).output["message"] == "hello"


async def test_a_policy_that_breaks_hides_everything_and_is_told(strangers, host, echo, caplog):
    strangers.install("broken-policy")
    async with host(echo) as bridge, bridge.run("test") as run:
        assert await run.tools() == []
        with pytest.raises(ToolNotFound):
            await run.call(*HELLO)
    assert "exposure policy broken failed" in caplog.text


async def test_an_observer_that_breaks_is_told_and_stops_no_one(strangers, host, echo, settings, caplog):
    strangers.install("broken-observer", "counting-observer")
    with caplog.at_level(logging.WARNING):
        async with host(echo) as bridge, bridge.run("test") as run:
            assert (await run.call(*HELLO)).output["message"] == "hello"
    path = settings.state / "hook-plugins" / "counting_observer" / "events.jsonl"
    assert "CallEnded" in [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert "broken" in caplog.text


async def test_a_client_transport_that_breaks_fails_its_own_plugin_in_words(strangers, host, echo, tmp_path: Path):
    strangers.install("broken-transport")
    folder = tmp_path / "plugin"
    folder.mkdir()
    manifest = (echo / "plugin.yaml").read_text().replace("mcp-fixture", "other").partition("backend:")[0]
    (folder / "plugin.yaml").write_text(f"{manifest}backend:\n  type: mcp\n  transport: broken\n")
    async with host(folder, echo) as bridge, bridge.run("test") as run:
        assert list(bridge.failures) == ["other"]
        assert "no one has thought of this" in str(bridge.failures["other"])
        assert (await run.call(*HELLO)).output["message"] == "hello"
