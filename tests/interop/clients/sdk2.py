"""The Python SDK, second generation; the second argument is its mode, ``auto`` or ``legacy``."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from said import ECHO, FAIL, SLEEP, say, started, url


async def main() -> None:
    progress: list[float] = []

    async def see(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    command = started()
    way = stdio_client(StdioServerParameters(**command)) if command else sse_client(url())
    async with Client(way, mode=sys.argv[2]) as client:
        listed = await client.list_tools()
        echoed = await client.call_tool(*ECHO)
        failed = await client.call_tool(*FAIL)
        await client.call_tool(*SLEEP, progress_callback=see)
        assert failed.is_error
        say(
            revision=client.protocol_version,
            tools=[tool.name for tool in listed.tools],
            echo=echoed.structured_content["message"],
            failure=failed.content[0].text,
            progress=progress,
        )


asyncio.run(main())
