"""Errors of the way to a server: MCP, the channel that carries it, the shapes of others."""

from __future__ import annotations

from .base import BasculeError


class McpError(BasculeError):
    """The server's conduct breaks MCP, or what we require of it."""

    status = 502


class McpProtocolError(McpError):
    """A message breaks JSON-RPC or MCP, or a bound of ours."""

    code = "MCP_PROTOCOL_ERROR"


class McpVersionUnsupported(McpError):
    """The server answers with a protocol revision that we don't speak."""

    code = "MCP_VERSION_UNSUPPORTED"


class McpCapabilityMissing(McpError):
    """The server does not offer the ``tools`` capability."""

    code = "MCP_CAPABILITY_MISSING"


class McpToolInvalid(McpError):
    """A listed tool has no usable name or schema."""

    code = "MCP_TOOL_INVALID"
    status = 422


class ChannelClosed(BasculeError):
    """The channel can carry no more messages. ``exit_code`` where a process ended."""

    code = "CHANNEL_CLOSED"
    status = 503

    def __init__(self, message: str, *, exit_code: int | None = None, diagnosis: str | None = None) -> None:
        super().__init__(message, diagnosis=diagnosis)
        self.exit_code = exit_code


class ChannelFault(ChannelClosed):
    """The peer broke the channel's framing or one of its bounds: nothing that follows can be trusted."""

    code = "CHANNEL_FAULT"
    status = 502


class ConversionUnsupported(BasculeError):
    """The converter has no such direction (say, one that only writes tools is asked to read a result)."""

    code = "CONVERSION_UNSUPPORTED"
    status = 422
