"""Clients that were not written here start Bascule as their command, list and call, and leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from interop.clients.said import FAILURE, WORDS
from interop.conftest import provide
from interop.environments import FASTMCP4, PYTHON_SERVERS, SDK2
from interop.served import ROOT
from interop.test_clients import IN_NODE, SECONDS, TOOLS, Client, check_progress, inspector, module

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90, func_only=True), pytest.mark.req("A7", "D5")]

EVERYONE = {
    "python-sdk1": Client("sdk1.py", (PYTHON_SERVERS,)),
    "python-sdk2-auto": Client("sdk2.py", (SDK2,), lambda: ["auto"]),
    "python-sdk2-legacy": Client("sdk2.py", (SDK2,), lambda: ["legacy"]),
    "fastmcp4-entry": Client("fastmcp_client.py", (FASTMCP4,), lambda: ["entry"]),
    "ts-sdk1": Client("ts_sdk1.cjs", IN_NODE),
    "ts-sdk2-auto": Client("ts_sdk2.cjs", IN_NODE, lambda: ["auto"]),
    "ts-sdk2-legacy": Client("ts_sdk2.cjs", IN_NODE, lambda: ["legacy"]),
    "inspector-entry": inspector("entry"),
}


def entry(folder: Path) -> str:
    """The entry of docs/clients.md for a trial, with absolute paths."""
    config = folder / "bascule.yaml"
    config.write_text(yaml.safe_dump({"state": str(folder / "state")}))
    arguments = ["stdio", "--dev", "--plugin", ROOT / "fixtures" / "mcp-echo", "--config", config]
    bascule = Path(sysconfig.get_path("scripts"), "bascule")
    return json.dumps({"command": str(bascule), "args": [str(each) for each in arguments]})


def left_behind(folder: Path) -> list[psutil.Process]:
    """Whatever still runs with this folder's settings."""
    config = str(folder / "bascule.yaml")
    return [each for each in psutil.process_iter(["cmdline"]) if config in (each.info["cmdline"] or [])]


@pytest.mark.parametrize("name", EVERYONE)
def test_a_client_starts_it_lists_and_calls(name, request, tmp_path):
    client = EVERYONE[name]
    for environment in client.environments:
        provide(environment, request.config)
    inherited = {each: value for each, value in os.environ.items() if not each.startswith("PYTHON")}
    own = {"HOME": str(tmp_path), "NODE_PATH": str(module("")), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [*client.command(), entry(tmp_path), *client.arguments()],
        cwd=tmp_path,
        env={**inherited, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.strip().split("\n")[-1])
    assert seen["tools"] == [f"mcp-fixture.{each}" for each in TOOLS]
    assert (seen["echo"], seen["failure"]) == (WORDS, FAILURE)
    assert seen["revision"] in (None, client.revision)
    check_progress(client, seen["progress"])
    _, alive = psutil.wait_procs(left_behind(tmp_path), timeout=30)
    assert not alive
