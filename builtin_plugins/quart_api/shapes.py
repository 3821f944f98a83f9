"""The shapes of bodies and answers that no value of the contract has already; ``/openapi.json`` shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...hookspecs import PluginView, RunView, Step


class Body(BaseModel):
    """A request's body: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class Directory(Body):
    """Where a plugin stands: an absolute path below one of the owner's ``plugin_roots``."""

    directory: Annotated[str, Field(pattern=r"^/[^\x00]*$", max_length=4096)]


class Permissions(Body):
    """The whole of what the plugin may do from now on."""

    permissions: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=1000)]


class Yes(Body):
    """The owner's yes to what the approval showed: its `digest`, the tools that leave quarantine (null: all)."""

    digest: Annotated[str, Field(min_length=1, max_length=200)]
    tools: Annotated[list[Annotated[str, Field(min_length=1, max_length=400)]], Field(max_length=20_000)] | None = None
    unsandboxed: bool = False


class Shape(BaseModel):
    """What an answer looks like."""


class Plugins(Shape):
    """All installed plugins, by id."""

    plugins: list[PluginView]


class HostOperation(Shape):
    """What became of the host; when it is answered, all is done (N7.3)."""

    plugin_id: str
    status: Literal["stopped", "starting", "ready", "unhealthy", "error"]
    message: str


class Logs(Shape):
    """The masked end of the server's stderr."""

    text: str


class Tool(Shape):
    """A tool. ``parameters`` and ``output_schema`` are JSON Schemas as its server wrote them."""

    name: str
    description: str
    parameters: dict[str, Any]
    permission: str
    source: str
    plugin_id: str
    alias: str
    groups: list[str]
    visibility: Literal["public", "restricted", "sensitive"]
    confirm: bool
    title: str = ""
    output_schema: dict[str, Any] = {}


class Tools(Shape):
    """The tools that this token may call; with ``format``, as that dialect describes them.

    ``notes`` then tells, by the tool's name, what the dialect could not say of it.
    """

    tools: list[Tool | dict[str, Any]]
    notes: dict[str, list[str]] = {}


class CallResult(Shape):
    """What a tool answered. ``output`` is its structured content where there is any, else ``content``."""

    output: Any
    content: list[dict[str, Any]]
    failed: bool
    trace_id: str | None


class RunList(Shape):
    """The newest runs first."""

    runs: list[RunView]


class RunTrace(Shape):
    """A run with its steps in order."""

    run: RunView
    steps: list[Step]


class Health(Shape):
    """It answers."""

    status: Literal["ok"]


class Readiness(Shape):
    """``waiting`` names what is not ready; why, says ``/api/status``."""

    ready: bool
    waiting: list[str]


# no control characters, and none that turn the direction of what stands around them
_Label = Annotated[
    str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+$", min_length=1, max_length=200)
]


class NewRun(Body):
    """An agent's run."""

    agent: _Label
    purpose: Annotated[str, Field(max_length=2000)] | None = None


class Finish(Body):
    """How it ended."""

    state: Literal["finished", "failed"] = "finished"
