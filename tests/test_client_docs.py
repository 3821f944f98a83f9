"""What docs/clients.md gives people to paste is what works: each entry is read as a client reads it, and used."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bascule.builtin_plugins.sse_server import SseSettings, directions
from bascule.core.bridge import Bridge
from bascule.core.cli import cli

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "clients.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

ENTRIES = [json.loads(text) for language, text in BLOCK.findall(PAGE) if language == "json"]
COMMANDS = [
    line
    for language, text in BLOCK.findall(PAGE)
    if language == "sh"
    for line in text.replace("\\\n", " ").splitlines()
    if line
]


def servers(kind: str) -> Iterator[dict[str, Any]]:
    """Every entry for a server that has this key, whatever the client calls the list."""
    for entry in ENTRIES:
        for listed in entry.values():
            yield from (server for server in listed.values() if kind in server)


OWN = [server for server in servers("command") if server["command"] == "bascule"]
ADDED = [shlex.split(line) for line in COMMANDS if line.startswith("claude mcp add ")]


def test_there_is_something_to_paste() -> None:
    assert len(OWN) == 2
    assert len(list(servers("url"))) == 2
    assert len(ADDED) == 2


@pytest.mark.req("A7", "D5")
async def test_what_is_pasted_for_stdio_hosts_what_is_enabled(bascule, settings, echo):
    """In a home of its own: the entries name no state, no settings and no plugin."""
    commands = [[server["command"], *server["args"]] for server in OWN]
    commands += [words[words.index("--") + 1 :] for words in ADDED if "--" in words]
    assert len(commands) == 3
    bascule.settings(f"environment: development\nexecutables: {{python3: {json.dumps(str(_python(settings)))}}}\n")
    async with Bridge(settings.with_(state=bascule.state)) as bridge:
        view = await bridge.plugins.install(echo)
        await bridge.plugins.grant(view.plugin_id, view.permissions)
        await bridge.plugins.enable(view.plugin_id)
    initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    said = [("initialize", initialize), ("tools/list", {})]
    lines = "".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
        for number, (method, params) in enumerate(said)
    )
    for name, *arguments in commands:
        assert name == "bascule"
        shown = await asyncio.to_thread(bascule, *arguments, input=lines)
        assert shown.code == 0, shown.err
        _, listed = map(json.loads, shown.out.splitlines())
        assert "mcp-fixture__echo" in [tool["name"] for tool in listed["result"]["tools"]]


def _python(settings: Any) -> Path:
    path: Path = settings.executables["python3"]
    return path


def test_the_words_for_a_trial_are_arguments_of_the_command() -> None:
    (text,) = re.findall(r'`"args": (\[[^\]]*\])`', PAGE)
    name, *arguments = json.loads(text)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    command.make_context(name, arguments)


@pytest.mark.req("A1")
def test_what_is_pasted_for_sse_is_what_serve_prints() -> None:
    printed = directions(SseSettings(tokens=True))
    assert json.loads(printed.paste["MCP clients"]) in ENTRIES
    assert printed.paste["Claude Code"] in COMMANDS
    assert {server["url"] for server in servers("url")} == {printed.url} == {directions(SseSettings()).url}
    (remote,) = (server for server in servers("command") if server["command"] != "bascule")
    assert printed.url in remote["args"]
