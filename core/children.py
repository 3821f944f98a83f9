"""Which processes were started, so that none outlives a bridge that was killed.

Each start is written down before it happens, and by name (pid, start, the machine's start: see :mod:`.processes`) once
there is a process; the row goes when the process has ended. What an earlier bridge left is looked at before the next
one starts anything: whoever is recognised is asked to end, then killed, with all of its session.

A killed bridge may not have come to write the name. Then the process is one that leads a session, stands in the
plugin's directory and runs the very command that was to be started. A session whose leader has left by itself is
recognised by its number and by the plugin's directory. Where the system tells nothing of processes (anything but
Linux), nothing is written down and nothing ended.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..hookspecs import ByteReader, ByteWriter, Child, Launcher, LaunchPlan, StateUnavailable
from .processes import is_running, process, stat
from .store import ChildRecord, Store

log = logging.getLogger(__name__)

_GRACE_SECONDS = 2.0
_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.02
_ROUNDS = 5
_SESSION = 3  # where proc(5) says it, from the state on


class Children:
    """The children of one bridge, and those that earlier ones left."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bridge = process(os.getpid())

    async def launch(self, launcher: Launcher, plan: LaunchPlan, plugin_id: str) -> Child:
        """Start ``plan`` and keep a record of it until it has ended; raises what the launcher raises."""
        if not self._bridge:
            return await launcher.launch(plan)
        seq = self._store.child_begins(plugin_id, self._bridge, plan.cwd, prints(map(os.fsencode, plan.argv)))
        try:
            child = await launcher.launch(plan)
        except BaseException:
            self._store.child_ended(seq)
            raise
        try:
            self._store.child_is(seq, child.pid, process(child.pid))
        except StateUnavailable:
            await child.end_tree(0)
            raise
        return _Recorded(child, seq, self._store)

    def reap(self) -> int:
        """End what earlier bridges left behind; returns how many processes. Bounded; for a thread."""
        left = [record for record in self._store.children() if not is_running(record.bridge)]
        found = remaining = _left_by(left) if left else []
        if found:
            log.warning("ending %d processes that an earlier bridge left behind", len(found))
            _end(found, signal.SIGTERM, _GRACE_SECONDS)
        for _ in range(_ROUNDS):  # whoever is to be killed may have started others meanwhile
            remaining = _left_by(left) if remaining else []
            _end(remaining, signal.SIGKILL, _KILL_SECONDS)
        for record in left:
            self._store.child_ended(record.seq)
        return len(found)


class _Recorded:
    """A child whose record goes once nothing of it is left."""

    def __init__(self, child: Child, seq: int, store: Store) -> None:
        self._child = child
        self._seq = seq
        self._store = store
        self.pid: int = child.pid
        self.stdin: ByteWriter = child.stdin
        self.stdout: ByteReader = child.stdout
        self.stderr: ByteReader = child.stderr

    @property
    def returncode(self) -> int | None:
        return self._child.returncode

    async def wait(self) -> int:
        return await self._child.wait()

    async def end_tree(self, grace: float) -> None:
        await self._child.end_tree(grace)
        try:
            self._store.child_ended(self._seq)
        except StateUnavailable as error:  # the next start looks for the process and finds none
            log.warning("the end of process %d is not written down: %s", self.pid, error)


@dataclass(frozen=True, slots=True)
class _Process:
    """A process by its pid and its name, which no other has."""

    pid: int
    name: str


def _left_by(records: Sequence[ChildRecord]) -> list[_Process]:
    """Name what still runs of these starts."""
    every = {pid: int(fields[_SESSION]) for pid, fields in _all() if pid != os.getpid()}
    found = set()
    for record in records:
        if record.pid is None:
            leaders = {pid for pid, session in every.items() if session == pid and _is_this_command(pid, record)}
            found |= {pid for pid, session in every.items() if session in leaders}
        else:
            leads = is_running(record.process or "-1")
            members = {pid for pid, session in every.items() if session == record.pid}
            found |= {pid for pid in members if leads or _stands_in(pid, record.directory)}
    return [_Process(pid, name) for pid in found if (name := process(pid))]


def _all() -> Iterator[tuple[int, list[str]]]:
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal() and (fields := stat(int(name))):
                yield int(name), fields


def _is_this_command(pid: int, record: ChildRecord) -> bool:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return False
    # A script's interpreter stands before it.
    return tuple(prints(argv[-len(record.argv) :])) == record.argv and _stands_in(pid, record.directory)


def prints(argv: Iterable[bytes]) -> list[str]:
    """What a command is recognised by; an argument may be a secret and is not written down."""
    return [hashlib.sha256(argument).hexdigest() for argument in argv]


def _stands_in(pid: int, directory: Path) -> bool:
    """Whether it is ours (another user's is not shown) and works in or below ``directory``."""
    try:
        place = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
    except OSError:
        return False
    return Path(place).is_relative_to(directory)


def _end(processes: Sequence[_Process], number: int, seconds: float) -> None:
    """Send the signal to each and wait for its end."""
    waiting = list(processes)
    for one in waiting:
        _signal(one, number)
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        waiting = [one for one in waiting if is_running(one.name)]


def _signal(one: _Process, number: int) -> None:
    """Signal this very process: what has its pid by now may be another."""
    with suppress(OSError):
        descriptor = os.pidfd_open(one.pid)
        try:
            if is_running(one.name):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
