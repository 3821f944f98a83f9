"""The tools as OpenAI's agents see them; a run of one needs a model, its side of the protocol does not."""

from __future__ import annotations

import asyncio

from agents import Agent, RunContextWrapper
from agents.mcp import MCPServerSse, MCPUtil
from said import FAILURE, WORDS, say, url


async def main() -> None:
    async with MCPServerSse({"url": f"{url()}?names=flat"}) as server:
        functions = await MCPUtil.get_function_tools(server, False, RunContextWrapper(None), Agent("an agent"))
        echoed = await server.call_tool("mcp-fixture__echo", {"message": WORDS})
        failed = await server.call_tool("mcp-fixture__fail", {"message": FAILURE})
        assert failed.is_error
        say(
            tools=[function.name for function in functions],
            echo=echoed.structured_content["message"],
            failure=failed.content[0].text,
        )


asyncio.run(main())
