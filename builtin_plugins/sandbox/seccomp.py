"""A seccomp filter as BPF bytes: what no server needs and an escape would begin with.

Everything else is let through; the namespaces, Landlock and the resource limits say what it can reach. The numbers
of the system calls are the kernel's own for x86-64 and 64-bit ARM (``arch/x86/entry/syscalls/syscall_64.tbl``,
``include/uapi/asm-generic/unistd.h``); those above 424 are the same on both. A call by another architecture's
numbers (i386 and x32 programs) kills the process, for the table says nothing about it.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from collections.abc import Iterable, Mapping

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; an argument's low half comes first
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000

_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW…, cgroup and time included
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_SAME = {
    "pidfd_getfd": 438,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "open_tree_attr": 467,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "process_madvise": 440,
    "process_mrelease": 448,
    "quotactl_fd": 443,
    "clone3": 435,
    "fchmodat2": 452,
    "setxattrat": 463,
}
_X86_64 = {
    **_SAME,
    "ioctl": 16,
    "socket": 41,
    "clone": 56,
    "truncate": 76,
    "chmod": 90,
    "chown": 92,
    "lchown": 94,
    "ptrace": 101,
    "syslog": 103,
    "utime": 132,
    "pivot_root": 155,
    "adjtimex": 159,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "setxattr": 188,
    "lsetxattr": 189,
    "removexattr": 197,
    "lremovexattr": 198,
    "utimes": 235,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "clock_settime": 227,
    "fchownat": 260,
    "futimesat": 261,
    "fchmodat": 268,
    "unshare": 272,
    "utimensat": 280,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
}
_AARCH64 = {
    **_SAME,
    "setxattr": 5,
    "lsetxattr": 6,
    "removexattr": 14,
    "lremovexattr": 15,
    "ioctl": 29,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "truncate": 45,
    "chroot": 51,
    "fchmodat": 53,
    "fchownat": 54,
    "quotactl": 60,
    "utimensat": 88,
    "acct": 89,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "syslog": 116,
    "ptrace": 117,
    "reboot": 142,
    "sethostname": 161,
    "setdomainname": 162,
    "settimeofday": 170,
    "adjtimex": 171,
    "socket": 198,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "clone": 220,
    "swapon": 224,
    "swapoff": 225,
    "perf_event_open": 241,
    "fanotify_init": 262,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "clock_adjtime": 266,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}
_MACHINES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (0xC000003E, _X86_64),
    "aarch64": (0xC00000B7, _AARCH64),
}

_WITH_REASON = frozenset({"socket", "clone", "clone3", "ioctl"})
_OF_FILES = frozenset(
    {"truncate", "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat"}
    | {"utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "setxattrat"}
    | {"removexattr", "lremovexattr"}
)
"""Those that change a file by its path: Landlock does not look at them."""
_PRETENDED = frozenset(
    {"chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes", "futimesat"}
)


def supported(machine: str | None = None) -> bool:
    """Whether there is a table for this machine."""
    return (machine or platform.machine()) in _MACHINES


def program(*, sockets: Iterable[int], by_path: bool, machine: str | None = None) -> bytes:
    """Return the filter, an array of ``struct sock_filter``.

    ``sockets`` are the address families that ``socket()`` may open. Without ``by_path``, changing a file's mode, owner
    or times by its path does nothing, and says that it succeeded: copying a file needs no more than that.
    """
    arch, numbers = _MACHINES[machine or platform.machine()]
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR),
    ]
    if arch == 0xC000003E:
        code += [(_JUMP_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    for name in sorted(numbers.keys() - _WITH_REASON - _OF_FILES):
        code += _refuse(numbers[name], errno.EPERM)
    code += _refuse(numbers["clone3"], errno.ENOSYS)  # its flags lie in memory: libraries fall back to clone
    code += _look_into(numbers["clone"], 0, [(_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES)], errno.EPERM)
    families = [(_JUMP_EQUAL, 0, 1, family) for family in sorted(sockets)]
    code += _look_into(numbers["socket"], 0, families, errno.EAFNOSUPPORT, allowed=True)
    requests = [(_JUMP_EQUAL, 0, 1, request) for request in _TERMINAL_INJECTION]
    code += _look_into(numbers["ioctl"], 1, requests, errno.EPERM)
    if not by_path:
        code += _files(numbers)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def families(network: bool) -> tuple[int, ...]:
    """The address families that a child may open; pairs of connected sockets are another call and always work."""
    return (socket.AF_INET, socket.AF_INET6) if network else ()


def _refuse(number: int, reason: int) -> list[tuple[int, int, int, int]]:
    return [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | reason)]


def _look_into(
    number: int, argument: int, tests: list[tuple[int, int, int, int]], reason: int, *, allowed: bool = False
) -> list[tuple[int, int, int, int]]:
    """Judge a call by one argument's low half; one that meets a test is refused, or with ``allowed`` let through."""
    met, otherwise = (_ALLOW, _ERRNO | reason) if allowed else (_ERRNO | reason, _ALLOW)
    body = [(_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * argument)]
    for test in tests:
        body += [test, (_RETURN, 0, 0, met)]
    body.append((_RETURN, 0, 0, otherwise))
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _files(numbers: Mapping[str, int]) -> list[tuple[int, int, int, int]]:
    code: list[tuple[int, int, int, int]] = []
    for name in sorted(_OF_FILES & numbers.keys() - {"utimensat"}):
        code += _refuse(numbers[name], 0 if name in _PRETENDED else errno.EPERM)
    # without a path it means an open file, which Landlock has judged
    at = _FIRST_ARGUMENT + 8
    no_path = [(_LOAD, 0, 0, at), (_JUMP_EQUAL, 0, 3, 0), (_LOAD, 0, 0, at + 4), (_JUMP_EQUAL, 0, 1, 0)]
    body = [*no_path, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO)]
    return [*code, (_JUMP_EQUAL, 0, len(body), numbers["utimensat"]), *body]
