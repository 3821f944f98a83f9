"""The built-ins pass the conformance kit that strangers' hook plugins pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bascule.builtin_plugins.anthropic_converter import AnthropicConverter
from bascule.builtin_plugins.grants import Grants
from bascule.builtin_plugins.group_exposure import GroupExposure
from bascule.builtin_plugins.mcp_converter import McpConverter
from bascule.builtin_plugins.openai_converter import OpenAiConverter
from bascule.builtin_plugins.stdio_client import StdioTransport
from bascule.hookspecs import Caller, CallFacts, Exposure, JsonObject, ToolCall, ToolDefinition, Visibility
from bascule.hookspecs.kit import (
    ClientTransportSuite,
    ConverterSuite,
    ExposurePolicySuite,
    LinesOfChild,
    PermissionCheckSuite,
)

pytest_plugins = ["bascule.hookspecs.kit"]

pytestmark = pytest.mark.req("D3", "D4", "D5")

CALLER = Caller("mcp", "mcp-client", "mcp-server", "sse")


def tool(**changes: Any) -> ToolDefinition:
    return ToolDefinition("a.b", "", {"type": "object"}, plugin_id="a", remote_name="b", alias="a__b", **changes)


class TestStdio(ClientTransportSuite):
    transport, peer = StdioTransport(), LinesOfChild


class TestOpenAi(ConverterSuite):
    converter = OpenAiConverter()

    def write_call(self, name: str, arguments: JsonObject) -> JsonObject:
        return {"function": {"name": name, "arguments": json.dumps(arguments)}}


class TestAnthropic(ConverterSuite):
    converter = AnthropicConverter()

    def write_call(self, name: str, arguments: JsonObject) -> JsonObject:
        return {"type": "tool_use", "name": name, "input": arguments}


class TestMcp(ConverterSuite):
    converter = McpConverter()

    def write_call(self, name: str, arguments: JsonObject) -> JsonObject:
        return {"name": name, "arguments": arguments}


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
