"""The tools that can be called now. A plugin's tools come and go as one set (N4.1.10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..hookspecs import BasculeError, LogListener, PluginToolConflict, ProgressListener, ToolDefinition, ToolResult
from .hygiene import skeleton

if TYPE_CHECKING:
    from .contracts import Validator


class Outgoing(Protocol):
    """A call that is ready: ``send`` puts it on its way, or fails it; ``answer`` waits for what comes of it."""

    @property
    def sent_at(self) -> float: ...

    def send(self, error: BasculeError | None = None) -> None: ...

    async def answer(self) -> ToolResult: ...


class Destination(Protocol):
    """Where a tool's calls are sent. ``arguments`` are JSON."""

    @property
    def generation(self) -> int: ...

    def prepare(
        self, remote_name: str, arguments: bytes, progress: ProgressListener | None, logs: LogListener | None
    ) -> Outgoing: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool with all that a call needs, made once when it is registered."""

    tool: ToolDefinition
    arguments: Validator
    output: Validator | None
    granted: frozenset[str]
    destination: Destination


class Registry:
    """Looked up by id or alias; listed in the order of ids. ``watchers`` are called when there are other tools."""

    def __init__(self) -> None:
        self._by_name: dict[str, Entry] = {}
        self._by_plugin: dict[str, tuple[Entry, ...]] = {}
        self._looks: dict[str, dict[str, str]] = {}  # a skeleton: for each plugin, the server's name that has it
        self._listed: tuple[Entry, ...] = ()
        self.watchers: set[Callable[[], None]] = set()
        self.written: dict[tuple[str, str], bytes] = {}
        """What the MCP edge wrote of a tool, by its id and the way of its name; empty again with every change."""

    def find(self, name: str) -> Entry | None:
        """The tool of this id or alias."""
        return self._by_name.get(name)

    def entries(self) -> tuple[Entry, ...]:
        """Every tool, in the order of their ids."""
        return self._listed

    def of(self, plugin_id: str) -> tuple[Entry, ...]:
        """One plugin's tools."""
        return self._by_plugin.get(plugin_id, ())

    def check_free(self, plugin_id: str, names: Sequence[str]) -> None:
        """Raise ``PluginToolConflict`` where another plugin holds one of ``names``, or one that looks like it (N4.1.2).

        That two plugins have tools of one name is no deceit: their ids differ.
        """
        for other in self._by_plugin:
            if other != plugin_id and skeleton(other).lower() == skeleton(plugin_id).lower():
                raise _deceives(plugin_id, other, other)
        for name in names:
            taken = self._by_name.get(name)
            if taken is not None and taken.tool.plugin_id != plugin_id:
                raise PluginToolConflict(
                    f"{name!r} is registered already, by {taken.tool.plugin_id}",
                    hint=f"disable {taken.tool.plugin_id} first, or rename the tool",
                )
            remote = _remote(name)
            for owner, other in self._looks.get(skeleton(remote), {}).items():
                if owner != plugin_id and other != remote:
                    raise _deceives(name, other, owner)

    def replace(self, plugin_id: str, entries: Sequence[Entry]) -> None:
        """Put ``entries`` in the place of the plugin's tools, all or none."""
        names = [name for entry in entries for name in (entry.tool.name, entry.tool.alias)]
        self.check_free(plugin_id, names)
        self.withdraw(plugin_id)
        self._by_plugin[plugin_id] = tuple(entries)
        for entry in entries:
            self._by_name[entry.tool.alias] = entry
            self._by_name[entry.tool.name] = entry
        self._relist()

    def withdraw(self, plugin_id: str) -> bool:
        """Take the plugin's tools away; ``False`` where there were none."""
        entries = self._by_plugin.pop(plugin_id, None)
        if entries is None:
            return False
        for entry in entries:
            self._by_name.pop(entry.tool.name, None)
            self._by_name.pop(entry.tool.alias, None)
        self._relist()
        return True

    def _relist(self) -> None:
        everything = [entry for entries in self._by_plugin.values() for entry in entries]
        self._listed = tuple(sorted(everything, key=lambda entry: entry.tool.name))
        self.written.clear()
        self._looks = {}
        for entry in everything:
            remote = _remote(entry.tool.name)
            self._looks.setdefault(skeleton(remote), {})[entry.tool.plugin_id] = remote
        for watcher in tuple(self.watchers):
            watcher()


def _remote(name: str) -> str:
    """The server's part of a tool's id; nothing of an alias, which has no dot."""
    return name.partition(".")[2]


def _deceives(name: str, other: str, owner: str) -> PluginToolConflict:
    return PluginToolConflict(
        f"{name!r} looks like {other!r} of {owner}", hint=f"rename it, or disable {owner} if that one deceives"
    )
