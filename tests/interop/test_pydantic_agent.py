"""An agent that pydantic-ai runs uses the tools, in our process and over REST; its calls are one run in the traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from interop.clients.said import FAILURE, WORDS
from interop.conftest import provide
from interop.environments import PYDANTIC_AI
from interop.served import ROOT, served

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(300, func_only=True),
    pytest.mark.req("D5", "N1.2", "N5.5", "N9"),
]

CLIENTS = Path(__file__).with_name("clients")
ECHO = ROOT / "fixtures" / "mcp-echo"
SECONDS = 120.0


def said_by(program: str | Path, script: str, *arguments: str | Path, home: Path) -> Any:
    """Run a client; the document that it prints."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [program, CLIENTS / script, *map(str, arguments)],
        cwd=home,
        env={**inherited, "HOME": str(home), "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().split("\n")[-1])


def check(said: Any, failure: Any) -> None:
    """What the agent saw, and what the traces say of it."""
    assert set(said["tried"]) == {"mcp-fixture__echo"}
    assert said["seen"]["mcp-fixture__echo"]["message"] == WORDS
    assert failure(said["seen"]["mcp-fixture__fail"]) == FAILURE
    run, steps = said["trace"]["run"], said["trace"]["steps"]
    assert (run["agent"], run["state"]) == ("pydantic", "finished")
    assert [step["tool"] for step in steps].count("mcp-fixture.echo") == 2
    assert {step["run"] for step in steps} == {run["id"]}
    outcomes = {(step["tool"], step["outcome"], step["code"]) for step in steps}
    assert outcomes == {
        ("mcp-fixture.echo", "ok", None),
        ("mcp-fixture.fail", "error", "MCP_TOOL_CALL_FAILED"),
    }


def test_over_the_rest_document_of_the_tools(request, tmp_path):
    provide(PYDANTIC_AI, request.config)
    with served(tmp_path, ECHO, {}, way="quart_api") as bridge:
        python = PYDANTIC_AI.program("python")
        said = said_by(python, "pydantic_rest.py", bridge.rest, bridge.token, home=tmp_path)
    check(said, lambda problem: problem["detail"])
    assert said["finished"]["state"] == "finished"


def test_in_the_bridges_own_process(request, tmp_path):
    provide(PYDANTIC_AI, request.config)
    (packages,) = PYDANTIC_AI.folder.glob("lib/python*/site-packages")
    said = said_by(sys.executable, "pydantic_inside.py", packages, ECHO, tmp_path / "state", home=tmp_path)
    check(said, lambda error: error["message"])
