"""The MCP Inspector's command line: one process for each question.

What follows the address is the runtime, its program and how it is told of the server: ``url``, or ``entry`` for a file
as many clients have one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from said import ECHO, FAIL, entry, say, url

NODE, PROGRAM, HOW = sys.argv[2:]
SERVER = ["--config", "servers.json", "--server", "bascule"] if HOW == "entry" else [url(), "--transport", "sse"]
Path("servers.json").write_text(json.dumps(entry()))


def ask(*arguments: str) -> tuple[int, Any]:
    """Its exit code and the result that it shows."""
    command = [NODE, PROGRAM, "--cli", *SERVER, *arguments]
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
