"""Where an approval is looked at and given: at the bridge that runs here, or in this process where none runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...hookspecs import ApprovalState, ApprovalView, BridgeUnreachable, CommandView, PluginNotFound, ToolApproval
from ..bridge import Bridge, state_directory
from ..settings import Settings
from ..store import Store
from .client import LONG_SECONDS, Api, quoted
from .reach import Reach, waiting
from .running import run

T = TypeVar("T")


class Desk(Protocol):
    """Shows an approval and takes the yes."""

    def view(self) -> ApprovalView:
        """All that it rests on now; starts nothing."""

    def relisted(self) -> ApprovalView:
        """The same, with what an approved plugin's server lists now."""

    def approve(self, digest: str, tools: Sequence[str] | None = None, unsandboxed: bool = False) -> ApprovalView:
        """Say yes to what was shown."""

    def grant(self, view: ApprovalView) -> None:
        """Grant the permissions that were shown."""


def desk_for(target: Reach, plugin: str) -> Desk:
    """For an installed plugin, by its id, the running bridge if there is one; for a directory this process."""
    if target.url is not None:
        return There(Api(target.url, target.token), plugin)
    place = _installed(target.settings, plugin)
    if place is not None:
        with suppress(BridgeUnreachable):  # one without an API reads what is approved at the next start
            if (api := target.api()) is not None:
                return There(api, plugin)
        return Here(target.settings, place)
    if Path(plugin).is_dir():
        return Here(target.settings, Path(plugin))
    raise PluginNotFound(f"no plugin {plugin!r} is installed", hint="a directory with a plugin.yaml may be given, too")


def _installed(settings: Settings, plugin: str) -> Path | None:
    with Store.open(state_directory(settings)) as store:
        return next((record.directory for record in store.load_plugins() if record.plugin_id == plugin), None)


@dataclass(frozen=True, slots=True)
class Here:
    """In this process; a bridge that has this one plugin and starts nothing of its own accord."""

    settings: Settings
    directory: Path

    def view(self) -> ApprovalView:
        return self._with(lambda bridge, name: bridge.plugins.approval(name))

    def relisted(self) -> ApprovalView:
        async def look(bridge: Bridge, name: str) -> ApprovalView:
            await bridge.plugins.relist(name)
            return await bridge.plugins.approval(name)

        with waiting("starting its server to see what it lists"):
            return self._with(look)

    def approve(self, digest: str, tools: Sequence[str] | None = None, unsandboxed: bool = False) -> ApprovalView:
        async def yes(bridge: Bridge, name: str) -> ApprovalView:
            if (await bridge.plugins.approval(name)).state is ApprovalState.COMPLETE:
                await bridge.plugins.relist(name)
            return await bridge.plugins.approve(name, digest, tools=tools, unsandboxed=unsandboxed)

        with waiting("fetching and starting what was approved"):
            return self._with(yes)

    def grant(self, view: ApprovalView) -> None:
        if self.settings.approvals is not None:
            return  # a reviewed file grants what it shows
        with Store.open(state_directory(self.settings)) as store:
            store.set_grants(view.plugin_id, self.directory.resolve(), view.manifest, view.permissions)

    def _with(self, work: Callable[[Bridge, str], Awaitable[T]]) -> T:
        async def here() -> T:
            async with Bridge(self.settings, remember=False) as bridge:
                view = await bridge.plugins.install(self.directory, keep=False)
                return await work(bridge, view.plugin_id)

        return run(here())


@dataclass(frozen=True, slots=True)
class There:
    """At a running bridge."""

    api: Api
    plugin: str

    def view(self) -> ApprovalView:
        return _read(self.api.send("GET", self._path("approval"), seconds=LONG_SECONDS))

    def relisted(self) -> ApprovalView:
        return self.view()  # it knows what a server that runs lists, and lists anew whenever one is started

    def approve(self, digest: str, tools: Sequence[str] | None = None, unsandboxed: bool = False) -> ApprovalView:
        body: dict[str, Any] = {"digest": digest, "unsandboxed": unsandboxed}
        if tools is not None:
            body["tools"] = list(tools)
        with waiting("the bridge fetches and starts what was approved"):
            return _read(self.api.send("POST", self._path("approval"), body, seconds=LONG_SECONDS))

    def grant(self, view: ApprovalView) -> None:
        self.api.send("PUT", self._path("permissions"), {"permissions": list(view.permissions)}, seconds=LONG_SECONDS)

    def _path(self, what: str) -> str:
        return f"/api/plugins/{quoted(self.plugin)}/{what}"


def _read(data: Any) -> ApprovalView:
    """The view as the API wrote it."""
    command = data["command"]
    return ApprovalView(
        **{
            **data,
            "state": ApprovalState(data["state"]),
            "command": None if command is None else CommandView(**command),
            "tools": tuple(ToolApproval(**tool) for tool in data["tools"]),
        }
    )
