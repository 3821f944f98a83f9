"""pydantic-ai and Bascule in one process: the agent's tools are those of its run.

Started by the interpreter that has Bascule; the packages of pydantic-ai stand behind it on the path.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(sys.argv[1])

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, Tool, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from said import FAILURE, WORDS

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import CallError, Run, ToolDefinition

ECHO, FAIL = "mcp-fixture__echo", "mcp-fixture__fail"


def calls_both(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call both tools in one turn; then say that it is done."""
    if len(messages) > 1:
        return ModelResponse([TextPart("done")])
    return ModelResponse([ToolCallPart(ECHO, {"message": WORDS}, "1"), ToolCallPart(FAIL, {"message": FAILURE}, "2")])


def tool(run: Run, offered: ToolDefinition) -> Tool[None]:
    """A tool of the agent's from one of the run's."""

    async def call(**arguments: Any) -> Any:
        try:
            return (await run.call(offered.name, arguments)).output
        except CallError as error:
            return error.as_dict()

    return Tool.from_schema(call, offered.alias, offered.description, dict(offered.parameters))


def returned(messages: list[ModelMessage]) -> dict[str, Any]:
    parts = [part for message in messages for part in message.parts]
    return {part.tool_name: part.content for part in parts if isinstance(part, ToolReturnPart)}


async def main(plugin: str, state: str) -> None:
    settings = Settings().with_(environment="development", state=state, executables={"python3": sys.executable})
    async with Bridge(settings, plugins=[Path(plugin)], grant=True, remember=False) as bridge:
        async with bridge.run("pydantic", purpose="interop") as run:
            agent = Agent(TestModel(call_tools=[ECHO]), tools=[tool(run, each) for each in await run.tools()])
            tried = returned((await agent.run("Call the tool.")).all_messages())
            both = await agent.run("Call both.", model=FunctionModel(calls_both))
            seen = returned(both.all_messages())
        view, steps = await bridge.traces.run(run.id)
    found = [{"tool": step.tool, "outcome": step.outcome, "code": step.code, "run": step.run} for step in steps]
    trace = {"run": {"id": view.id, "agent": view.agent, "state": view.state}, "steps": found}
    print(json.dumps({"tried": tried, "seen": seen, "trace": trace}))


asyncio.run(main(*sys.argv[2:]))
