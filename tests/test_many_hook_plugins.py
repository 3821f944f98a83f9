"""Two hundred hook plugins, twenty of them broken: the bridge serves, and says which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from many_hook_plugins import COUNT, lay_down


@pytest.mark.req("D4", "D5")
def test_a_bridge_among_two_hundred_hook_plugins_says_which_twenty_are_broken(bascule, echo: Path, tmp_path: Path):
    broken = lay_down(tmp_path / "many")
    assert len(broken) == 20
    bascule.env["PYTHONPATH"] = str(tmp_path / "many")
    shown = {plugin["name"]: plugin for plugin in bascule("hooks", "--json").json["hook_plugins"]}
    for number in range(COUNT):
        plugin = shown[f"many_{number:03}"]
        assert (plugin["distribution"], plugin["version"]) == (f"many-{number:03}", f"1.{number}")
        assert plugin["state"] == ("broken" if plugin["name"] in broken else "ok")
    call = bascule("call", "mcp-fixture.echo", '{"message": "hello"}', "--dev", "--plugin", echo)
    assert json.loads(call.out)["message"] == "hello"
    for name in broken:
        assert f"hook plugin {name} is out" in call.err
