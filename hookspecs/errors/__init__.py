"""Every error that Bascule raises on purpose, and the wire's view of each.

::

    BasculeError
    ├── SettingsInvalid            SETTINGS_INVALID                422  bascule.yaml
    ├── StateLocked                STATE_LOCKED                    409  another bridge holds the state directory
    ├── BridgeUnreachable          BRIDGE_UNREACHABLE              503  no bridge runs, or none answers
    ├── StateUnavailable           STATE_UNAVAILABLE               503  the state directory can't be read or written
    ├── HookPluginError
    │   ├── HookPluginBroken       HOOK_PLUGIN_BROKEN              500  did not load, or broke its hook's contract
    │   ├── HookConflict           HOOK_CONFLICT                   409  two hook plugins offer the same name
    │   └── HookPluginRequired     HOOK_PLUGIN_REQUIRED            503  a check or a policy is missing: stay closed
    ├── ExtensionError                                                  what stands in a plugin's directory
    │   ├── PackageNotFound        EXTENSION_PACKAGE_NOT_FOUND     404
    │   ├── PackageUnsafe          EXTENSION_PACKAGE_UNSAFE        422  a link out of it, a device: can't be approved
    │   ├── PackageUnpinned        EXTENSION_PACKAGE_UNPINNED      422  its command runs whatever is newest
    │   ├── PackageFetchFailed     EXTENSION_PACKAGE_FETCH_FAILED  502
    │   ├── ManifestNotFound       EXTENSION_MANIFEST_NOT_FOUND    404
    │   ├── ManifestInvalid        EXTENSION_MANIFEST_INVALID      422
    │   ├── ExtensionIdInvalid     EXTENSION_ID_INVALID            422
    │   └── ExtensionPermissionInvalid  EXTENSION_PERMISSION_INVALID  422
    ├── PluginError                                                     what becomes of an installed plugin
    │   ├── PluginNotFound         PLUGIN_NOT_FOUND                404
    │   ├── PluginAlreadyInstalled PLUGIN_ALREADY_INSTALLED        409
    │   ├── PluginPermissionRequired    PLUGIN_PERMISSION_REQUIRED     409
    │   ├── PluginPermissionUndeclared  PLUGIN_PERMISSION_UNDECLARED   422
    │   ├── PluginToolConflict     PLUGIN_TOOL_CONFLICT            409
    │   ├── PluginContributionInvalid   PLUGIN_CONTRIBUTION_INVALID    422
    │   ├── PluginHostStartFailed  PLUGIN_HOST_START_FAILED        503
    │   ├── ApprovalOutdated       PLUGIN_APPROVAL_OUTDATED        409  something else was shown than would run now
    │   ├── PluginIsolationUnavailable  PLUGIN_ISOLATION_UNAVAILABLE   503  no launcher here isolates as it must
    │   └── TrustApprovalRequired  MCP_TRUST_APPROVAL_REQUIRED     403
    ├── McpError                                                        the server broke the protocol's rules
    │   ├── McpProtocolError       MCP_PROTOCOL_ERROR              502
    │   ├── McpVersionUnsupported  MCP_VERSION_UNSUPPORTED         502
    │   ├── McpCapabilityMissing   MCP_CAPABILITY_MISSING          502
    │   └── McpToolInvalid         MCP_TOOL_INVALID                422
    ├── ChannelClosed              CHANNEL_CLOSED                  503  a channel can carry no more messages
    │   └── ChannelFault           CHANNEL_FAULT                   502  the peer broke the channel's framing or bounds
    ├── TraceNotFound              TRACE_NOT_FOUND                 404
    ├── RequestError                                                    an HTTP request itself is at fault
    │   ├── RequestRefused         REQUEST_REFUSED                 400  or another: host, framing, size, path, method
    │   ├── RequestInvalid         REQUEST_INVALID                 422  its body or a parameter does not fit
    │   ├── TokenRequired          TOKEN_REQUIRED                  401
    │   ├── ScopeRequired          SCOPE_REQUIRED                  403
    │   └── DirectoryForbidden     PLUGIN_DIRECTORY_FORBIDDEN      403  outside ``plugin_roots``
    ├── RunError                                                        an agent's run
    │   ├── RunNotFound            RUN_NOT_FOUND                   404  unknown and foreign alike
    │   ├── RunEnded               RUN_ENDED                       409  finished, failed, abandoned
    │   └── RunLimitReached        RUN_LIMIT_REACHED               429  too many are open
    ├── ConversionUnsupported      CONVERSION_UNSUPPORTED          422  a converter has no such direction
    └── CallError                                                       one call did not succeed
        ├── ToolNotFound           TOOL_NOT_FOUND                  404  unknown, hidden and unexposed alike
        ├── ToolArgumentsInvalid   TOOL_ARGUMENTS_INVALID          422
        ├── ToolPermissionDenied   TOOL_PERMISSION_DENIED          403
        ├── ToolConfirmationUnavailable TOOL_CONFIRMATION_UNAVAILABLE  409
        ├── ToolConfirmationDeclined    TOOL_CONFIRMATION_DECLINED     409
        ├── ToolBusy               TOOL_BUSY                       429
        ├── ToolCallTimeout        TOOL_CALL_TIMEOUT               504
        ├── ToolCallCancelled      TOOL_CALL_CANCELLED             499
        ├── ToolCallFailed         MCP_TOOL_CALL_FAILED            502  the tool itself says that it failed
        ├── ToolResultTooLarge     MCP_TOOL_RESULT_TOO_LARGE       502
        ├── ToolResultInvalid      MCP_PROTOCOL_ERROR              502  the answer is no tool result
        └── PluginHostUnavailable  PLUGIN_HOST_UNAVAILABLE         503  409 where a restart is refused

``code`` is stable and meant for programs; the text is meant for people and says what was wrong, where it
stands and what to do next. ``diagnosis`` is for the owner alone (the end of a server's stderr, an exit code);
it never stands in an answer, an event or a trace (requirement N6.4).
"""

from __future__ import annotations

from .base import (
    BasculeError,
    BridgeUnreachable,
    HookConflict,
    HookPluginBroken,
    HookPluginError,
    HookPluginRequired,
    SettingsInvalid,
    StateLocked,
    StateUnavailable,
)
from .calls import (
    CallError,
    PluginHostUnavailable,
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
)
from .plugins import (
    ApprovalOutdated,
    ExtensionError,
    ExtensionIdInvalid,
    ExtensionPermissionInvalid,
    ManifestInvalid,
    ManifestNotFound,
    PackageFetchFailed,
    PackageNotFound,
    PackageUnpinned,
    PackageUnsafe,
    PluginAlreadyInstalled,
    PluginContributionInvalid,
    PluginError,
    PluginHostStartFailed,
    PluginIsolationUnavailable,
    PluginNotFound,
    PluginPermissionRequired,
    PluginPermissionUndeclared,
    PluginToolConflict,
    TrustApprovalRequired,
)
from .protocol import (
    ChannelClosed,
    ChannelFault,
    ConversionUnsupported,
    McpCapabilityMissing,
    McpError,
    McpProtocolError,
    McpToolInvalid,
    McpVersionUnsupported,
)
from .requests import (
    DirectoryForbidden,
    RequestError,
    RequestInvalid,
    RequestRefused,
    RunEnded,
    RunError,
    RunLimitReached,
    RunNotFound,
    ScopeRequired,
    TokenRequired,
    TraceNotFound,
)

__all__ = [
    "ApprovalOutdated",
    "BasculeError",
    "BridgeUnreachable",
    "CallError",
    "ChannelClosed",
    "ChannelFault",
    "ConversionUnsupported",
    "DirectoryForbidden",
    "ExtensionError",
    "ExtensionIdInvalid",
    "ExtensionPermissionInvalid",
    "HookConflict",
    "HookPluginBroken",
    "HookPluginError",
    "HookPluginRequired",
    "ManifestInvalid",
    "ManifestNotFound",
    "McpCapabilityMissing",
    "McpError",
    "McpProtocolError",
    "McpToolInvalid",
    "McpVersionUnsupported",
    "PackageFetchFailed",
    "PackageNotFound",
    "PackageUnpinned",
    "PackageUnsafe",
    "PluginAlreadyInstalled",
    "PluginContributionInvalid",
    "PluginError",
    "PluginHostStartFailed",
    "PluginHostUnavailable",
    "PluginIsolationUnavailable",
    "PluginNotFound",
    "PluginPermissionRequired",
    "PluginPermissionUndeclared",
    "PluginToolConflict",
    "RequestError",
    "RequestInvalid",
    "RequestRefused",
    "RunEnded",
    "RunError",
    "RunLimitReached",
    "RunNotFound",
    "ScopeRequired",
    "SettingsInvalid",
    "StateLocked",
    "StateUnavailable",
    "TokenRequired",
    "ToolArgumentsInvalid",
    "ToolBusy",
    "ToolCallCancelled",
    "ToolCallFailed",
    "ToolCallTimeout",
    "ToolConfirmationDeclined",
    "ToolConfirmationUnavailable",
    "ToolNotFound",
    "ToolPermissionDenied",
    "ToolResultInvalid",
    "ToolResultTooLarge",
    "TraceNotFound",
    "TrustApprovalRequired",
]
