"""A small server on the Python SDK 2.x: structure, a failure, progress, a wait without end, an odd name."""

from __future__ import annotations

import anyio
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("sample1")
given_up_waits: list[str] = []


class Out(BaseModel):
    a: int
    b: str | None = None


@server.tool(description="add")
def add(a: int, b: int = 2, note: str | None = None) -> int:
    return a + b


@server.tool(name="weird/name with space")
def weird(x: dict[str, int] | list[str]) -> Out:
    return Out(a=len(x), b=type(x).__name__)


@server.tool()
def noargs() -> str:
    return "nothing was needed"


@server.tool()
def boom():
    raise ValueError("boom went off")


@server.tool()
async def count(to: int, context: Context) -> str:
    for step in range(1, to + 1):
        await context.report_progress(step, to, f"step {step}")
    return f"counted to {to}"


@server.tool()
async def wait(label: str, context: Context) -> str:
    await context.report_progress(0, 1)
    try:
        await anyio.sleep_forever()
    finally:
        given_up_waits.append(label)


@server.tool()
def given_up() -> list[str]:
    return given_up_waits


@server.tool()
def chatter() -> str:
    print("a line that is no message")
    return "said"


server.run()
