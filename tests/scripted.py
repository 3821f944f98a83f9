"""A plugin whose server does what a test writes down, and records what reached it in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SERVER = """
import json, os, sys, time

TOOLS = json.load(open("tools.json", encoding="utf-8"))
sys.stdout.reconfigure(encoding="utf-8")

def record(**what):
    with open("record.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\\n")

def say(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def answer(id, result):
    say({"jsonrpc": "2.0", "id": id, "result": result})

def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}

def before(): ...
def call(name, arguments, id, meta):
    return text(json.dumps(arguments), structuredContent={"got": arguments})
def noticed(method, params): ...
def finish(): ...
def initialize(id, params):
    return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "scripted", "version": "1"}}

#CODE

record(start=os.getpid())
before()
for line in sys.stdin.buffer:
    message = json.loads(line)
    method, params, id = message.get("method"), message.get("params") or {}, message.get("id")
    record(method=method, params=params, id=id)
    if id is None:
        noticed(method, params)
    elif method == "initialize":
        result = initialize(id, params)
        if result is not None:
            answer(id, result)
    elif method == "tools/list":
        answer(id, {"tools": TOOLS})
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments"), id, params.get("_meta") or {})
        if result is not None:
            answer(id, result)
    else:
        answer(id, {})
finish()
"""

ANY = {"type": "object"}


class Scripted:
    """The folder of a plugin; ``path`` is what a bridge hosts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self, *keys: str) -> list[dict[str, Any]]:
        """What reached the server, over all its starts; those records alone that have all ``keys``."""
        try:
            lines = (self.path / "record.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        every = [json.loads(line) for line in lines]
        return [record for record in every if set(keys) <= set(record)]

    @property
    def starts(self) -> list[int]:
        """The pid of every start."""
        return [record["start"] for record in self.records("start")]

    def received(self, method: str) -> list[dict[str, Any]]:
        """The messages of this method."""
        return [record for record in self.records("method") if record["method"] == method]


def tool(name: str, schema: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema or ANY, **more}


def scripted(
    folder: Path,
    code: str = "",
    tools: Sequence[str | dict[str, Any]] = ("do",),
    *,
    id: str = "fx",
    **backend: Any,
) -> Scripted:
    """Write a plugin ``id`` below ``folder``; ``code`` defines what of the server is to be another."""
    path = folder / f"plugin-{id}"
    path.mkdir()
    listed = [tool(each) if isinstance(each, str) else each for each in tools]
    (path / "server.py").write_text(_SERVER.replace("#CODE", code), encoding="utf-8")
    (path / "tools.json").write_text(json.dumps(listed), encoding="utf-8")
    manifest = {
        "id": id,
        "name": id,
        "version": "1.0.0",
        "contributes": {"tools": [f"{id}.{each['name']}" for each in listed]},
        "backend": {"type": "mcp", "transport": "stdio", "command": "python3", "args": ["server.py"], **backend},
    }
    (path / "plugin.yaml").write_text(json.dumps(manifest), encoding="utf-8")
    return Scripted(path)
