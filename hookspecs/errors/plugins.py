"""Errors of a plugin: what stands in its directory, and what becomes of it once installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .base import BasculeError


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
