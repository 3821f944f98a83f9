"""The Python SDK gives a call up: what comes after must find the place free."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mcp import Client, MCPError
from mcp.client.sse import sse_client
from said import ECHO, say, url


async def main() -> None:
    async with Client(sse_client(url())) as client:
        with suppress(MCPError):
            await client.call_tool("mcp-fixture.sleep", {"seconds": 100}, read_timeout_seconds=0.3)
            raise AssertionError("it was answered")
        after = await client.call_tool(*ECHO)
        async with asyncio.timeout(30):  # the cancel is a request of its own, and may be overtaken by what comes after
            while after.is_error:
                after = await client.call_tool(*ECHO)
        say(after=after.structured_content and after.structured_content["message"])


asyncio.run(main())
