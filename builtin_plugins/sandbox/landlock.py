"""The launcher ``landlock``: Landlock, seccomp and limits, for machines without user namespaces. Isolates less.

The server sees the machine's file system and may open only what is named: the same places as under ``bubblewrap``, but
no ``/tmp`` and no ``/proc``. It can still learn that a file exists, and see how large it is. Without ``network: any``
it can open no socket. Where the bridge is root the server becomes an unprivileged user, which must be able to reach
its places: Landlock opens no door that the file system's own permissions close.

The system calls and their flags: ``Documentation/userspace-api/landlock.rst`` of the kernel.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from ...hookspecs import Isolation, Launcher, LaunchPlan, Network, PluginHostStartFailed, hookimpl
from . import cgroup, places, seccomp
from .child import Orders, SupervisedChild, supervise

_CREATE_RULESET, _VERSION_ONLY = 444, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1  # those of the first version
_RIGHTS_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_BIND_AND_CONNECT = 1 << 0 | 1 << 1  # TCP
_ABSTRACT_SOCKETS_AND_SIGNALS = 1 << 0 | 1 << 1

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class LandlockLauncher:
    """Starts the server under Landlock and seccomp."""

    name = "landlock"
    isolation = Isolation.REDUCED

    def available(self) -> str | None:
        """Ask the kernel."""
        if platform.system() != "Linux":
            return "Landlock is a part of Linux"
        if not seccomp.supported():
            return "there is no table of system calls for this machine's architecture"
        return None if version() > 0 else "this kernel has no Landlock, or has it turned off"

    async def launch(self, plan: LaunchPlan) -> SupervisedChild:
        isolation = plan.isolation
        _refuse_to_show(plan)
        uid = places.unprivileged_uid(plan)
        places.prepare(plan, uid)
        _make_temporary(plan, uid)
        network = isolation.network is Network.ANY
        program = seccomp.program(sockets=seccomp.families(network), by_path=False)
        confine = {
            "uid": uid,
            "processes": isolation.processes,
            "handled": _handled(version(), network),
            "rules": [(os.fspath(path), access) for path, access in _rules(plan, version())],
            "seccomp": program,
        }
        orders = Orders(plan.argv, plan.env, str(plan.cwd), places.bounds(isolation), confine=confine)
        return await supervise(plan, orders, cgroup.leaf(isolation.memory_mb, isolation.processes))


@cache
def version() -> int:
    """The version of Landlock's interface that this kernel offers; 0 where it offers none."""
    if platform.system() != "Linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_ONLY))
    return max(0, int(found))


def _known(abi: int) -> int:
    rights = _FIRST_RIGHTS
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        rights |= right if abi >= since else 0
    return rights


def _handled(abi: int, network: bool) -> bytes:
    """``struct landlock_ruleset_attr``: what is forbidden unless a rule allows it."""
    fields = [_known(abi)]
    if abi >= 4:
        fields.append(0 if network else _BIND_AND_CONNECT)
    if abi >= 6:
        fields.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    return struct.pack(f"={len(fields)}Q", *fields)


def _rules(plan: LaunchPlan, abi: int) -> Iterator[tuple[Path, int]]:
    isolation = plan.isolation
    settings = places.SETTINGS + (places.SETTINGS_OF_NETWORK if isolation.network is Network.ANY else ())
    for path in (*map(Path, (*places.SYSTEM, *settings)), *places.readable(plan)):
        if path.exists():
            yield path, _for(path, _READ)
    for path in map(Path, _DEVICES):
        yield path, _READ_FILE | _WRITE_FILE
    for path in isolation.writable:
        yield path, _for(path, _known(abi) & ~_MAKE_DEVICES)


def _for(path: Path, access: int) -> int:
    return access if path.is_dir() else access & _RIGHTS_OF_FILES


def _refuse_to_show(plan: LaunchPlan) -> None:
    """Landlock has no exceptions: what lies in a place that is open is open."""
    for hidden in plan.isolation.hidden:
        for place in (*places.readable(plan), *plan.isolation.writable):
            if hidden.is_relative_to(place):
                raise PluginHostStartFailed(
                    f"{place} holds the bridge's state directory {hidden}, which no server may see",
                    hint="keep the state elsewhere (--state DIR), or use the launcher bubblewrap",
                )


def _make_temporary(plan: LaunchPlan, uid: int | None) -> None:
    """The one in the private data directory: the machine's is everyone's."""
    temporary = Path(plan.env.get("TMPDIR", "/"))
    if plan.isolation.data is not None and temporary.is_relative_to(plan.isolation.data):
        temporary.mkdir(mode=0o700, exist_ok=True)
        if uid is not None:
            os.chown(temporary, uid, uid)


@hookimpl
def bascule_launchers() -> Iterable[Launcher]:
    """Offer ``landlock``."""
    return [LandlockLauncher()]
