"""The contract between Bascule and its hook plugins: the one import of whoever writes one.

A hook plugin is a module (or an object) whose functions carry ``@hookimpl`` and the name of a hook, registered as an
entry point::

    # my_transport.py
    from bascule.hookspecs import Channel, ConnectContext, Section, hookimpl

    class TcpBackend(Section):
        host: str
        port: int

    class TcpTransport:
        name = "tcp"
        backend_model = TcpBackend
        starts_process = False

        def preview(self, backend, directory):
            return None

        def connect(self, backend, context):
            return open_tcp_channel(backend.host, backend.port, context.limits)

    @hookimpl
    def bascule_client_transports(config):
        return [TcpTransport()]

    # pyproject.toml
    [project.entry-points."bascule.plugins"]
    tcp = "my_transport"

Every hook is synchronous and called once, when the bridge is assembled, as ``(config) -> Iterable[...]``; an
implementation may leave ``config`` out. Asynchronous work lives in the objects that the hook returns. A hook
returns described things and changes nothing: the core checks all answers for conflicts in one place, and reports
a hook plugin that breaks its contract by name, without harm to the others.

========================== ======================================= ==========================================
hook                       offers                                  several answers
========================== ======================================= ==========================================
bascule_client_transports  ways to reach MCP servers               names are unique
bascule_server_transports  ways in for callers                     names are unique
bascule_tool_converters    dialects of tools and results           dialects are unique
bascule_permission_checks  verdicts on every call                  Deny > Ask > Allow; silence of all is no
bascule_exposure_policies  who may know which tool                 all must agree; none at all shows nothing
bascule_permissions        words that manifests may declare        names are unique
bascule_launchers          ways to start a child process           names are unique
bascule_http_servers       programs that run an ASGI app           names are unique
bascule_observers          listeners to events                     all are told
========================== ======================================= ==========================================

Values and hooks only grow within a major version: arguments and fields may be added, none is removed.
"""

from __future__ import annotations

from . import errors
from .approvals import ApprovalState, ApprovalView, CommandView, ToolApproval
from .bridge import (
    AskPerson,
    BridgeStatus,
    BridgeView,
    Gateway,
    HostStatus,
    HostView,
    HttpPolicy,
    Identities,
    PluginAdmin,
    PluginState,
    PluginView,
    Run,
    Runs,
    RunView,
    SessionOptions,
    StandardStreams,
    Step,
    TraceReader,
)
from .config import Config, Limits, Section
from .converters import ForeignTool, ToolConverter
from .errors import *  # noqa: F403 - told once, there
from .exposure import EVERYTHING, Exposure, ExposurePolicy
from .http_servers import ASGIApp, Bind, HttpServer
from .launchers import (
    ByteReader,
    ByteWriter,
    Child,
    Isolation,
    IsolationRequest,
    Launcher,
    LaunchPlan,
    LaunchRequest,
    Network,
    loads_code,
)
from .markers import ENTRY_POINT_GROUP, PROJECT, hookimpl, hookspec
from .observers import CallEnded, Event, HostChanged, Lost, Observer, ToolsChanged
from .permissions import (
    CORE_PERMISSIONS,
    Allow,
    Ask,
    CallFacts,
    Deny,
    Permission,
    PermissionCheck,
    Verdict,
)
from .prompt import KnownHead, Prompt, PromptAnswer, PromptApp, answer_body, show_head
from .schemas import BASIC_KEYWORDS, MORE_KEYWORDS, Accepted, Weakened, weaken
from .secret import Secret
from .tools import (
    DEFAULT_PERMISSION,
    Caller,
    Identity,
    JsonObject,
    LogListener,
    LogMessage,
    Origin,
    Progress,
    ProgressListener,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Visibility,
)
from .transports import Channel, ClientTransport, ConnectContext, Diagnostics, Directions, ServerTransport

__all__ = [
    "BASIC_KEYWORDS",
    "CORE_PERMISSIONS",
    "DEFAULT_PERMISSION",
    "ENTRY_POINT_GROUP",
    "EVERYTHING",
    "MORE_KEYWORDS",
    "PROJECT",
    "ASGIApp",
    "Accepted",
    "Allow",
    "ApprovalState",
    "ApprovalView",
    "Ask",
    "AskPerson",
    "Bind",
    "BridgeStatus",
    "BridgeView",
    "ByteReader",
    "ByteWriter",
    "CallEnded",
    "CallFacts",
    "Caller",
    "Channel",
    "Child",
    "ClientTransport",
    "CommandView",
    "Config",
    "ConnectContext",
    "Deny",
    "Diagnostics",
    "Directions",
    "Event",
    "Exposure",
    "ExposurePolicy",
    "ForeignTool",
    "Gateway",
    "HostChanged",
    "HostStatus",
    "HostView",
    "HttpPolicy",
    "HttpServer",
    "Identities",
    "Identity",
    "Isolation",
    "IsolationRequest",
    "JsonObject",
    "KnownHead",
    "LaunchPlan",
    "LaunchRequest",
    "Launcher",
    "Limits",
    "LogListener",
    "LogMessage",
    "Lost",
    "Network",
    "Observer",
    "Origin",
    "Permission",
    "PermissionCheck",
    "PluginAdmin",
    "PluginState",
    "PluginView",
    "Progress",
    "ProgressListener",
    "Prompt",
    "PromptAnswer",
    "PromptApp",
    "Run",
    "RunView",
    "Runs",
    "Secret",
    "Section",
    "ServerTransport",
    "SessionOptions",
    "StandardStreams",
    "Step",
    "ToolApproval",
    "ToolCall",
    "ToolConverter",
    "ToolDefinition",
    "ToolResult",
    "ToolsChanged",
    "TraceReader",
    "Verdict",
    "Visibility",
    "Weakened",
    "answer_body",
    "hookimpl",
    "hookspec",
    "loads_code",
    "show_head",
    "weaken",
]
__all__ += errors.__all__
