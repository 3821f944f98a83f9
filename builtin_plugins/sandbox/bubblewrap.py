"""The launcher ``bubblewrap``: namespaces, an empty root with named binds, seccomp, limits. Isolates fully.

What the server finds inside: the system's programs and libraries, its own directory and what its executable needs, all
read-only; its private data directory; a ``/tmp``, ``/dev`` and ``/proc`` of its own. Nothing of a home, of ``/etc`` but
a few harmless files, of ``/run``; no process but its own; no network, or the host's. Where the bridge is root, the
binds are made first and the server then becomes an unprivileged user; else it stays the bridge's user, alone in a
user namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...hookspecs import Isolation, Launcher, LaunchPlan, Limits, Network, PluginHostStartFailed, hookimpl
from . import cgroup, places, seccomp
from .child import Orders, SupervisedChild, as_file, supervise

_SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"  # first: Ubuntu's AppArmor profile is for /usr/bin/bwrap alone
_TMP_BYTES = str(64 * 1024 * 1024)
_PROBE_SECONDS = 10
_BECOME_ANOTHER = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")


class BubblewrapLauncher:
    """Starts the server in namespaces of its own."""

    name = "bubblewrap"
    isolation = Isolation.FULL

    def available(self) -> str | None:
        """Start the smallest sandbox once, and say why it can't be done here."""
        if not seccomp.supported():
            return "there is no table of system calls for this machine's architecture"
        missing = [name for name in ("bwrap", "prlimit", "setpriv") if _tool(name) is None]
        if missing:
            package = "bubblewrap" if missing[0] == "bwrap" else "util-linux"
            return f"{missing[0]} is not installed (package {package})"
        return _probe()

    async def launch(self, plan: LaunchPlan) -> SupervisedChild:
        uid = places.unprivileged_uid(plan)
        places.prepare(plan, uid)
        isolation = plan.isolation
        files: list[int] = []
        try:
            argv = _arguments(plan, uid, files)
        except BaseException:
            _close(files)
            raise
        orders = Orders(argv, plan.env, "/", places.bounds(isolation), inner=2, keep=tuple(files))
        return await supervise(plan, orders, cgroup.leaf(isolation.memory_mb, isolation.processes))


def _close(files: Iterable[int]) -> None:
    for fd in files:
        os.close(fd)


def _tool(name: str) -> str | None:
    return shutil.which(name, path=_SYSTEM_PATH) or shutil.which(name)


def _needed(name: str) -> str:
    found = _tool(name)
    if found is None:
        raise PluginHostStartFailed(f"{name} is not installed", hint="bascule check says what a sandbox needs here")
    return found


def _arguments(plan: LaunchPlan, uid: int | None, files: list[int]) -> list[str]:
    """The whole command; the descriptors of files that it reads are added to ``files``."""
    isolation = plan.isolation
    home = plan.env.get("HOME", "/tmp")  # noqa: S108 - the sandbox's own
    program = seccomp.program(sockets=seccomp.families(isolation.network is Network.ANY), by_path=True)
    files.append(as_file(program))
    argv = [_needed("bwrap"), *_namespaces(isolation.network, uid), "--seccomp", str(files[-1])]
    argv += _system(isolation.network)
    user = os.getuid() if uid is None else uid
    group = os.getgid() if uid is None else uid
    for name, line in (
        ("passwd", f"plugin:x:{user}:{group}:plugin:{home}:/bin/sh\n"),
        ("group", f"plugin:x:{group}:\n"),
    ):
        files.append(as_file(line.encode(errors="replace")))
        argv += ["--ro-bind-data", str(files[-1]), f"/etc/{name}"]
    argv += _binds(plan)
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(plan.cwd), "--"]
    return [*argv, *_drop(uid), *_count(isolation.processes), *plan.argv]


def _namespaces(network: Network, uid: int | None) -> list[str]:
    argv = ["--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    argv += ["--unshare-cgroup-try", "--hostname", "plugin"]
    if network is Network.NONE:
        argv.append("--unshare-net")
    if uid is None:
        argv.append("--unshare-user")
    else:
        for capability in _BECOME_ANOTHER:
            argv += ["--cap-add", capability]
    return argv


def _system(network: Network) -> list[str]:
    """The parts of the system that every server sees."""
    argv: list[str] = []
    for directory in places.SYSTEM:
        if os.path.islink(directory):
            argv += ["--symlink", os.readlink(directory), directory]
        elif os.path.isdir(directory):
            argv += ["--ro-bind", directory, directory]
    wanted = places.SETTINGS + (places.SETTINGS_OF_NETWORK if network is Network.ANY else ())
    for path in filter(os.path.exists, wanted):
        argv += [*_way_to(Path(path), Path("/")), "--ro-bind", os.path.realpath(path), path]
    argv += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", _TMP_BYTES]
    argv += ["--tmpfs", "/dev/shm"]  # noqa: S108 - the sandbox's own
    return [*argv, "--perms", "1777", "--size", _TMP_BYTES, "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own


def _binds(plan: LaunchPlan) -> Iterable[str]:
    """What is this server's alone; outer directories first, so that an inner one shows what it is."""
    isolation = plan.isolation
    shown = places.readable(plan)
    binds = {path: ("--ro-bind", str(path), str(path)) for path in shown}
    binds |= {
        path: ("--tmpfs", str(path), "")
        for path in isolation.hidden
        if any(path.is_relative_to(above) or above.is_relative_to(path) for above in (*shown, *isolation.writable))
    }
    binds |= {path: ("--bind", str(path), str(path)) for path in isolation.writable}
    for path, bind in sorted(binds.items(), key=lambda item: len(item[0].parts)):
        within = max(
            (other for other in binds if other in path.parents), key=lambda other: len(other.parts), default=None
        )
        if within is None or binds[within][0] == "--tmpfs":
            yield from _way_to(path, within or Path("/"))
        yield from filter(None, bind)


def _way_to(path: Path, above: Path) -> Iterable[str]:
    """Make the directories on the way passable: bubblewrap's own would be root's alone."""
    for directory in reversed(path.relative_to(above).parents):
        if directory != Path("."):
            yield from ("--perms", "0755", "--dir", str(above / directory))


def _drop(uid: int | None) -> Sequence[str]:
    if uid is None:
        return ()
    become = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    return (_needed("setpriv"), *become, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--")


def _count(processes: int) -> Sequence[str]:
    """Bound the processes inside: outside, the kernel counts those of every other sandbox of this user as well."""
    return (_needed("prlimit"), f"--nproc={processes}", "--")


def _probe() -> str | None:
    plan = LaunchPlan(Path("/bin/true"), ("/bin/true",), Path("/usr"), {}, Limits())
    uid = places.unprivileged_uid(plan)
    files: list[int] = []
    try:
        argv = _arguments(plan, uid, files)
        run = subprocess.run(  # noqa: S603 - our own arguments
            argv,
            env={},
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap: {error}"
    finally:
        _close(files)
    if run.returncode == 0:
        return None
    return (run.stderr.strip().splitlines() or [f"bwrap ended with {run.returncode}"])[-1]


@hookimpl
def bascule_launchers() -> Iterable[Launcher]:
    """Offer ``bubblewrap``."""
    return [BubblewrapLauncher()]
