"""How the facts of an approval are printed: whole, one argument a line, and nothing in them hidden."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...hookspecs import ApprovalState, ApprovalView, CommandView, ToolApproval
from .output import say

_HEADS = {
    ApprovalState.NONE: "nothing of it was approved yet",
    ApprovalState.COMMAND: "its command was approved, its tools were not yet",
    ApprovalState.COMPLETE: "approved",
    ApprovalState.CHANGED: "was approved, and has changed since",
}


def show_command(view: ApprovalView) -> None:
    """What the first question is about."""
    say(f"{view.plugin_id}: {_HEADS[view.state]}", bold=True)
    _difference(view.difference)
    if view.command is None:
        _row("command", "none: its transport starts no process")
    else:
        _command(view.command)
        _row("isolation", f"{view.tier} (launcher {view.launcher})")
        for name, value in view.isolation.items():
            _row("", f"{name}: {_plain(value)}")
    _row("permissions", ", ".join(view.permissions))
    _row("source", _source(view.source))
    for name, digest in (view.source.get("fetched") or {}).items():
        _row("", f"{name} {digest}")
    _row("signature", view.signature)
    _row("manifest", f"sha256 {view.manifest}")
    _row("files", f"{view.files:,}, sha256 {view.tree}")
    for warning in view.warnings:
        say(f"warning      {warning}", fg="yellow")


def show_tools(view: ApprovalView) -> None:
    """What the second question is about."""
    say(f"\n{view.plugin_id} lists {len(view.tools)} tools", bold=True)
    if view.instructions is not None:
        _row("says", quoted(view.instructions))
    for tool in view.tools:
        _tool(tool)
    _row("permissions", ", ".join(view.permissions))


def show_difference(view: ApprovalView) -> None:
    """What is not as it was approved, and nothing else."""
    say(f"{view.plugin_id}: {_HEADS[view.state]}", bold=True)
    _difference(view.difference)
    for tool in view.tools:
        if tool.state != "approved" and view.state is not ApprovalState.COMMAND:
            say(f"{tool.name} is {tool.state}", fg="yellow")
            _difference(tool.difference)
    if view.pending and view.required:
        say(f"answer with: bascule approve {view.plugin_id}")


def quoted(text: str) -> str:
    """``text`` so that nothing in it hides, and nothing looks like something else."""
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")


def _command(command: CommandView) -> None:
    if command.executable:
        _row("executable", command.executable)
        if command.resolved != command.executable:
            _row("", f"is {command.resolved}")
        _row("", f"sha256 {command.sha256}")
    for index, argument in enumerate(command.argv):
        _row(f"   argv[{index}]", quoted(argument))
    _row("   in", command.cwd)
    if command.environment:
        _row("   sees", ", ".join(command.environment))
    if command.declared:
        _row("   sets", ", ".join(command.declared))
    for name in command.passed:
        say(f"   passes    {name} from your environment", fg="yellow")


def _tool(tool: ToolApproval) -> None:
    marks = [] if tool.visibility == "public" else [tool.visibility]
    about = ", ".join([tool.permission, *marks, *(["confirm"] if tool.confirm else []), *tool.groups])
    say(f"{tool.name}  ({tool.state}; {about})", fg=None if tool.state == "approved" else "yellow")
    _row("", f"sha256 {tool.sha256}")
    _row("", quoted(tool.description))
    for flag in tool.flags:
        say(f"   look at   {flag}", fg="yellow")
    _difference(tool.difference)


def _source(source: Mapping[str, Any]) -> str:
    if source.get("type") == "directory":
        return "the plugin's own directory"
    told = f"{source.get('type')} {source.get('name')} {source.get('version')}"
    return told + ("" if source.get("fetched") else ", to be fetched")


def _difference(lines: Iterable[str]) -> None:
    for line in lines:
        say(f"   differs   {line}", fg="yellow")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _row(label: str, text: str) -> None:
    say(f"{label:<12} {text}")
