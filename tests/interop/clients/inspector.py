"""The MCP Inspector's command line: one process for each question. What follows the address is its own command."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from said import ECHO, FAIL, say, url


def ask(*arguments: str) -> tuple[int, Any]:
    """Its exit code and the result that it shows."""
    command = [*sys.argv[2:], "--cli", url(), "--transport", "sse", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        sys.exit(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")


def call(name: str, arguments: dict[str, str]) -> Any:
    told = [f"{key}={value}" for key, value in arguments.items()]
    return ask("--method", "tools/call", "--tool-name", name, "--tool-arg", *told)


code, listed = ask("--method", "tools/list")
assert code == 0
_, echoed = call(*ECHO)
_, failed = call(*FAIL)
assert failed["isError"]
say(
    tools=[tool["name"] for tool in listed["tools"]],
    echo=echoed["structuredContent"]["message"],
    failure=failed["content"][0]["text"],
)
