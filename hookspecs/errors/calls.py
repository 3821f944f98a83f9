"""Errors of one call, each of them a result with ``isError`` at MCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .base import BasculeError

if TYPE_CHECKING:
    from ..tools import ToolResult


class CallError(BasculeError):
    """One call did not succeed. At MCP each of them is a result with ``isError``.

    ``trace_id`` is the step that it left in the traces, ``None`` where it came to none.
    """

    trace_id: str | None = None


class ToolNotFound(CallError):
    """Unknown, hidden from this caller, or not exposed: the text is the same for all three (A4)."""

    code = "TOOL_NOT_FOUND"
    status = 404

    @classmethod
    def named(cls, tool: str) -> ToolNotFound:
        """The one text for a tool that this caller can't have."""
        return cls(
            f"Tool {tool!r} is not available: there is none of this name, or it is not exposed to you",
            hint="list the tools to see those that are",
        )


class ToolArgumentsInvalid(CallError):
    """The arguments do not fit the tool's schema.

    ``problems`` has ``{pointer, problem}`` for each fault that was found, at most ten.
    """

    code = "TOOL_ARGUMENTS_INVALID"
    status = 422

    def __init__(self, message: str, *, hint: str | None = None, problems: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "problems": [dict(problem) for problem in self.problems]}


class ToolPermissionDenied(CallError):
    """A permission check said no, said nothing, or could not say anything in time."""

    code = "TOOL_PERMISSION_DENIED"
    status = 403


class ToolConfirmationUnavailable(CallError):
    """The call needs a person's yes and there is no channel to ask on."""

    code = "TOOL_CONFIRMATION_UNAVAILABLE"
    status = 409


class ToolConfirmationDeclined(CallError):
    """The person who was asked said no, or did not answer in time."""

    code = "TOOL_CONFIRMATION_DECLINED"
    status = 409


class ToolBusy(CallError):
    """Too many calls are in flight, for this caller or at this server."""

    code = "TOOL_BUSY"
    status = 429


class ToolCallTimeout(CallError):
    """The tool did not answer in time; the server was told to stop (N6.8)."""

    code = "TOOL_CALL_TIMEOUT"
    status = 504


class ToolCallCancelled(CallError):
    """Whoever called no longer waits; the server was told to stop (N6.8)."""

    code = "TOOL_CALL_CANCELLED"
    status = 499


class ToolCallFailed(CallError):
    """The tool ran and says that it failed, or the server answered the call with an error (N5.7).

    ``result`` holds the tool's own answer where there is one, so that an edge can relay it whole.
    """

    code = "MCP_TOOL_CALL_FAILED"
    status = 502

    def __init__(self, message: str, *, result: ToolResult | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result


class ToolResultTooLarge(CallError):
    """The result is over the bound (256 KiB unless set otherwise; N5.8)."""

    code = "MCP_TOOL_RESULT_TOO_LARGE"
    status = 502


class ToolResultInvalid(CallError):
    """The server's answer to the call is not a tool result, or holds what must not be relayed."""

    code = "MCP_PROTOCOL_ERROR"
    status = 502


class PluginHostUnavailable(CallError):
    """The plugin's server is not running, went away during the call, or can't be restarted (N4.2.2, N7.4)."""

    code = "PLUGIN_HOST_UNAVAILABLE"
    status = 503

    @classmethod
    def refused(cls, message: str, *, hint: str | None = None) -> PluginHostUnavailable:
        """A restart that this plugin's state does not allow: 409, not 503 (N7.4)."""
        error = cls(message, hint=hint)
        error.status = 409
        return error
