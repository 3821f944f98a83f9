"""The one process between the bridge and a sandboxed server: when it goes, everything below it has gone.

Run as a script by an interpreter of its own (``python -I -S supervisor.py CONTROL SPECIFICATION``, two file
descriptors), so it imports nothing of Bascule. The bridge alone holds the other end of the control pipe: when the
bridge ends, however it ends, that pipe does. As the reaper of its descendants (``PR_SET_CHILD_SUBREAPER``) no daemon
gets away from it by losing its parents.

What it does, in order: start the one child as the specification says; hand on the bridge's ``T`` (SIGTERM to the
server's processes); when the child has ended or the control pipe has, stop and kill whatever is left below it; end as
the child ended.

Every server's start waits for this one's, so it imports little: not ``json``, not ``signal`` (which needs ``enum``),
not ``typing``.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_SET_PDEATHSIG, _SET_SECCOMP, _SET_SUBREAPER, _SET_NO_NEW_PRIVILEGES = 1, 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_ON_LINUX = sys.platform == "linux"
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PATH_BENEATH = 1
_SIGHUP, _SIGINT, _SIGKILL, _SIGPIPE, _SIGTERM = 1, 2, 9, 13, 15
_SIGSTOP = 19 if _ON_LINUX else 17
_ASKING = (_SIGTERM, _SIGINT, _SIGHUP)
_DEFAULT, _IGNORED = 0, 1
_REAP_MILLISECONDS = 1_000  # how long a daemon's remains may lie
_SIGNALLED = 128  # bubblewrap and shells say so that a signal ended the child
_GONE_SECONDS = 5.0


def main(control: int, specification: int) -> NoReturn:
    """Supervise one child until it, or the bridge, has ended."""
    with os.fdopen(specification, "rb") as file:
        spec = marshal.loads(file.read())  # noqa: S302 - written by the bridge, for this interpreter
    os.set_inheritable(control, False)
    _close_all_but({control, *spec["keep"]})
    if _ON_LINUX:
        _prctl(_SET_SUBREAPER, 1)
    for number in _ASKING:  # only the bridge ends it: a supervisor that went first would leave others behind
        _on_signal(number, _IGNORED)
    child = os.fork()
    if child == 0:
        _become(spec)
    _let_go(spec)
    status = _watch(child, control, spec["inner"])
    if _ON_LINUX:
        _end_all()
    else:
        _signal_group(child, _SIGKILL)
    _end_as(status, spec["inner"])


def _close_all_but(kept: set[int]) -> None:
    """Close what we were left by whoever started the bridge: not every event loop does so, as uvloop does not.

    An open directory is a way out of any sandbox, and the loop's own copies of the server's pipes hide that it closed
    them.
    """
    for name in os.listdir("/dev/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            os.closerange(fd, fd + 1)  # the listing's own is closed already, which this does not mind


# --- the child ----------------------------------------------------------------------------------------------


def _become(spec: dict[str, Any]) -> NoReturn:
    """Turn this new process into the child; never returns."""
    try:
        for number in (_SIGPIPE, *_ASKING):
            _on_signal(number, _DEFAULT)
        os.setsid()
        _enter_cgroup(spec.get("cgroup"))
        if _ON_LINUX:
            _prefer_for_the_killer()
        for name, value in spec["limits"].items():
            _limit(getattr(resource, name), value)
        for fd in spec["keep"]:
            os.set_inheritable(fd, True)
        if spec.get("confine") is not None:
            _confine(spec["confine"])
        if _ON_LINUX:
            _prctl(_SET_PDEATHSIG, _SIGKILL)  # after the change of uid, which clears it
        os.chdir(spec["cwd"])
        os.execve(spec["executable"], spec["argv"], spec["env"])  # noqa: S606 - there is no shell
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must not go on as the supervisor
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        os.write(2, f"bascule: {spec['argv'][0]} did not start: {reason}\n".encode(errors="replace"))
    finally:
        os._exit(127)


def _enter_cgroup(path: str | None) -> None:
    if path is not None:
        with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")


def _prefer_for_the_killer() -> None:
    """Where memory runs out, a server goes before the bridge does."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")


def _limit(what: int, value: int) -> None:
    most = resource.getrlimit(what)[1]
    bound = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(what, (bound, bound))


def _confine(spec: dict[str, Any]) -> None:
    """Drop to an unprivileged user where we are root, then Landlock, then seccomp; none of it can be undone."""
    rules = [(os.open(path, os.O_PATH | os.O_CLOEXEC), access) for path, access in spec["rules"]]
    if spec["uid"] is not None:
        os.setgroups([])
        os.setresgid(spec["uid"], spec["uid"], spec["uid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    _limit(resource.RLIMIT_NPROC, spec["processes"] + _tasks_of_this_user())
    _prctl(_SET_NO_NEW_PRIVILEGES, 1)
    handled = spec["handled"]
    ruleset = _syscall(_LANDLOCK_CREATE, handled, len(handled), 0)
    for fd, access in rules:
        _syscall(_LANDLOCK_ADD, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, fd), 0)
    _syscall(_LANDLOCK_RESTRICT, ruleset, 0)
    program = spec["seccomp"]
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _prctl(_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(header))


def _tasks_of_this_user() -> int:
    """How many tasks the kernel counts for this user outside of this sandbox: the limit is one for all of them."""
    count, user = 0, os.getuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count


def _on_signal(number: int, action: int) -> None:
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal(number, action)


def _prctl(option: int, *arguments: Any) -> None:
    whole = [*(ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments), *[ctypes.c_ulong(0)] * 4]
    if ctypes.CDLL(None, use_errno=True).prctl(option, *whole[:4]):
        raise OSError(ctypes.get_errno(), f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def _syscall(number: int, *arguments: Any) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    whole = [ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *arguments)]
    result = int(libc.syscall(*whole))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}: {os.strerror(ctypes.get_errno())}")
    return result


# --- the watch ----------------------------------------------------------------------------------------------


def _let_go(spec: dict[str, Any]) -> None:
    """Hold none of the server's pipes: their ends must be seen."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)
    for fd in spec["keep"]:
        os.close(fd)
    os.chdir("/")


def _watch(child: int, control: int, inner: int) -> int | None:
    """Wait; return the child's wait status, ``None`` where the bridge was the first to go."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if hasattr(os, "pidfd_open"):
        poll.register(os.pidfd_open(child), select.POLLIN)
        pause = _REAP_MILLISECONDS
    else:
        pause = 50
    while True:
        for fd, _ in poll.poll(pause):
            if fd == control:
                if not os.read(control, 1):
                    return None
                _ask_to_end(child, inner)
        status = _reap(child)
        if status is not None:
            return status


def _reap(child: int) -> int | None:
    """Take in everything that has ended below; return the child's wait status if it is among it."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _ask_to_end(child: int, inner: int) -> None:
    """Send SIGTERM to the server's processes; the first ``inner`` generations are the sandbox's own."""
    if not _ON_LINUX:
        _signal_group(child, _SIGTERM)
        return
    for generation, pids in enumerate(_generations()):
        if generation >= inner:
            for pid in pids:
                _signal(pid, _SIGTERM)


def _end_all() -> None:
    """Stop everything below until nothing new appears, then kill it: what runs could start more meanwhile."""
    until = time.monotonic() + _GONE_SECONDS
    while time.monotonic() < until:
        stopped: set[int] = set()
        while found := {pid for pids in _generations() for pid in pids} - stopped:
            for pid in found:
                _signal(pid, _SIGSTOP)
            stopped |= found
        for pid in stopped:
            _signal(pid, _SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def _signal(pid: int, number: int) -> None:
    try:  # noqa: SIM105 - contextlib would cost more than all the rest
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _signal_group(leader: int, number: int) -> None:
    """Where the system names no children: whoever left the session is missed."""
    try:  # noqa: SIM105
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        pass


def _generations() -> list[list[int]]:
    """Every process below this one: first the children, then theirs, and so on."""
    generations, parents = [], [os.getpid()]
    while parents := [child for parent in parents for child in _children(parent)]:
        generations.append(parents)
    return generations


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def _end_as(status: int | None, inner: int) -> NoReturn:
    """End the way the child did, so that the bridge sees it."""
    if status is None:
        os._exit(0)
    code = os.waitstatus_to_exitcode(status)
    if inner and code > _SIGNALLED:
        code = _SIGNALLED - code
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _on_signal(-code, _DEFAULT)
        os.kill(os.getpid(), -code)
        code = _SIGNALLED - code
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
