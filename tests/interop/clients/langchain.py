"""LangChain's adapter: each tool becomes one of LangChain's, and opens a session for each call."""

from __future__ import annotations

import asyncio
import json

from langchain_mcp_adapters.client import MultiServerMCPClient
from said import FAILURE, WORDS, say, url


async def main() -> None:
    client = MultiServerMCPClient({"bascule": {"transport": "sse", "url": f"{url()}?names=flat"}})
    tools = {tool.name: tool for tool in await client.get_tools()}
    echoed = await tools["mcp-fixture__echo"].ainvoke({"message": WORDS})
    failed = await tools["mcp-fixture__fail"].ainvoke({"message": FAILURE})
    say(tools=list(tools), echo=json.loads(echoed[0]["text"])["message"], failure=failed[0]["text"])


asyncio.run(main())
