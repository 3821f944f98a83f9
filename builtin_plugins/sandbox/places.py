"""What of the file system a sandboxed server gets, and whose it is."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...hookspecs import IsolationRequest, LaunchPlan, PluginHostStartFailed

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Programs and libraries of the system, readable to everyone."""

SETTINGS = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/etc/timezone", "/etc/mime.types", "/etc/magic", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs"),
    *("/etc/pki/ca-trust/extracted", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/os-release"),
)
"""What libraries look at and no one keeps secrets in."""

SETTINGS_OF_NETWORK = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols"),
    *("/etc/host.conf", "/etc/gai.conf"),
)

_FIRST_UID, _UIDS = 60_578, 606  # systemd leaves 60578-61183 to no one (docs: UIDS-GIDS)
_MOST_ENTRIES = 100_000


def unprivileged_uid(plan: LaunchPlan) -> int | None:
    """The user and group that the server becomes where the bridge is root, one for each plugin; else ``None``.

    A plugin's processes are then counted and owned apart from every other's.
    """
    if os.geteuid() != 0:
        return None
    owned = plan.isolation.data or plan.cwd
    with suppress(OSError):
        uid = owned.stat().st_uid
        if _FIRST_UID <= uid < _FIRST_UID + _UIDS:
            return uid
    digest = hashlib.sha256(os.fsencode(owned)).digest()
    return _FIRST_UID + int.from_bytes(digest[:4], "big") % _UIDS


def prepare(plan: LaunchPlan, uid: int | None) -> None:
    """Make the server's own directories, and make them the server's; raise ``PluginHostStartFailed``."""
    isolation = plan.isolation
    for directory in isolation.writable:
        own = directory == isolation.data or directory.is_relative_to(plan.cwd)
        try:
            if own and not directory.exists():
                directory.mkdir(mode=0o700, parents=True)
            if not directory.is_dir():
                raise PluginHostStartFailed(f"{directory}, which the server is to write in, is no directory")
            if own and uid is not None:
                _give(directory, uid)
        except OSError as error:
            reason = error.strerror or str(error)
            raise PluginHostStartFailed(f"{directory}, which the server is to write in: {reason}") from error


def _give(directory: Path, uid: int) -> None:
    """Give ``directory`` and what is in it to ``uid``; links are never followed."""
    if directory.stat().st_uid == uid:
        return
    for count, (fd, name) in enumerate(_below(directory)):
        if count > _MOST_ENTRIES:
            raise PluginHostStartFailed(f"{directory} holds more than {_MOST_ENTRIES:,} files: give it to uid {uid}")
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:  # a second name could lie anywhere
            os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
    os.chown(directory, uid, uid, follow_symlinks=False)


def _below(directory: Path) -> Iterator[tuple[int, str]]:
    for _, folders, files, fd in os.fwalk(directory, follow_symlinks=False):
        for name in (*folders, *files):
            yield fd, name


def readable(plan: LaunchPlan) -> list[Path]:
    """Everything that the server may read and run beside the system's own, without what is below another of them."""
    wanted = sorted({plan.cwd, *plan.isolation.readable})
    kept: list[Path] = []
    for path in wanted:
        if path.exists() and not any(path.is_relative_to(above) for above in (*kept, Path("/usr"))):
            kept.append(path)
    return kept


def bounds(isolation: IsolationRequest) -> dict[str, int]:
    """The limits on each process, by their names in the module ``resource``; processes are counted elsewhere.

    Memory is bounded as data (heap and private writable mappings): runtimes reserve far more addresses than they use.
    """
    return {
        "RLIMIT_DATA": isolation.memory_mb * 1024 * 1024,
        "RLIMIT_FSIZE": isolation.file_mb * 1024 * 1024,
        "RLIMIT_NOFILE": isolation.files,
        "RLIMIT_CORE": 0,
    }
