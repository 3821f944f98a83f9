"""Between a foreign shape of tools and results (a dialect: ``mcp``, ``openai`` …) and ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from .config import Config
from .markers import hookspec
from .tools import JsonObject, Origin, ToolDefinition, ToolResult


@dataclass(frozen=True, slots=True)
class ForeignTool:
    """A tool as someone else describes it, before it has a place in the registry.

    ``permission`` is what the foreign definition itself asks for, ``None`` where it says nothing.
    """

    name: str
    description: str
    parameters: JsonObject
    title: str | None
    output_schema: JsonObject | None
    permission: str | None
    origin: Origin


class ToolConverter(Protocol):
    """One dialect. A direction that it does not have raises ``ConversionUnsupported``.

    A conversion loses nothing that the other side can hold: what came in is kept in ``origin`` and written
    out again unchanged where the dialect is the same. A converter may have a method ``notes(tool)`` besides: a line for
    each thing of a tool that :meth:`write_tool` could not say in its dialect.
    """

    @property
    def dialect(self) -> str: ...

    def read_tool(self, foreign: JsonObject) -> ForeignTool:
        """Read a foreign tool; raise ``McpToolInvalid`` where it is none."""

    def write_tool(self, tool: ToolDefinition) -> JsonObject:
        """Describe ``tool`` in this dialect."""

    def read_result(self, foreign: JsonObject) -> ToolResult:
        """Read a foreign result; raise ``ToolResultInvalid`` where it is none."""

    def write_result(self, result: ToolResult) -> JsonObject:
        """Write ``result`` in this dialect."""

    def read_call(self, foreign: JsonObject) -> tuple[str, JsonObject]:
        """Read a foreign call: the tool's name or alias, and its arguments."""


@hookspec
def bascule_tool_converters(config: Config) -> Iterable[ToolConverter]:
    """Offer dialects for tools and results.

    Called once, when the bridge is assembled. All are offered side by side; dialects are unique. The dialect
    ``mcp`` is what plugins speak: without it no plugin can be enabled.

    Example::

        @hookimpl
        def bascule_tool_converters(config):
            return [GeminiConverter()]
    """
    raise NotImplementedError
