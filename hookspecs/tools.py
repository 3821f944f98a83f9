"""What a tool is, who calls it, and what comes back.

These values are free of any protocol: agents and REST clients see them, never a raw MCP message (N1.1). What a
tool or a result came as is kept beside them, untouched, in ``origin``; converters and the MCP edge alone read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

JsonObject = Mapping[str, Any]
"""A decoded JSON object. Explicit nulls are ``None``; what was left out is absent."""

DEFAULT_PERMISSION = "tools.call"
"""What a tool needs for which neither its plugin's manifest nor its server says anything else (N5.4)."""


class Visibility(StrEnum):
    """How freely a tool may be shown and used.

    ``RESTRICTED`` is exposed only where the way in allows it; ``SENSITIVE`` is restricted, and each call
    needs a person's yes besides (A5).
    """

    PUBLIC = "public"
    RESTRICTED = "restricted"
    SENSITIVE = "sensitive"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a value came as: ``value`` is the JSON of ``dialect``, complete and unchanged."""

    dialect: str
    value: JsonObject


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as the registry holds it.

    ``name`` is ``<plugin_id>.<remote name>`` (N5.1), ``alias`` the same tool for consumers that take only
    ``[A-Za-z0-9_-]{1,64}``: a function of the name alone. ``parameters`` and ``output_schema`` are JSON
    Schemas as the server wrote them. ``remote_name`` is what goes over the wire.
    """

    name: str
    description: str
    parameters: JsonObject
    permission: str = DEFAULT_PERMISSION
    source: str = "plugin"
    plugin_id: str = ""
    remote_name: str = ""
    alias: str = ""
    title: str | None = None
    output_schema: JsonObject | None = None
    groups: frozenset[str] = frozenset()
    visibility: Visibility = Visibility.PUBLIC
    confirm: bool = False
    origin: Origin | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The tool as JSON for agents, REST clients and the command line (N5); ``origin`` is left out."""
        shown: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "permission": self.permission,
            "source": self.source,
            "plugin_id": self.plugin_id,
            "alias": self.alias,
            "groups": sorted(self.groups),
            "visibility": str(self.visibility),
            "confirm": self.confirm,
        }
        if self.title is not None:
            shown["title"] = self.title
        if self.output_schema is not None:
            shown["output_schema"] = self.output_schema
        return shown


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a token belongs to; ``scopes`` are some of ``call``, ``read``, ``admin``: three authorities, not ranks."""

    name: str
    scopes: frozenset[str] = frozenset({"call"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. ``session`` tells apart callers that share the rest; calls in flight are bounded for each.

    ``address`` is where the caller is, ``client`` what it says that it is, which is never to be trusted; both are
    empty where nothing is known.
    """

    platform: str
    user: str
    session: str
    transport: str
    identity: Identity | None = None
    address: str = ""
    client: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call on its way. ``arguments`` go to the server exactly as they stand here."""

    tool: str
    arguments: JsonObject
    caller: Caller
    run: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered.

    ``output`` is the structured content where there is any, else the list in ``content`` (N5.6). ``content``
    holds the content blocks as JSON objects. ``failed`` is the tool's own word that it failed (N5.7). ``trace_id`` is
    the step that the call left in the traces; the gateway fills it in.
    """

    output: Any
    content: Sequence[JsonObject] = ()
    failed: bool = False
    origin: Origin | None = field(default=None, repr=False)
    trace_id: str | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        texts = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in texts if isinstance(text, str))


@dataclass(frozen=True, slots=True)
class Progress:
    """A sign of life from a running call: ``progress`` of ``total`` (absent where unknown), and words."""

    progress: float
    total: float | None = None
    message: str | None = None


ProgressListener = Callable[[Progress], None]
"""Called in order, on the event loop, and never after the call's result. It must not block."""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """What a server says beside its answers. ``level`` is a word of RFC 5424, ``data`` any JSON value."""

    level: str
    data: Any
    logger: str | None = None


LogListener = Callable[[LogMessage], None]
"""Called in order, on the event loop. It must not block; what it raises is logged."""
