"""What is pinned, what the manifests say, and what docs/servers.md and docs/clients.md say, is one thing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
SERVERS = HERE / "servers"
DOCS = HERE.parents[1] / "docs"
PAGE = (DOCS / "servers.md").read_text()

ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (.+?) \| (\S+) \| (\d+) \| `(.+?)` \| (.+?) \|$", re.MULTILINE)

CLIENT_ROW = re.compile(r"^\| (?:Python SDK \()?`([a-z0-9@/-]+)`\)? \| (\d\S*) \|", re.MULTILINE)

BUILT_ON = {"sdk1": ("python-servers", "mcp"), "sdk2": ("sdk2", "mcp"), "fastmcp4": ("fastmcp4", "fastmcp")}


def pinned(environment: str) -> dict[str, str]:
    lines = (HERE / "pins" / f"{environment}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def versions() -> dict[str, str]:
    node = json.loads((HERE / "pins" / "node-servers" / "package.json").read_text())["dependencies"]
    return {**pinned("python-servers"), **node}


def version_of(plugin: str, server: str) -> str:
    if plugin in BUILT_ON:
        environment, package = BUILT_ON[plugin]
        return pinned(environment)[package]
    return versions()[server]


@pytest.mark.parametrize("row", ROW.findall(PAGE), ids=lambda row: row[0])
def test_the_page_the_manifest_and_the_pins_agree(row: tuple[str, ...]) -> None:
    plugin, server, version, tools, command, permissions = row
    manifest = yaml.safe_load((SERVERS / plugin / "plugin.yaml").read_text())
    backend = manifest["backend"]
    assert version == str(manifest["version"]) == version_of(plugin, server)
    assert int(tools) == len(manifest["contributes"]["tools"])
    assert command == " ".join([backend["command"], *backend.get("args", ())])
    assert re.findall(r"`([a-z.]+)`", permissions) == manifest.get("permissions", [])


def test_every_plugin_has_its_row() -> None:
    assert sorted(row[0] for row in ROW.findall(PAGE)) == sorted(folder.name for folder in SERVERS.iterdir())


def test_the_page_of_clients_names_the_versions_that_are_pinned() -> None:
    told = {(name, version) for name, version in CLIENT_ROW.findall((DOCS / "clients.md").read_text())}
    node = json.loads((HERE / "pins" / "node-clients" / "package.json").read_text())["dependencies"]
    python = {
        ("mcp", pinned("python-servers")["mcp"]),
        ("mcp", pinned("sdk2")["mcp"]),
        ("fastmcp", pinned("fastmcp3")["fastmcp"]),
        ("fastmcp", pinned("fastmcp4")["fastmcp"]),
        ("pydantic-ai-slim", pinned("pydantic-ai")["pydantic-ai-slim[mcp]"]),
        ("langchain-mcp-adapters", pinned("langchain")["langchain-mcp-adapters"]),
        ("openai-agents", pinned("openai-agents")["openai-agents"]),
    }
    assert told == python | set(node.items())


def test_no_pin_says_where_anything_is_fetched_from() -> None:
    """That is the affair of whoever installs: `npm config set omit-lockfile-registry-resolved true` keeps it so."""
    files = [file for file in (HERE / "pins").rglob("*") if file.is_file()]
    assert len(files) > 10
    assert [file.name for file in files if "://" in file.read_text()] == []
