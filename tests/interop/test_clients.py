"""Clients that were not written here, each in an environment of its own, list and call through a running Bascule."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from interop.clients.said import FAILURE, STEPS, WORDS
from interop.conftest import provide
from interop.environments import (
    FASTMCP3,
    FASTMCP4,
    LANGCHAIN,
    NODE,
    NODE_CLIENTS,
    OPENAI_AGENTS,
    PYDANTIC_AI,
    PYTHON_SERVERS,
    SDK2,
    Environment,
    node,
)
from interop.served import ROOT, Served, served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90, func_only=True), pytest.mark.req("A1")]

CLIENTS = Path(__file__).with_name("clients")
TOOLS = ("echo", "environment", "exit", "fail", "large", "sleep")
SECONDS = 60.0

INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
MCP_REMOTE = "mcp-remote/dist/proxy.js"
IN_NODE = (NODE, NODE_CLIENTS)


@dataclass(frozen=True, slots=True)
class Client:
    """A script under ``clients/`` and the environments it needs.

    ``progress`` tells whether it shows any, ``flat`` whether it asks for names that a model can be given.
    """

    script: str
    environments: tuple[Environment, ...]
    arguments: Callable[[], Sequence[str | Path]] = tuple
    revision: str = "2025-11-25"
    progress: bool = True
    flat: bool = False

    def command(self) -> list[str | Path]:
        """Written for Node or for Python."""
        runner = node() if self.script.endswith(".cjs") else self.environments[0].program("python")
        return [runner, CLIENTS / self.script]


def module(name: str) -> Path:
    """A file of a package in the environment of Node's clients."""
    return NODE_CLIENTS.folder / "node_modules" / name


def remote(transport: str) -> Client:
    """mcp-remote as the stdio server of a host that the first SDK plays."""
    environments = (PYTHON_SERVERS, *IN_NODE)
    return Client("through_mcp_remote.py", environments, lambda: [node(), module(MCP_REMOTE), transport])


def inspector(how: str) -> Client:
    """Its command line shows no progress."""
    return Client("inspector.py", IN_NODE, lambda: [node(), module(INSPECTOR), how], progress=False)


def framework(script: str, environment: Environment) -> Client:
    """It hands the tools to a model, and shows no progress."""
    return Client(script, (environment,), progress=False, flat=True)


EVERYONE = {
    "python-sdk1": Client("sdk1.py", (PYTHON_SERVERS,)),
    "python-sdk2-auto": Client("sdk2.py", (SDK2,), lambda: ["auto"]),
    "python-sdk2-legacy": Client("sdk2.py", (SDK2,), lambda: ["legacy"]),
    "fastmcp3": Client("fastmcp_client.py", (FASTMCP3,)),
    "fastmcp4": Client("fastmcp_client.py", (FASTMCP4,)),
    "fastmcp4-entry": Client("fastmcp_client.py", (FASTMCP4,), lambda: ["entry"]),
    "ts-sdk1": Client("ts_sdk1.cjs", IN_NODE),
    "ts-sdk2-auto": Client("ts_sdk2.cjs", IN_NODE, lambda: ["auto"]),
    "ts-sdk2-legacy": Client("ts_sdk2.cjs", IN_NODE, lambda: ["legacy"]),
    "inspector": inspector("url"),
    "inspector-entry": inspector("entry"),
    "mcp-remote-sse-only": remote("sse-only"),
    "mcp-remote-http-first": remote("http-first"),
    "pydantic-ai": framework("pydantic_agent.py", PYDANTIC_AI),
    "langchain": framework("langchain.py", LANGCHAIN),
    "openai-agents": framework("openai_agents.py", OPENAI_AGENTS),
}
SLOW = {"fastmcp3", "pydantic-ai", "langchain", "openai-agents"}


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One bridge for all of them: each opens a session of its own, and leaves it."""
    with served(tmp_path_factory.mktemp("bridge"), ROOT / "fixtures" / "mcp-echo", {}) as running:
        yield running


def seen_by(client: Client, bridge: Served, config: pytest.Config, tmp_path: Path) -> dict[str, Any]:
    """Let a client do its work, and read the line that it prints."""
    for environment in client.environments:
        provide(environment, config)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own = {"HOME": str(tmp_path), "NODE_PATH": str(module("")), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [*client.command(), bridge.url, *client.arguments()],
        cwd=tmp_path,
        env={**inherited, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr + "".join(bridge.log[-20:])
    return json.loads(done.stdout.strip().split("\n")[-1])  # JSON may hold what else ends lines


def check_progress(client: Client, seen: list[float] | None) -> None:
    """The TypeScript SDKs look at an answer before the progress that came in the same packet, and forget that."""
    if not client.progress:
        assert seen is None
        return
    everything = [step + 1 for step in range(STEPS)]
    assert seen == everything or (client.script.startswith("ts_") and seen == everything[:-1])


def check(client: Client, bridge: Served, seen: dict[str, Any], came_after: int) -> None:
    separator = "__" if client.flat else "."
    assert seen["tools"] == [f"mcp-fixture{separator}{name}" for name in TOOLS]
    assert seen["echo"] == WORDS
    assert seen["failure"] == FAILURE
    check_progress(client, seen["progress"])
    assert seen["revision"] in (None, client.revision)
    told = re.findall(r"speaks MCP (\S+)", "".join(bridge.log[came_after:]))
    assert set(told) == {client.revision}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in EVERYONE]
)
def test_a_client_lists_and_calls(name, bridge, request, tmp_path):
    client, came_after = EVERYONE[name], len(bridge.log)
    check(client, bridge, seen_by(client, bridge, request.config, tmp_path), came_after)


@pytest.mark.parametrize("http_server", ["hypercorn", "uvicorn"])
def test_either_http_server_serves(http_server, request, tmp_path):
    if http_server == "uvicorn":
        pytest.importorskip("uvicorn")
    with served(tmp_path, ROOT / "fixtures" / "mcp-echo", {}, http_server=http_server) as bridge:
        client = EVERYONE["python-sdk1"]
        check(client, bridge, seen_by(client, bridge, request.config, tmp_path), 0)


@pytest.mark.req("N6.8")
@pytest.mark.parametrize(
    "client",
    [
        Client("sdk2_cancels.py", (SDK2,)),
        Client("ts_cancels.cjs", IN_NODE, lambda: ["1"]),
        Client("ts_cancels.cjs", IN_NODE, lambda: ["2"]),
    ],
    ids=["python-sdk2", "ts-sdk1", "ts-sdk2"],
)
def test_a_call_that_a_client_gives_up_leaves_its_place(client, request, tmp_path):
    """One call at a time is allowed, and the one that was given up would last for seconds more."""
    with served(tmp_path, ROOT / "fixtures" / "mcp-echo", {}, limits={"calls_per_caller": 1}) as bridge:
        assert seen_by(client, bridge, request.config, tmp_path)["after"] == WORDS
