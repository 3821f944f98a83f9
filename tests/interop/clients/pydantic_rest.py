"""pydantic-ai: an agent whose tools are the operations of our tools' OpenAPI document, called as REST under one run."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, Tool, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from said import FAILURE, WORDS

ECHO, FAIL = "mcp-fixture__echo", "mcp-fixture__fail"


def calls_both(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call both tools in one turn; then say that it is done."""
    if len(messages) > 1:
        return ModelResponse([TextPart("done")])
    return ModelResponse([ToolCallPart(ECHO, {"message": WORDS}, "1"), ToolCallPart(FAIL, {"message": FAILURE}, "2")])


class Rest:
    """The API as any program has it: JSON and a token. A problem is an answer, too."""

    def __init__(self, base: str, token: str) -> None:
        self.base = base
        self.headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    async def __call__(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        return await asyncio.to_thread(self._ask, Request(self.base + path, data, self.headers))

    def _ask(self, request: Request) -> Any:
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except HTTPError as problem:
            return json.load(problem)


def tool(rest: Rest, path: str, operation: dict[str, Any]) -> Tool[None]:
    """A tool of the agent's from one operation of the document."""

    async def call(**arguments: Any) -> Any:
        return await rest(path, arguments)

    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return Tool.from_schema(call, operation["operationId"], operation["description"], schema)


def returned(messages: list[ModelMessage]) -> dict[str, Any]:
    parts = [part for message in messages for part in message.parts]
    return {part.tool_name: part.content for part in parts if isinstance(part, ToolReturnPart)}


async def main(base: str, token: str) -> None:
    rest = Rest(base, token)
    document = await rest("/api/tools/openapi.json")
    run = await rest("/api/runs", {"agent": "pydantic", "purpose": "interop"})
    rest.headers["bascule-run"] = run["id"]
    agent = Agent(TestModel(call_tools=[ECHO]), tools=[tool(rest, p, m["post"]) for p, m in document["paths"].items()])
    tried = returned((await agent.run("Call the tool.")).all_messages())
    both = await agent.run("Call both.", model=FunctionModel(calls_both))
    seen = returned(both.all_messages())
    finished = await rest(f"/api/runs/{run['id']}/finish", {})
    trace = await rest(f"/api/runs/{run['id']}")
    print(json.dumps({"tried": tried, "seen": seen, "finished": finished, "trace": trace}))


asyncio.run(main(*sys.argv[1:]))
