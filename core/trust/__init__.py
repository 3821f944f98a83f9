"""What the owner approved, and whether what would run now is still that (SEP-1024, N6.10).

``tree`` and ``look`` gather the facts, ``facts`` and ``pins`` compare them with what was approved, ``kept`` keeps it.
Nothing here starts a plugin.
"""

from .facts import command_digest, differences, whole_digest
from .kept import Approval, InState, Kept
from .look import Look, Looker, command_view, read_plugin
from .packages import Packages
from .pins import INSTRUCTIONS, Pins, Verdict, judge, tool_digest
from .reviewed import InFile
from .runs import PackageRun, read_run
from .signature import Signature, Signed, listing, verify

__all__ = [
    "INSTRUCTIONS",
    "Approval",
    "InFile",
    "InState",
    "Kept",
    "Look",
    "Looker",
    "PackageRun",
    "Packages",
    "Pins",
    "Signature",
    "Signed",
    "Verdict",
    "command_digest",
    "command_view",
    "differences",
    "judge",
    "listing",
    "read_plugin",
    "read_run",
    "tool_digest",
    "verify",
    "whole_digest",
]
