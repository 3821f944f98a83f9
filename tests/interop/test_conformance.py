"""The official conformance suite against a running Bascule: what docs/conformance.md says of each scenario is so."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from interop.conftest import provide
from interop.environments import CONFORMANCE, NODE, PYTHON_SERVERS, node
from interop.served import ROOT, Served, served

from bascule.hookspecs.kit import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180, func_only=True)]

PLUGIN = ROOT / "fixtures" / "conformance-plugin"
ADAPTER = Path(__file__).parent / "conformance" / "adapter.py"
PAGE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")

SUITES = {
    "0.1.16": ("conformance-release", ["--suite", "all"]),
    "0.2.0-alpha.12": ("conformance-preview", ["--requirements", "2025-11-25"]),
}
TOOLS = 14
SUITE_SECONDS = 120.0
START_SECONDS = 60.0

ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (.+?) \| (passes|not yet) \|", re.MULTILINE)
RESULT = re.compile(r"^([✓✗]) ([a-z0-9-]+): \d+ passed, \d+ failed$", re.MULTILINE)


def documented(version: str) -> dict[str, bool]:
    """Which scenarios of that version pass, by the page."""
    rows = ROW.findall(PAGE)
    return {scenario: word == "passes" for scenario, versions, word in rows if versions in ("both", version)}


@contextmanager
def adapted(bridge: Served, port: int) -> Iterator[str]:
    """The address at which the suite finds the bridge."""
    command = [PYTHON_SERVERS.program("python"), ADAPTER, str(port), bridge.url, "conformance"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) as adapter:
        try:
            listens(port, adapter)
            yield f"http://localhost:{port}/mcp"
        finally:
            adapter.kill()


def listens(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until someone listens there."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, "the adapter has left"
            assert time.monotonic() < until, "the adapter does not listen"
            time.sleep(0.02)
        else:
            return


@pytest.mark.req("A1", "A7")
@pytest.mark.parametrize(
    ("version", "http_server"),
    [
        ("0.1.16", "hypercorn"),
        pytest.param("0.1.16", "uvicorn", marks=pytest.mark.slow),
        ("0.2.0-alpha.12", "auto"),
    ],
)
def test_the_suite_finds_what_the_page_says(version, http_server, request, tmp_path):
    if http_server == "uvicorn":
        pytest.importorskip("uvicorn")
    for environment in (NODE, CONFORMANCE, PYTHON_SERVERS):
        provide(environment, request.config)
    package, which = SUITES[version]
    program = CONFORMANCE.folder / "node_modules" / package / "dist" / "index.js"
    port = free_port()
    sse = {"max_sessions": 16, "allowed_hosts": [f"localhost:{port}"]}
    with served(tmp_path, PLUGIN, sse, http_server=http_server) as bridge, adapted(bridge, port) as url:
        assert any(line.startswith(f"serving {TOOLS} tools ") for line in bridge.said), bridge.everything()
        done = subprocess.run(
            [node(), program, "server", "--url", url, "-o", tmp_path / "results", *which],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SUITE_SECONDS,
            check=False,
        )
    found = {scenario: mark == "✓" for mark, scenario in RESULT.findall(done.stdout)}
    assert found == documented(version), done.stdout[done.stdout.find("=== SUMMARY") :] + done.stderr


def test_the_page_names_the_versions_that_are_pinned():
    pinned = (Path(__file__).parent / "pins" / "conformance" / "package.json").read_text()
    assert re.findall(r"conformance@([^\"]+)", pinned) == [*reversed(SUITES)]
    assert all(f"`{version}`" in PAGE for version in SUITES)
