"""mcp-remote makes a stdio server of an address, for hosts that speak nothing else; the SDK plays such a host.

What follows the address is the runtime, the program and the transport that it should try.
"""

from __future__ import annotations

import asyncio
import sys

from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from said import ECHO, FAIL, SLEEP, say, url


async def main() -> None:
    progress: list[float] = []

    async def see(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    node, program, transport = sys.argv[2:]
    bridge = StdioServerParameters(command=node, args=[program, url(), "--allow-http", "--transport", transport])
    async with stdio_client(bridge) as (read, write), ClientSession(read, write) as session:
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
