"""The launcher ``seatbelt``, for macOS: a profile for ``sandbox-exec``, limits, and an end with the bridge. Untested.

Written from Apple's documents and the profiles that others use, and never seen to work: no one may use it before the
owner's settings say ``allow_untested_launchers: true``. The profile denies everything and opens the same places as the
other launchers. A process that leaves the server's session is not caught, and nothing bounds memory: macOS enforces no
``RLIMIT_DATA``.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...hookspecs import Isolation, Launcher, LaunchPlan, Network, hookimpl
from . import places
from .child import Orders, SupervisedChild, supervise

_SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_SYSTEM = ("/System", "/Library/Apple", "/usr/lib", "/usr/share", "/usr/bin", "/bin", "/private/etc/ssl", "/dev")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class SeatbeltLauncher:
    """Starts the server under a seatbelt profile."""

    name = "seatbelt"
    isolation = Isolation.REDUCED
    untested = True

    def available(self) -> str | None:
        """Look for the program."""
        if platform.system() != "Darwin":
            return "seatbelt is a part of macOS"
        return None if shutil.which(_SANDBOX_EXEC) else f"there is no {_SANDBOX_EXEC}"

    async def launch(self, plan: LaunchPlan) -> SupervisedChild:
        places.prepare(plan, None)
        temporary = plan.env.get("TMPDIR")
        if temporary is not None and plan.isolation.data is not None:
            os.makedirs(temporary, mode=0o700, exist_ok=True)
        argv = [_SANDBOX_EXEC, "-p", profile(plan), *plan.argv]
        bounds = places.bounds(plan.isolation) | {"RLIMIT_NPROC": plan.isolation.processes}
        return await supervise(plan, Orders(argv, plan.env, str(plan.cwd), bounds))


def profile(plan: LaunchPlan) -> str:
    """The profile, in the language of ``sandbox-exec``; the last rule that fits decides."""
    return "\n".join(_lines(plan))


def _lines(plan: LaunchPlan) -> Iterator[str]:
    isolation = plan.isolation
    yield "(version 1)"
    yield "(deny default)"
    yield "(allow process-fork process-exec)"
    yield "(allow signal (target same-sandbox))"
    yield "(allow sysctl-read)"
    yield "(allow file-read-metadata)"
    for place in (*map(Path, _SYSTEM), *places.readable(plan)):
        yield f"(allow file-read* {_place(place)})"
    for device in _DEVICES:
        yield f"(allow file-read* file-write* (literal {_text(device)}))"
    for hidden in isolation.hidden:
        yield f"(deny file-read* file-write* {_place(hidden)})"
    for place in isolation.writable:
        yield f"(allow file-read* file-write* {_place(place)})"
    if isolation.network is Network.ANY:
        yield "(allow network-outbound (remote ip))"
        yield "(allow network-inbound network-bind (local ip))"
        yield '(allow mach-lookup (global-name "com.apple.dnssd.service"))'


def _place(place: Path) -> str:
    return f"({'literal' if place.is_file() else 'subpath'} {_text(os.path.realpath(place))})"


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@hookimpl
def bascule_launchers() -> Iterable[Launcher]:
    """Offer ``seatbelt``."""
    return [SeatbeltLauncher()]
