"""fastmcp, both generations: the bare address is enough, its path says that it is SSE.

With the argument ``entry`` it is given what many clients keep in a file instead.
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client
from said import ECHO, FAIL, SLEEP, entry, say, url


async def main() -> None:
    progress: list[float] = []

    async def see(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async with Client(entry() if sys.argv[2:] == ["entry"] else url()) as client:
        tools = await client.list_tools()
        echoed = await client.call_tool(*ECHO)
        failed = await client.call_tool(*FAIL, raise_on_error=False)
        await client.call_tool(*SLEEP, progress_handler=see)
        assert failed.is_error
        say(
            tools=[tool.name for tool in tools],
            echo=echoed.structured_content["message"],
            failure=failed.content[0].text,
            progress=progress,
        )


asyncio.run(main())
