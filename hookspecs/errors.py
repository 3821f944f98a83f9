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

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .tools import ToolResult


class BasculeError(Exception):
    """The root: whoever catches this catches all that Bascule raises on purpose.

    ``where`` names the place (a file and line, a JSON pointer, a plugin), ``hint`` the cure.
    """

    code: ClassVar[str] = "BASCULE_ERROR"
    status: int = 500

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        diagnosis: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.diagnosis = diagnosis

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def as_dict(self) -> dict[str, Any]:
        """What may be shown to anyone: no diagnosis."""
        shown = {"code": self.code, "message": self.message, "where": self.where, "hint": self.hint}
        return {key: value for key, value in shown.items() if value is not None}


class SettingsInvalid(BasculeError):
    """A setting is missing, unknown or out of its bounds."""

    code = "SETTINGS_INVALID"
    status = 422


class StateLocked(BasculeError):
    """Another bridge works on this state directory."""

    code = "STATE_LOCKED"
    status = 409


class StateUnavailable(BasculeError):
    """The state directory can't be read or written, or was written by a newer Bascule."""

    code = "STATE_UNAVAILABLE"
    status = 503


class BridgeUnreachable(BasculeError):
    """No bridge runs where one was looked for, or it does not answer as one."""

    code = "BRIDGE_UNREACHABLE"
    status = 503


class HookPluginError(BasculeError):
    """A hook plugin (code that the owner installed) is the matter."""


class HookPluginBroken(HookPluginError):
    """It did not import, misspelt a hook, or offered something that breaks the hook's contract."""

    code = "HOOK_PLUGIN_BROKEN"


class HookConflict(HookPluginError):
    """Two hook plugins offer the same name, or two distributions register one entry point."""

    code = "HOOK_CONFLICT"
    status = 409


class HookPluginRequired(HookPluginError):
    """A hook plugin that guards calls is missing; server transports stay closed."""

    code = "HOOK_PLUGIN_REQUIRED"
    status = 503


class ExtensionError(BasculeError):
    """What stands in a plugin's directory is wrong; nothing was started."""


class PackageNotFound(ExtensionError):
    """The directory, or the executable that its manifest names, does not exist."""

    code = "EXTENSION_PACKAGE_NOT_FOUND"
    status = 404


class PackageUnsafe(ExtensionError):
    """The plugin's directory holds what no approval can be bound to: a link out of it, a device, too many files."""

    code = "EXTENSION_PACKAGE_UNSAFE"
    status = 422


class PackageUnpinned(ExtensionError):
    """The command has a package run that it does not pin, so that what runs is not what was approved (N6.11)."""

    code = "EXTENSION_PACKAGE_UNPINNED"
    status = 422


class PackageFetchFailed(ExtensionError):
    """The package that the command runs could not be fetched, or is not what was fetched before."""

    code = "EXTENSION_PACKAGE_FETCH_FAILED"
    status = 502


class ManifestNotFound(ExtensionError):
    """The directory holds no ``plugin.yaml``."""

    code = "EXTENSION_MANIFEST_NOT_FOUND"
    status = 404


class ManifestInvalid(ExtensionError):
    """``plugin.yaml`` can't be read or says something that it may not.

    ``problems`` has one entry a fault: ``{line, field, problem, hint}``.
    """

    code = "EXTENSION_MANIFEST_INVALID"
    status = 422

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        problems: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.problems = tuple(problems)

    def as_dict(self) -> dict[str, Any]:
        shown = super().as_dict()
        if self.problems:
            shown["problems"] = [dict(problem) for problem in self.problems]
        return shown


class ExtensionIdInvalid(ManifestInvalid):
    """The plugin's id is not ``^[a-z0-9][a-z0-9_-]{0,62}$``."""

    code = "EXTENSION_ID_INVALID"


class ExtensionPermissionInvalid(ManifestInvalid):
    """The manifest names a permission that no one has registered."""

    code = "EXTENSION_PERMISSION_INVALID"


class PluginError(BasculeError):
    """An installed plugin can't do what was asked."""


class PluginNotFound(PluginError):
    """No plugin of this id is installed."""

    code = "PLUGIN_NOT_FOUND"
    status = 404


class PluginAlreadyInstalled(PluginError):
    """A plugin of this id stands here from another directory."""

    code = "PLUGIN_ALREADY_INSTALLED"
    status = 409


class PluginPermissionRequired(PluginError):
    """The owner has not granted everything that the manifest declares."""

    code = "PLUGIN_PERMISSION_REQUIRED"
    status = 409


class PluginPermissionUndeclared(PluginError):
    """A tool asks for a permission that its plugin's manifest does not declare."""

    code = "PLUGIN_PERMISSION_UNDECLARED"
    status = 422


class PluginToolConflict(PluginError):
    """A tool's id, or its alias, is taken by another plugin."""

    code = "PLUGIN_TOOL_CONFLICT"
    status = 409


class PluginContributionInvalid(PluginError):
    """The tools that the server lists are not those that the manifest declares."""

    code = "PLUGIN_CONTRIBUTION_INVALID"
    status = 422


class PluginHostStartFailed(PluginError):
    """The server's process did not start, or ended or stayed silent before it was ready."""

    code = "PLUGIN_HOST_START_FAILED"
    status = 503


class ApprovalOutdated(PluginError):
    """The owner was shown something else than what would run now, or has to be shown more."""

    code = "PLUGIN_APPROVAL_OUTDATED"
    status = 409


class PluginIsolationUnavailable(PluginError):
    """No launcher that may be used here keeps the plugin apart as far as its manifest or its owner demands."""

    code = "PLUGIN_ISOLATION_UNAVAILABLE"
    status = 503


class TrustApprovalRequired(PluginError):
    """Outside ``development`` a plugin needs its owner's approval; no process was created (N6.9, N6.10).

    ``difference`` says in words what is not as it was approved; empty where nothing was.
    """

    code = "MCP_TRUST_APPROVAL_REQUIRED"
    status = 403

    def __init__(self, message: str, *, hint: str | None = None, difference: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.difference = tuple(difference)

    def as_dict(self) -> dict[str, Any]:
        shown = super().as_dict()
        if self.difference:
            shown["difference"] = list(self.difference)
        return shown


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


class TraceNotFound(BasculeError):
    """No run or step of this id is kept: it never was, or it is older than the bound on traces."""

    code = "TRACE_NOT_FOUND"
    status = 404


class RequestError(BasculeError):
    """An HTTP request itself is at fault, whatever it asks for."""


class RequestRefused(RequestError):
    """Host, origin, framing, size, path or method: ``status`` says which, in HTTP's own words (RFC 9110)."""

    code = "REQUEST_REFUSED"
    status = 400

    def __init__(self, message: str, *, status: int = 400, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class RequestInvalid(RequestError):
    """The body or a parameter does not fit.

    ``problems`` has ``{pointer, problem}`` for each fault; a pointer leads into the body, or names the parameter.
    """

    code = "REQUEST_INVALID"
    status = 422

    def __init__(self, message: str, *, hint: str | None = None, problems: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


class TokenRequired(RequestError):
    """There is no bearer token, or it is unknown or revoked."""

    code = "TOKEN_REQUIRED"
    status = 401


class ScopeRequired(RequestError):
    """The token has none of the scopes that this takes."""

    code = "SCOPE_REQUIRED"
    status = 403


class DirectoryForbidden(RequestError):
    """Over HTTP, plugins are installed from below ``plugin_roots`` alone."""

    code = "PLUGIN_DIRECTORY_FORBIDDEN"
    status = 403


class RunError(BasculeError):
    """An agent's run is the matter."""


class RunNotFound(RunError):
    """No run of this id was opened, or by someone else: the text is the same for both."""

    code = "RUN_NOT_FOUND"
    status = 404


class RunEnded(RunError):
    """The run has been finished, or had no call for so long that it counts as abandoned."""

    code = "RUN_ENDED"
    status = 409


class RunLimitReached(RunError):
    """This owner has as many runs open as the limits allow."""

    code = "RUN_LIMIT_REACHED"
    status = 429


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
