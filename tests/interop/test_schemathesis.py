"""schemathesis makes thousands of requests from our documents, and finds nothing that does not keep them.

The seed and the version are fixed: what it finds today it finds tomorrow. What a tool or its server fails at is 502,
503 or 504, and documented; 500 is a fault of ours. A body that keeps its schema may still name what is not there: 422.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop.conftest import provide
from interop.environments import SCHEMATHESIS
from interop.served import ROOT, Served, served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(500), pytest.mark.req("D5", "N7.5")]

SECONDS = 400.0
SEED = "7"

USUAL = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 502, 503, 504]

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", 401, 403, 404, 409, 422, 502, 503, 504]
"""
API = f"""
[parameters]
plugin_id = "mcp-fixture"
"path.name" = "mcp-fixture.echo"
"path.alias" = "mcp-fixture__echo"
{USUAL}
[[operations]]
include-operation-id = "restart_host"
phases.stateful.enabled = false

[[operations]]
include-operation-id = "remove_plugin"
parameters = {{ plugin_id = "no-such" }}
"""


@pytest.fixture(params=["hypercorn", pytest.param("uvicorn", marks=pytest.mark.slow)])
def bridge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    pytest.importorskip(request.param)
    echo = ROOT / "fixtures" / "mcp-echo"
    with served(tmp_path, echo, {}, way="quart_api", http_server=request.param) as running:
        yield running


def findings(bridge: Served, folder: Path, config: str, document: str, *options: str) -> None:
    """Run it; what it says is the failure's text."""
    (folder / "schemathesis.toml").write_text(config)
    program = SCHEMATHESIS.program("schemathesis")
    done = subprocess.run(
        [
            *(program, "--config-file", folder / "schemathesis.toml", "run", bridge.rest + document),
            *("--header", f"Authorization: Bearer {bridge.token}", "--seed", SEED, "--max-examples", "15"),
            *("--no-color", "--continue-on-failure", "--generation-database", "none", *options),
        ],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    assert " passed" in done.stdout
    assert "500" not in "".join(line for line in bridge.log if "broke" in line)


def test_the_api_keeps_its_document(bridge, request, tmp_path):
    """Live events never end, so they are left out; a restart is, where operations are chained."""
    provide(SCHEMATHESIS, request.config)
    findings(bridge, tmp_path, API, "/openapi.json", "--exclude-path", "/api/events")


def test_the_tools_keep_their_document(bridge, request, tmp_path):
    """A tool that ends its server leaves none to be tried; one that sleeps for as long as it is told takes its time."""
    provide(SCHEMATHESIS, request.config)
    without = [f"mcp-fixture__{name}" for name in ("exit", "sleep")]
    options = [word for name in without for word in ("--exclude-operation-id", name)]
    findings(bridge, tmp_path, USUAL, "/api/tools/openapi.json", *options)
