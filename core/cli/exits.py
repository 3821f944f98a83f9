"""The exit codes of the command line; `docs/cli.md` explains them to users."""

from __future__ import annotations

from ...hookspecs.errors import (
    ApprovalOutdated,
    BasculeError,
    BridgeUnreachable,
    DirectoryForbidden,
    ExtensionError,
    HookPluginError,
    McpError,
    PluginError,
    PluginHostUnavailable,
    PluginNotFound,
    PluginPermissionRequired,
    RequestInvalid,
    ScopeRequired,
    SettingsInvalid,
    StateLocked,
    StateUnavailable,
    TokenRequired,
    ToolArgumentsInvalid,
    ToolCallTimeout,
    ToolConfirmationDeclined,
    ToolConfirmationUnavailable,
    ToolNotFound,
    ToolPermissionDenied,
    TraceNotFound,
    TrustApprovalRequired,
)

FAILED = 1
USAGE = 2
REFUSED = 3
NOT_FOUND = 4
PLUGIN = 5
TIMED_OUT = 6
STATE = 7
UNREACHABLE = 8
INTERNAL = 70
HUNG_UP = 129
INTERRUPTED = 130
TERMINATED = 143

_BY_ERROR: tuple[tuple[type[BasculeError], int], ...] = (
    (TrustApprovalRequired, REFUSED),
    (ApprovalOutdated, REFUSED),
    (PluginPermissionRequired, REFUSED),
    (ToolPermissionDenied, REFUSED),
    (ToolConfirmationUnavailable, REFUSED),
    (ToolConfirmationDeclined, REFUSED),
    (TokenRequired, REFUSED),
    (ScopeRequired, REFUSED),
    (DirectoryForbidden, REFUSED),
    (RequestInvalid, USAGE),
    (ToolArgumentsInvalid, USAGE),
    (SettingsInvalid, USAGE),
    (ToolNotFound, NOT_FOUND),
    (PluginNotFound, NOT_FOUND),
    (TraceNotFound, NOT_FOUND),
    (ToolCallTimeout, TIMED_OUT),
    (BridgeUnreachable, UNREACHABLE),
    (StateLocked, STATE),
    (StateUnavailable, STATE),
    (PluginHostUnavailable, PLUGIN),
    (ExtensionError, PLUGIN),
    (PluginError, PLUGIN),
    (McpError, PLUGIN),
    (HookPluginError, PLUGIN),
)


def exit_code(error: BasculeError) -> int:
    """The code for ``error``: the first row that fits; a failed call is 1."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), FAILED)
