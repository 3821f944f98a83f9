"""The life of plugins over HTTP (N7). What was begun goes on when whoever asked for it leaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from ...hookspecs import (
    ApprovalOutdated,
    ApprovalView,
    DirectoryForbidden,
    HostView,
    ManifestInvalid,
    ManifestNotFound,
    McpCapabilityMissing,
    McpProtocolError,
    McpToolInvalid,
    McpVersionUnsupported,
    PackageFetchFailed,
    PackageNotFound,
    PackageUnpinned,
    PackageUnsafe,
    PluginAlreadyInstalled,
    PluginContributionInvalid,
    PluginHostStartFailed,
    PluginHostUnavailable,
    PluginNotFound,
    PluginPermissionRequired,
    PluginPermissionUndeclared,
    PluginToolConflict,
    PluginView,
    StateUnavailable,
    TrustApprovalRequired,
)
from .answers import Answer
from .operations import ADMIN, READ, Request, Rest, operation, operations_of
from .shapes import Directory, HostOperation, Logs, Permissions, Plugins, Yes

_TAG = "plugins"
_START_ERRORS = (
    PluginNotFound,
    TrustApprovalRequired,
    PluginPermissionRequired,
    PluginPermissionUndeclared,
    PluginToolConflict,
    PluginContributionInvalid,
    McpToolInvalid,
    PackageNotFound,
    McpProtocolError,
    McpVersionUnsupported,
    McpCapabilityMissing,
    PluginHostStartFailed,
    PluginHostUnavailable,
    StateUnavailable,
)
_LOOK_ERRORS = (PackageNotFound, ManifestNotFound, ManifestInvalid, PackageUnsafe, PackageUnpinned)


@operation("GET", "/api/plugins", _TAG, READ, answers=Plugins)
async def list_plugins(rest: Rest, request: Request) -> Answer:
    """List the installed plugins."""
    return Answer({"plugins": rest.bridge.plugins.list()})


@operation(
    "POST",
    "/api/plugins",
    _TAG,
    ADMIN,
    status=201,
    answers=PluginView,
    body=Directory,
    body_example={"directory": "/srv/bascule/plugins/clock"},
    errors=(
        DirectoryForbidden,
        PackageNotFound,
        ManifestNotFound,
        ManifestInvalid,
        PluginAlreadyInstalled,
        StateUnavailable,
    ),
    links=tuple((each, "plugin_id", "body#/plugin_id") for each in ("get_plugin", "set_permissions", "enable_plugin")),
)
async def install_plugin(rest: Rest, request: Request) -> Answer:
    """Install a plugin from a directory.

    Only its manifest is read; nothing is started. The directory must stand below one of the owner's `plugin_roots`,
    symbolic links resolved. A command line is never taken from a request.
    """
    wanted = request.parsed(Directory).directory
    directory = await asyncio.to_thread(_below_a_root, wanted, rest.roots)
    view = await rest.bridge.plugins.install(directory)
    return Answer(view, 201, {"Location": f"/api/plugins/{view.plugin_id}"})


def _below_a_root(wanted: str, roots: Sequence[Path]) -> Path:
    """Resolve ``wanted``; what stands outside is refused alike whether it exists or not."""
    directory = Path(os.path.realpath(wanted))
    if not any(directory.is_relative_to(os.path.realpath(root)) for root in roots):
        raise DirectoryForbidden(
            "plugins are installed from below the owner's plugin_roots alone, and this directory is not",
            hint="add the directory's parent to plugin_roots in bascule.yaml",
        )
    return directory


@operation("GET", "/api/plugins/{plugin_id}", _TAG, READ, answers=PluginView, errors=(PluginNotFound,))
async def get_plugin(rest: Rest, request: Request) -> Answer:
    """Show a plugin."""
    return Answer(rest.bridge.plugins.get(request.path["plugin_id"]))


@operation("DELETE", "/api/plugins/{plugin_id}", _TAG, ADMIN, status=204, errors=(PluginNotFound, StateUnavailable))
async def remove_plugin(rest: Rest, request: Request) -> Answer:
    """Disable a plugin and forget it; its directory is left alone."""
    await rest.bridge.plugins.uninstall(request.path["plugin_id"])
    return Answer(None, 204)


@operation(
    "PUT",
    "/api/plugins/{plugin_id}/permissions",
    _TAG,
    ADMIN,
    answers=PluginView,
    body=Permissions,
    body_example={"permissions": ["tools.call", "notes.read"]},
    errors=(PluginNotFound, PluginPermissionUndeclared, StateUnavailable),
)
async def set_permissions(rest: Rest, request: Request) -> Answer:
    """Grant permissions: these, and no others.

    Taking one away from an enabled plugin disables it.
    """
    permissions = request.parsed(Permissions).permissions
    return Answer(await rest.bridge.plugins.grant(request.path["plugin_id"], permissions))


@operation("POST", "/api/plugins/{plugin_id}/enable", _TAG, ADMIN, answers=PluginView, errors=_START_ERRORS)
async def enable_plugin(rest: Rest, request: Request) -> Answer:
    """Start the plugin's server and register its tools, all or nothing."""
    return Answer(await rest.bridge.plugins.enable(request.path["plugin_id"]))


@operation(
    "POST",
    "/api/plugins/{plugin_id}/disable",
    _TAG,
    ADMIN,
    answers=PluginView,
    errors=(PluginNotFound, StateUnavailable),
)
async def disable_plugin(rest: Rest, request: Request) -> Answer:
    """Withdraw the plugin's tools, then end its server."""
    return Answer(await rest.bridge.plugins.disable(request.path["plugin_id"]))


@operation("GET", "/api/plugins/{plugin_id}/host", _TAG, READ, answers=HostView, errors=(PluginNotFound,))
async def get_host(rest: Rest, request: Request) -> Answer:
    """Show the running side of a plugin."""
    return Answer(rest.bridge.plugins.get(request.path["plugin_id"]).host)


@operation(
    "POST",
    "/api/plugins/{plugin_id}/host/restart",
    _TAG,
    ADMIN,
    status=202,
    answers=HostOperation,
    errors=(*_START_ERRORS, (PluginHostUnavailable, 409)),
    example={"plugin_id": "clock", "status": "ready", "message": "the host of clock is ready"},
)
async def restart_host(rest: Rest, request: Request) -> Answer:
    """Restart a running or failed host.

    When this answers, restart and discovery are complete; `message` gives the host's final status. A plugin that is
    disabled, was never enabled or waits for grants answers 409: it starts by `enable` alone.
    """
    view = await rest.bridge.plugins.restart(request.path["plugin_id"])
    status = view.host.status
    return Answer({"plugin_id": view.plugin_id, "status": status, "message": f"the host is {status}"}, 202)


@operation(
    "GET",
    "/api/plugins/{plugin_id}/approval",
    _TAG,
    ADMIN,
    answers=ApprovalView,
    errors=(PluginNotFound, *_LOOK_ERRORS),
)
async def get_approval(rest: Rest, request: Request) -> Answer:
    """Show all that the plugin's approval rests on, as it is now.

    Nothing is started. `digest` is what a yes must name.
    """
    return Answer(await rest.bridge.plugins.approval(request.path["plugin_id"]))


@operation(
    "POST",
    "/api/plugins/{plugin_id}/approval",
    _TAG,
    ADMIN,
    answers=ApprovalView,
    body=Yes,
    body_example={"digest": "sha256:9f86d081884c7d659a2feaa0c55ad015"},
    errors=(*_START_ERRORS, *_LOOK_ERRORS, PackageFetchFailed, ApprovalOutdated),
)
async def approve(rest: Rest, request: Request) -> Answer:
    """Say yes to what the approval showed.

    The first yes is to the command: the server is started once, without grants and calls, and what it lists stands in
    the answer. The second is to the tools. Where something else would run now than was shown, the answer is 409.
    """
    yes = request.parsed(Yes)
    plugins = rest.bridge.plugins
    view = await plugins.approve(request.path["plugin_id"], yes.digest, tools=yes.tools, unsandboxed=yes.unsandboxed)
    return Answer(view)


@operation("GET", "/api/plugins/{plugin_id}/logs", _TAG, ADMIN, answers=Logs, errors=(PluginNotFound,))
async def get_logs(rest: Rest, request: Request) -> Answer:
    """Read the masked end of what the plugin's server wrote to stderr."""
    return Answer({"text": rest.bridge.plugins.logs(request.path["plugin_id"])})


OPERATIONS = operations_of(globals())
