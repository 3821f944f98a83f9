"""pydantic-ai: an agent's whole run over the stream. Its TestModel calls what it is told to, with the least arguments;
then a model of a few lines calls with what every client here says. The names go to the model as they are, so they are
asked for in their flat form.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from said import FAILURE, WORDS, say, url

ECHO, FAIL = "mcp-fixture__echo", "mcp-fixture__fail"

offered: list[str] = []


def calls_both(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call both tools in one turn; then say that it is done."""
    offered[:] = [tool.name for tool in info.function_tools]
    if len(messages) > 1:
        return ModelResponse([TextPart("done")])
    return ModelResponse([ToolCallPart(ECHO, {"message": WORDS}, "1"), ToolCallPart(FAIL, {"message": FAILURE}, "2")])


def returned(messages: list[ModelMessage]) -> dict[str, Any]:
    """What each tool gave back, or the words with which it failed."""
    parts = [part for message in messages for part in message.parts]
    return {part.tool_name: part.content for part in parts if isinstance(part, ToolReturnPart)}


async def main() -> None:
    toolset = MCPToolset(f"{url()}?names=flat", tool_error_behavior="failed")
    async with Agent(TestModel(call_tools=[ECHO]), toolsets=[toolset]) as agent:
        tried = await agent.run("Call the tool.")
        assert set(returned(tried.all_messages())) == {ECHO}, tried.all_messages()
        both = await agent.run("Call both.", model=FunctionModel(calls_both))
    assert both.output == "done"
    seen = returned(both.all_messages())
    say(tools=offered, echo=seen[ECHO]["message"], failure=seen[FAIL])


asyncio.run(main())
