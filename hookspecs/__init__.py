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
from .errors import (
    ApprovalOutdated,
    BasculeError,
    BridgeUnreachable,
    CallError,
    ChannelClosed,
    ChannelFault,
    ConversionUnsupported,
    DirectoryForbidden,
    ExtensionError,
    ExtensionIdInvalid,
    ExtensionPermissionInvalid,
    HookConflict,
    HookPluginBroken,
    HookPluginError,
    HookPluginRequired,
    ManifestInvalid,
    ManifestNotFound,
    McpCapabilityMissing,
    McpError,
    McpProtocolError,
    McpToolInvalid,
    McpVersionUnsupported,
    PackageFetchFailed,
    PackageNotFound,
    PackageUnpinned,
    PackageUnsafe,
    PluginAlreadyInstalled,
    PluginContributionInvalid,
    PluginError,
    PluginHostStartFailed,
    PluginHostUnavailable,
    PluginIsolationUnavailable,
    PluginNotFound,
    PluginPermissionRequired,
    PluginPermissionUndeclared,
    PluginToolConflict,
    RequestError,
    RequestInvalid,
    RequestRefused,
    RunEnded,
    RunError,
    RunLimitReached,
    RunNotFound,
    ScopeRequired,
    SettingsInvalid,
    StateLocked,
    StateUnavailable,
    TokenRequired,
    ToolArgumentsInvalid,
    ToolBusy,
    ToolCallCancelled,
    ToolCallFailed,
    ToolCallTimeout,
    ToolConfirmationDeclined,
    ToolConfirmationUnavailable,
    ToolNotFound,
    ToolPermissionDenied,
    ToolResultInvalid,
    ToolResultTooLarge,
    TraceNotFound,
    TrustApprovalRequired,
)
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
    "ApprovalOutdated",
    "ApprovalState",
    "ApprovalView",
    "Ask",
    "AskPerson",
    "BasculeError",
    "Bind",
    "BridgeStatus",
    "BridgeUnreachable",
    "BridgeView",
    "ByteReader",
    "ByteWriter",
    "CallEnded",
    "CallError",
    "CallFacts",
    "Caller",
    "Channel",
    "ChannelClosed",
    "ChannelFault",
    "Child",
    "ClientTransport",
    "CommandView",
    "Config",
    "ConnectContext",
    "ConversionUnsupported",
    "Deny",
    "Diagnostics",
    "Directions",
    "DirectoryForbidden",
    "Event",
    "Exposure",
    "ExposurePolicy",
    "ExtensionError",
    "ExtensionIdInvalid",
    "ExtensionPermissionInvalid",
    "ForeignTool",
    "Gateway",
    "HookConflict",
    "HookPluginBroken",
    "HookPluginError",
    "HookPluginRequired",
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
    "ManifestInvalid",
    "ManifestNotFound",
    "McpCapabilityMissing",
    "McpError",
    "McpProtocolError",
    "McpToolInvalid",
    "McpVersionUnsupported",
    "Network",
    "Observer",
    "Origin",
    "PackageFetchFailed",
    "PackageNotFound",
    "PackageUnpinned",
    "PackageUnsafe",
    "Permission",
    "PermissionCheck",
    "PluginAdmin",
    "PluginAlreadyInstalled",
    "PluginContributionInvalid",
    "PluginError",
    "PluginHostStartFailed",
    "PluginHostUnavailable",
    "PluginIsolationUnavailable",
    "PluginNotFound",
    "PluginPermissionRequired",
    "PluginPermissionUndeclared",
    "PluginState",
    "PluginToolConflict",
    "PluginView",
    "Progress",
    "ProgressListener",
    "Prompt",
    "PromptAnswer",
    "PromptApp",
    "RequestError",
    "RequestInvalid",
    "RequestRefused",
    "Run",
    "RunEnded",
    "RunError",
    "RunLimitReached",
    "RunNotFound",
    "RunView",
    "Runs",
    "ScopeRequired",
    "Secret",
    "Section",
    "ServerTransport",
    "SessionOptions",
    "SettingsInvalid",
    "StandardStreams",
    "StateLocked",
    "StateUnavailable",
    "Step",
    "TokenRequired",
    "ToolApproval",
    "ToolArgumentsInvalid",
    "ToolBusy",
    "ToolCall",
    "ToolCallCancelled",
    "ToolCallFailed",
    "ToolCallTimeout",
    "ToolConfirmationDeclined",
    "ToolConfirmationUnavailable",
    "ToolConverter",
    "ToolDefinition",
    "ToolNotFound",
    "ToolPermissionDenied",
    "ToolResult",
    "ToolResultInvalid",
    "ToolResultTooLarge",
    "ToolsChanged",
    "TraceNotFound",
    "TraceReader",
    "TrustApprovalRequired",
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
