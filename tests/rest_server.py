"""The REST API as its users have it: a bridge that really listens, and an HTTP client with a token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs.kit import free_port

SECONDS = 60.0
VARIANTS = Path(__file__).resolve().parents[1] / "fixtures" / "variants"
OWNER = ("call", "read", "admin")


@dataclass(frozen=True)
class Api:
    """A bridge whose REST API listens at ``base``; ``http`` has the owner's token."""

    bridge: Bridge
    base: str
    http: httpx.AsyncClient

    def token(self, name: str, *scopes: str) -> dict[str, str]:
        """The header of a new token."""
        return {"authorization": f"Bearer {self.bridge.tokens.create(name, scopes)}"}

    async def call(self, tool: str, arguments: Any = None, **options: Any) -> httpx.Response:
        return await self.http.post(f"/api/tools/{tool}/call", json=arguments or {}, **options)

    async def ask(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        """Send a request, expect ``status``; the decoded body."""
        answer = await self.http.request(method, path, **options)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None


@asynccontextmanager
async def serve_rest(
    settings: Settings,
    http_server: str,
    *plugins: Path,
    remember: bool = False,
    grant: bool = True,
    settle: bool = True,
    roots: Iterable[Path] = (),
    **section: object,
) -> AsyncIterator[Api]:
    """Host ``plugins`` behind the REST API alone; keywords are its section of the settings."""
    port = free_port()
    use = settings.with_(
        http_server=http_server,
        plugins={**settings.plugins, "quart_api": {"port": port, **section}},
        disabled_hook_plugins=(*settings.disabled_hook_plugins, "sse_server"),
        plugin_roots=tuple(str(root) for root in roots),
    )
    async with Bridge(use, plugins=plugins, grant=grant, remember=remember) as bridge, bridge.serve() as opened:
        assert "rest" in opened, bridge.failures
        if settle:
            await bridge.settled()
        base = f"http://127.0.0.1:{port}"
        bridge.tokens.revoke("tester")  # one state may be served more than once
        secret = bridge.tokens.create("tester", OWNER)
        headers = {"authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=SECONDS) as http:
            yield Api(bridge, base, http)


def patient(manifest: dict[str, Any]) -> None:
    """An edit for ``plugin_copy``: whatever a variant does, a slow machine is no reason to give it up."""
    backend = manifest["backend"]
    backend["args"] = [str(VARIANTS / Path(arg).name) if arg.endswith(".py") else arg for arg in backend["args"]]
    backend |= {"startup_timeout_seconds": 300, "tool_timeout_seconds": 300}


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that ``answer`` is this problem document; its members."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    shown: dict[str, Any] = answer.json()
    assert (shown["status"], shown["code"], shown["type"]) == (status, code, f"urn:bascule:error:{code}")
    assert shown["title"]
    assert shown["detail"]
    return shown


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    """The server-sent events of an answer: name and decoded data; comments under the name ``""``."""
    name = ""
    async for line in lines:
        if line.startswith(": "):
            yield "", line[2:]
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])
