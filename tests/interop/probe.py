"""Asks a server what it lists, over plain pipes and without Bascule: what a host is measured by."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_LEAVE_SECONDS = 20.0


def listed(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[Json, list[Json]]:
    """Start a server, shake hands without any capability, and return both results; it has left by then."""
    with subprocess.Popen(
        argv,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            client = {"name": "probe", "version": "1"}
            offer = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
            welcome = _ask(server, 1, "initialize", offer)
            _send(server, {"method": "notifications/initialized"})
            tools: list[Json] = []
            page = _ask(server, 2, "tools/list", {})
            tools += page["tools"]
            while cursor := page.get("nextCursor"):
                page = _ask(server, 2 + len(tools), "tools/list", {"cursor": cursor})
                tools += page["tools"]
            assert server.stdin
            server.stdin.close()
            server.wait(_LEAVE_SECONDS)
        finally:
            server.kill()
    return welcome, tools


def _send(server: subprocess.Popen[bytes], message: Json) -> None:
    assert server.stdin
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    server.stdin.flush()


def _ask(server: subprocess.Popen[bytes], request_id: int, method: str, params: Json) -> Json:
    _send(server, {"id": request_id, "method": method, "params": params})
    assert server.stdout
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == request_id and "method" not in message:
            return message["result"]
    raise AssertionError(f"the server left without an answer to {method}")
