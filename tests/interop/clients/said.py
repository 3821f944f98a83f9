"""What every client here does with the echo plugin, and the line that it prints about it."""

from __future__ import annotations

import json
import sys
from typing import Any

WORDS = "grüße, 世界 🐟\u2028"
FAILURE = "it failed, as it should"
STEPS = 3

ECHO = "mcp-fixture.echo", {"message": WORDS}
FAIL = "mcp-fixture.fail", {"message": FAILURE}
SLEEP = "mcp-fixture.sleep", {"seconds": 0.3, "progress": STEPS}


def url() -> str:
    """Where the server is."""
    return sys.argv[1]


def started() -> dict[str, Any] | None:
    """The command and its arguments in place of the address, where the client is to start the server itself."""
    return json.loads(sys.argv[1]) if sys.argv[1].startswith("{") else None


def entry() -> dict[str, Any]:
    """What many clients keep in a file about the servers that they know."""
    return {"mcpServers": {"bascule": started() or {"type": "sse", "url": url()}}}


def say(**seen: Any) -> None:
    """Print what was seen: ``None`` stands where this client shows nothing."""
    print(json.dumps({"revision": None, "progress": None, **seen}))
