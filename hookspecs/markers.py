"""The two decorators of the contract, and the names under which it is found."""

from __future__ import annotations

import pluggy

PROJECT = "bascule"
"""The pluggy project: hooks and implementations meet under this name."""

ENTRY_POINT_GROUP = "bascule.plugins"
"""The entry point group in which hook plugins register; each entry names a module or an object."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
