"""`bascule serve` as its owner meets the REST API: what is printed leads to the first call."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import httpx
import pytest

from bascule.hookspecs.kit import free_port


def settings(port: int, extra: str = "") -> str:
    return f"disabled_hook_plugins: [sse_server]\nplugins:\n  quart_api: {{port: {port}}}\n{extra}"


@pytest.mark.req("D5")
def test_what_is_printed_leads_to_a_call(bascule, echo):
    port = free_port()
    bascule.settings(settings(port))
    serving = bascule.start("serve", "--dev", "--plugin", echo)
    assert serving.until("rest:").strip() == f"rest: http://127.0.0.1:{port}"
    command = serving.until("curl -H")
    serving.until("serving", "ways in: rest")
    assert f"$(cat {shlex.quote(str(bascule.state / 'owner.token'))})" in command
    url = command.split()[-1]
    token = (bascule.state / "owner.token").read_text().strip()
    with httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=60) as http:
        names = [tool["name"] for tool in http.get(url).json()["tools"]]
        assert "mcp-fixture.echo" in names
        called = http.post(f"http://127.0.0.1:{port}/tools/mcp-fixture__echo", json={"message": "hi"})
        assert called.json()["message"] == "hi"
        assert http.get(f"http://127.0.0.1:{port}/docs", headers={"authorization": ""}).status_code == 200
    endpoint = json.loads((bascule.state / "bridge.json").read_text())
    assert endpoint["url"] == f"http://127.0.0.1:{port}"
    assert serving.ended(15).code == 0
    assert not (bascule.state / "bridge.json").exists()


@pytest.mark.req("N3.5", "N10")
def test_what_was_installed_over_http_is_back_after_a_restart(bascule, echo):
    port = free_port()
    bascule.settings(
        settings(port, f"environment: development\nplugin_roots: [{json.dumps(str(Path(echo).parent))}]\n")
    )
    base = f"http://127.0.0.1:{port}/api/plugins"

    def client() -> httpx.Client:
        token = (bascule.state / "owner.token").read_text().strip()
        return httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=60)

    serving = bascule.start("serve")
    serving.until("serving")
    with client() as http:
        installed = http.post(base, json={"directory": str(echo)}).json()
        http.put(f"{base}/mcp-fixture/permissions", json={"permissions": installed["permissions"]})
        enabled = http.post(f"{base}/mcp-fixture/enable").json()
        assert enabled["state"] == "ready"
    assert serving.ended(15).code == 0
    serving = bascule.start("serve")
    serving.until("serving 6 tools of 1 plugin")
    with client() as http:
        assert http.get(f"{base}/mcp-fixture").json()["state"] == "ready"
        assert http.delete(f"{base}/mcp-fixture").status_code == 204
    assert serving.ended(15).code == 0
