"""The Python SDK, first generation."""

from __future__ import annotations

import asyncio

from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from said import ECHO, FAIL, SLEEP, say, started, url


async def main() -> None:
    progress: list[float] = []

    async def see(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    command = started()
    way = stdio_client(StdioServerParameters(**command)) if command else sse_client(url())
    async with way as (read, write), ClientSession(read, write) as session:
        welcome = await session.initialize()
        listed = await session.list_tools()
        echoed = await session.call_tool(*ECHO)
        failed = await session.call_tool(*FAIL)
        await session.call_tool(*SLEEP, progress_callback=see)
        assert failed.isError
        say(
            revision=welcome.protocolVersion,
            tools=[tool.name for tool in listed.tools],
            echo=echoed.structuredContent["message"],
            failure=failed.content[0].text,
            progress=progress,
        )


asyncio.run(main())
