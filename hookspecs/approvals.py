"""What the owner is shown of a plugin and says yes to (SEP-1024), as a server transport may see it.

There are two questions. The first is the command: everything that decides what will run. After a yes the server is
started once, without grants and without a call, to see what it lists; the second question is its tools. ``digest`` is
what a yes is given to: whoever sends back another one has been shown something else, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ApprovalState(StrEnum):
    """How far the owner has come with a plugin.

    ``none``: nothing was approved; ``command``: the command was, its tools wait; ``complete``: both were;
    ``changed``: both were, and what would run now is something else.
    """

    NONE = "none"
    COMMAND = "command"
    COMPLETE = "complete"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class CommandView:
    """The complete command, untruncated. ``executable`` is what is started, ``resolved`` the file behind its links.

    ``sha256`` is that file's, in hex; all three are empty while a package is still to be fetched. ``environment`` names
    every variable that the child sees, ``declared`` those to which the manifest gives a value, ``passed`` those that it
    lets through from the bridge's own environment.
    """

    executable: str
    resolved: str
    sha256: str
    argv: tuple[str, ...]
    cwd: str
    environment: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolApproval:
    """One tool as its server lists it. ``state`` is ``new``, ``approved``, ``changed`` or ``missing``.

    ``sha256`` is the digest of its whole definition; ``difference`` says in words what is not as it was approved,
    ``flags`` what of its texts should be looked at twice: phrases that read like instructions to a model.
    """

    name: str
    state: str
    sha256: str
    description: str = ""
    permission: str = ""
    visibility: str = "public"
    confirm: bool = False
    groups: tuple[str, ...] = ()
    difference: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """All that a plugin's approval rests on.

    ``digest`` is what :meth:`PluginAdmin.approve` wants back: the command's in the states ``none`` and ``changed``,
    the whole's, with the tools, in the others. ``tree`` is the digest of the ``files`` files in the plugin's directory.
    ``isolation`` is what is asked of the launcher, ``tier`` what it really gives on this machine. ``source`` says where
    the code comes from, ``signature`` who signed it, in words. ``pending``: a yes is wanted before this may run.
    ``required``: it is asked for at all, which environment development does not.
    """

    plugin_id: str
    state: ApprovalState
    digest: str
    required: bool
    pending: bool
    command: CommandView | None
    manifest: str
    tree: str
    files: int
    permissions: tuple[str, ...]
    launcher: str
    tier: str
    isolation: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    signature: str = "none"
    tools: tuple[ToolApproval, ...] = ()
    instructions: str | None = None
    difference: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    approved_at: str | None = None
