"""The built-ins pass the conformance kit that strangers' hook plugins pass."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sse_client import SseClient, connect

from bascule.builtin_plugins.anthropic_converter import AnthropicConverter
from bascule.builtin_plugins.grants import Grants
from bascule.builtin_plugins.group_exposure import GroupExposure
from bascule.builtin_plugins.mcp_converter import McpConverter
from bascule.builtin_plugins.openai_converter import OpenAiConverter
from bascule.builtin_plugins.quart_api import RestServer, RestSettings
from bascule.builtin_plugins.sse_server import SseServer, SseSettings
from bascule.builtin_plugins.stdio_client import StdioTransport
from bascule.hookspecs import Caller, CallFacts, Exposure, JsonObject, Limits, ToolCall, ToolDefinition, Visibility
from bascule.hookspecs.kit import (
    Answer,
    ClientTransportSuite,
    ConverterSuite,
    ExposurePolicySuite,
    LinesOfChild,
    PermissionCheckSuite,
    ServerTransportSuite,
    free_port,
)

pytest_plugins = ["bascule.hookspecs.kit"]

pytestmark = pytest.mark.req("D3", "D4", "D5")

CALLER = Caller("mcp", "mcp-client", "mcp-server", "sse")


def tool(**changes: Any) -> ToolDefinition:
    return ToolDefinition("a.b", "", {"type": "object"}, plugin_id="a", remote_name="b", alias="a__b", **changes)


class TestStdio(ClientTransportSuite):
    transport, peer = StdioTransport(), LinesOfChild


class TestMcp(ConverterSuite):
    converter = McpConverter()

    def write_call(self, name: str, arguments: JsonObject) -> JsonObject:
        return {"name": name, "arguments": arguments}


class TestOpenAi(ConverterSuite):
    converter = OpenAiConverter()

    def write_call(self, name: str, arguments: JsonObject) -> JsonObject:
        return {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


class TestAnthropic(ConverterSuite):
    converter = AnthropicConverter()

    def write_call(self, name: str, arguments: JsonObject) -> JsonObject:
        return {"type": "tool_use", "id": "1", "name": name, "input": arguments}


def case(granted: frozenset[str]) -> tuple[ToolCall, ToolDefinition, CallFacts]:
    return ToolCall("a.b", {}, CALLER), tool(), CallFacts(granted, "production", Exposure())


class TestGrants(PermissionCheckSuite):
    permission_check = Grants()
    denies = (case(frozenset()), case(frozenset({"files.read"})))
    allows = (case(frozenset({"tools.call"})),)


class TestGroupExposure(ExposurePolicySuite):
    policy = GroupExposure()
    shows = (
        (tool(), CALLER, Exposure()),
        (tool(groups=frozenset({"x"})), CALLER, Exposure(frozenset({"x", "y"}))),
        (tool(visibility=Visibility.RESTRICTED), CALLER, Exposure(allow_restricted=True)),
    )
    hides = (
        (tool(), CALLER, Exposure(frozenset({"x"}))),
        (tool(visibility=Visibility.SENSITIVE), CALLER, Exposure()),
    )


class SseCaller:
    """The test's own SSE client, as the kit wants one."""

    def __init__(self, client: SseClient) -> None:
        self._client = client

    async def _request(self, method: str, params: Any = None) -> Any:
        try:
            return await self._client.request(method, params)
        except (AssertionError, httpx.HTTPError) as error:
            raise ConnectionError("the stream ended") from error

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self._request("tools/list"))["tools"]]

    async def call(self, tool: str, arguments: Any) -> Answer:
        result = await self._request("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(block["text"] for block in result["content"])
        return Answer(text, result.get("isError", False))


class TestSse(ServerTransportSuite):
    http = True

    def make(self, exposure: Exposure, folder: Path) -> SseServer:
        settings = SseSettings(
            port=free_port(),
            tool_groups=exposure.tool_groups,
            allow_restricted=exposure.allow_restricted,
            max_sessions=4,
        )
        return SseServer(settings, Limits())

    def address(self, transport: SseServer) -> tuple[str, int]:
        return "127.0.0.1", transport.settings.port

    @asynccontextmanager
    async def client(self, transport: SseServer) -> AsyncIterator[SseCaller]:
        async with connect(f"http://127.0.0.1:{transport.settings.port}") as client:
            await client.initialize()
            yield SseCaller(client)


class RestCaller:
    """One that calls over REST, with the token that the state directory holds."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise ConnectionError("the API ended") from error

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self._ask("GET", "/api/tools")).json()["tools"]]

    async def call(self, tool: str, arguments: Any) -> Answer:
        answer = await self._ask("POST", f"/api/tools/{tool}/call", json=arguments)
        if answer.is_error:
            return Answer(answer.json()["detail"], failed=True)
        return Answer("\n".join(block["text"] for block in answer.json()["content"]))


class TestRest(ServerTransportSuite):
    http = True
    clients_at_once = 1  # a request is no session

    def make(self, exposure: Exposure, folder: Path) -> RestServer:
        settings = RestSettings(
            port=free_port(), tool_groups=exposure.tool_groups, allow_restricted=exposure.allow_restricted
        )
        return RestServer(settings, (), folder / "state")

    def address(self, transport: RestServer) -> tuple[str, int]:
        return "127.0.0.1", transport.settings.port

    @asynccontextmanager
    async def client(self, transport: RestServer) -> AsyncIterator[RestCaller]:
        headers = {"authorization": f"Bearer {self.token}"}
        base = f"http://127.0.0.1:{transport.settings.port}"
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=60) as http:
            yield RestCaller(http)
