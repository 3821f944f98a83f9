"""Runs one check on an event loop of its own, and looks at what it does to the loop and leaves behind.

Nothing here judges by speed. Whether the loop is blocked is judged by a second thread: one callback that does not end
while that thread was woken ``_STUCK`` times holds the loop. The time in which the loop's thread could run and was not
let (Linux tells it) does not count, so that a busy machine is no fault.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from .faults import Fault, words
from .ports import reserve

_BEAT_SECONDS = 0.02
_STUCK = 15
_TURNS = 100
_TURN_SECONDS = 0.01
_INTERRUPT = getattr(signal, "SIGUSR2", None)

Scenario = Callable[[], Coroutine[Any, Any, None]]


def judged(scenario: Scenario, seconds: float) -> None:
    """Run ``scenario``; raise its ``Fault``, or one for what it did to the loop or left behind."""
    loop = asyncio.new_event_loop()
    dog = _Watchdog(loop, seconds)
    strays: list[str] = []
    loop.set_exception_handler(lambda _, context: strays.append(_stray(context)))
    asyncio.set_event_loop(loop)
    try:
        with dog:
            loop.run_until_complete(_bounded(scenario, 8 * seconds))
    except (Exception, _Interrupted) as error:
        if dog.found is not None:
            raise Fault(dog.found) from None
        if isinstance(error, _Interrupted):
            raise Fault("it blocks the event loop") from None
        raise
    finally:
        _end(loop)
    if dog.found is not None:
        raise Fault(dog.found)
    gc.collect()
    if strays:
        raise Fault(f"it leaves an exception that no one takes: {strays[0]}")


async def _bounded(scenario: Scenario, seconds: float) -> None:
    reserve()  # what holds them belongs to no check
    before = Belongings.here()
    task = asyncio.ensure_future(scenario())
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        raise Fault(f"it hangs: after {seconds:g} s the check is not over")
    await task
    left = before.left()
    for _ in range(_TURNS):
        if not left:
            return
        await asyncio.sleep(_TURN_SECONDS)
        left = before.left()
    raise Fault(left)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop within a bound, whatever the tasks on it do with being cancelled."""
    for _ in range(20):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        with suppress(BaseException):
            loop.run_until_complete(asyncio.wait(tasks, timeout=0.05))
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # told already, in better words
    with suppress(BaseException):
        loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), 1))
    with suppress(BaseException):
        loop.run_until_complete(asyncio.wait_for(loop.shutdown_default_executor(), 5))
    asyncio.set_event_loop(None)
    loop.set_exception_handler(lambda *_: None)
    loop.close()


def _stray(context: dict[str, Any]) -> str:
    error = context.get("exception")
    return f"{context.get('message')}" + (f" ({words(error)})" if error is not None else "")


# --- what is left behind ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Belongings:
    """What this process has: tasks, open files, threads, child processes, and its own surroundings."""

    tasks: frozenset[asyncio.Task[Any]]
    files: Counter[str]
    threads: frozenset[threading.Thread]
    children: frozenset[int]
    surroundings: tuple[tuple[str, Any], ...]

    @classmethod
    def here(cls) -> Belongings:
        current = asyncio.current_task()
        return cls(
            frozenset(task for task in asyncio.all_tasks() if task is not current),
            Counter(_open_files()),
            frozenset(thread for thread in threading.enumerate() if not _of_asyncio(thread)),
            frozenset(_children()),
            tuple(_surroundings()),
        )

    def left(self) -> str:
        """Say what is there now and was not before; empty where nothing is."""
        now = Belongings.here()
        if tasks := now.tasks - self.tasks:
            return f"it leaks {len(tasks)} task(s): after it was left, {_task(next(iter(tasks)))} still runs"
        if threads := now.threads - self.threads:
            return f"it leaks {len(threads)} thread(s): after it was left, {next(iter(threads)).name!r} still runs"
        if children := now.children - self.children:
            return f"it leaks {len(children)} process(es): after it was left, {sorted(children)} still run"
        if files := now.files - self.files:
            return f"it leaks {files.total()} file descriptor(s): after it was left, {sorted(files)[0]} is still open"
        for (name, was), (_, is_now) in zip(self.surroundings, now.surroundings, strict=True):
            if was != is_now:
                return f"it changes {name} of the whole process"
        return ""


def _task(task: asyncio.Task[Any]) -> str:
    work = task.get_coro()
    return f"{getattr(work, '__qualname__', work)} ({task.get_name()})"


def _of_asyncio(thread: threading.Thread) -> bool:
    return thread.name.startswith(("asyncio_", "waitpid-", "bascule-kit"))


def _open_files() -> Iterator[str]:
    folder = "/proc/self/fd"
    with suppress(OSError):
        for number in os.listdir(folder):
            with suppress(OSError):
                yield os.readlink(f"{folder}/{number}")


def _children() -> Iterator[int]:
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                yield from map(int, file.read().split())


def _surroundings() -> Iterator[tuple[str, Any]]:
    yield "the working directory", os.getcwd()
    yield "the environment", {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    yield "sys.path", tuple(sys.path)
    yield "the default timeout of sockets", socket.getdefaulttimeout()
    for number in (signal.SIGINT, signal.SIGTERM):
        yield f"the handler of {number.name}", signal.getsignal(number)


# --- the loop ---------------------------------------------------------------------------------------------


class _Interrupted(BaseException):
    """Breaks a call off that blocks the loop for good."""


class _Watchdog:
    """Asks the loop for a sign of life, again and again, from a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hopeless_seconds: float) -> None:
        self.found: str | None = None
        self._loop = loop
        self._watched = threading.get_ident()
        self._native = threading.get_native_id()
        self._hopeless = int(hopeless_seconds / _BEAT_SECONDS)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bascule-kit watchdog", daemon=True)
        self._handler: Any = None

    def __enter__(self) -> _Watchdog:
        if _INTERRUPT is not None and threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(_INTERRUPT, self._interrupt)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._handler is not None and _INTERRUPT is not None:
            signal.signal(_INTERRUPT, self._handler)

    def _interrupt(self, *_: object) -> None:
        raise _Interrupted

    def _run(self) -> None:
        answered = threading.Event()
        answered.set()
        stuck = 0
        callback: FrameType | None = None
        since = 0.0
        while not self._over.wait(_BEAT_SECONDS):
            if answered.is_set():
                answered.clear()
                stuck, callback = 0, None
                with suppress(RuntimeError):  # it is closed
                    self._loop.call_soon_threadsafe(answered.set)
                continue
            frame = sys._current_frames().get(self._watched)
            if frame is None or _imports(frame):
                continue
            if (running := _callback(frame)) is not callback:  # many short ones are no fault
                stuck, callback, since = 0, running, time.monotonic() - self._waited()
            stuck += 1
            held = time.monotonic() - self._waited() - since
            if stuck >= _STUCK and held >= _STUCK * _BEAT_SECONDS and self.found is None and not _of_the_core(frame):
                self.found = f"it blocks the event loop: everything waits for {_place(frame)}"
            if stuck >= self._hopeless and self._handler is not None and _INTERRUPT is not None:
                signal.pthread_kill(self._watched, _INTERRUPT)
                stuck = 0

    def _waited(self) -> float:
        """Seconds in which the loop's thread could have run and the machine let others."""
        place = f"/proc/self/task/{self._native}/schedstat"
        with suppress(OSError, ValueError, IndexError), open(place, encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
        return 0.0


def _of_the_core(frame: FrameType) -> bool:
    """Whether the bridge itself is at work: its database may wait for a disk."""
    at: FrameType | None = frame
    while at is not None and _is_library(at.f_code.co_filename):
        at = at.f_back
    return at is not None and at.f_globals.get("__name__", "").startswith("bascule.core.")


def _imports(frame: FrameType | None) -> bool:
    """Whether an import is under way: it may take its time, once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _callback(frame: FrameType) -> FrameType | None:
    """The loop's own frame that runs the callback in which ``frame`` stands: another one for each."""
    at: FrameType | None = frame
    while at is not None and at.f_code.co_qualname != "Handle._run":
        at = at.f_back
    return at


def _place(frame: FrameType) -> str:
    """The innermost line that is no one's library: most likely the subject's own."""
    inner = at = frame
    while at.f_back is not None and _is_library(at.f_code.co_filename):
        at = at.f_back
    if _is_library(at.f_code.co_filename):
        at = inner
    return f"{os.path.basename(at.f_code.co_filename)}:{at.f_lineno}, {at.f_code.co_name}"


def _is_library(file: str) -> bool:
    return file.startswith(("<", sys.base_prefix)) or f"{os.sep}asyncio{os.sep}" in file


_BLOCKING_SOCKET_CALLS = frozenset({"accept", "connect", "recv", "recv_into", "recvfrom", "send", "sendall"})


@contextmanager
def no_blocking_calls() -> Iterator[None]:
    """Raise ``Fault`` where the loop's thread makes a call that blocks, however short it is."""
    seen: list[str] = []

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call" or seen:
            return
        owner = getattr(called, "__self__", None)
        if called is time.sleep or called is os.system:
            seen.append(f"{called.__name__} at {_place(frame)}")
        elif isinstance(owner, socket.socket) and called.__name__ in _BLOCKING_SOCKET_CALLS and owner.gettimeout() != 0:
            seen.append(f"{called.__name__} of a blocking socket at {_place(frame)}")

    earlier = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(earlier)
        if seen:
            raise Fault(f"it blocks the event loop: {seen[0]}")
