"""Who starts a child process: the sandbox's seam.

A transport says what to run (:class:`LaunchRequest`); the core resolves the executable and builds the child's whole
environment (:class:`LaunchPlan`); a launcher, which the owner's settings choose and never a manifest, starts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from .config import Config, Limits
from .markers import hookspec

LOADER_VARIABLES = frozenset(
    {
        "BASHOPTS",
        "BASH_ENV",
        "CDPATH",
        "ENV",
        "GCONV_PATH",
        "GIO_EXTRA_MODULES",
        "GLOBIGNORE",
        "IFS",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "NODE_OPTIONS",
        "NODE_PATH",
        "OPENSSL_CONF",
        "OPENSSL_MODULES",
        "PERL5LIB",
        "PERL5OPT",
        "PERLLIB",
        "PS4",
        "PYTHONBREAKPOINT",
        "PYTHONEXECUTABLE",
        "PYTHONHOME",
        "PYTHONINSPECT",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
        "RUBYLIB",
        "RUBYOPT",
        "SHELLOPTS",
        "_JAVA_OPTIONS",
    }
)
"""Variables that make an approved program run other code; whoever may set them has changed the command."""


def loads_code(variable: str) -> bool:
    """Whether the environment variable ``variable`` can make a program load code that no one approved."""
    name = variable.upper()
    return name in LOADER_VARIABLES or name.startswith(("LD_", "DYLD_", "BASH_FUNC_"))


class Isolation(StrEnum):
    """How far a launcher keeps a child from everything else."""

    NONE = "none"
    REDUCED = "reduced"
    FULL = "full"


class Network(StrEnum):
    """What of the network a sandboxed child may reach."""

    NONE = "none"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class IsolationRequest:
    """What a sandboxed child may reach and use; a launcher that isolates nothing looks at none of it.

    ``require`` is the least isolation that the child may run with. The plan's ``cwd``, the plugin's directory, is
    readable, as are ``readable`` (files or directories: what the executable needs, and what the owner adds).
    ``writable`` are directories, the private one, ``data``, among them where the child has one: the launcher makes it.
    ``hidden`` are directories that stay out of sight wherever they lie. All paths are absolute. ``memory_mb`` bounds
    each process's own memory and, where the system counts a whole tree, that of the tree; ``processes`` the processes
    and threads; ``files`` the open files of each process; ``file_mb`` each file that is written.
    """

    require: Isolation = Isolation.NONE
    network: Network = Network.NONE
    data: Path | None = None
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    memory_mb: int = 1024
    processes: int = 128
    files: int = 512
    file_mb: int = 64


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What a transport wants started.

    ``argv`` as the manifest has it, never a shell line (N3.2); ``env`` is only what the backend declares,
    ``pass_env`` the names of host variables that the owner's manifest lets through.
    """

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    pass_env: Sequence[str] = ()
    shutdown_grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What will be started, complete: the same for a start and for a preview.

    ``executable`` is absolute and ``argv[0]`` says the same: a Python finds its virtual environment by that, and looks
    on PATH for a bare name. ``env`` is the child's whole environment (N6.3).
    """

    executable: Path
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(repr=False)
    limits: Limits
    isolation: IsolationRequest = IsolationRequest()


class ByteReader(Protocol):
    """Bytes from a child."""

    async def read(self, n: int, /) -> bytes:
        """Return at least one and at most ``n`` bytes as soon as there are any; ``b""`` at the end."""


class ByteWriter(Protocol):
    """Bytes to a child."""

    def write(self, data: bytes, /) -> None:
        """Hand over ``data``; whoever writes much awaits :meth:`drain`."""

    async def drain(self) -> None:
        """Wait until the pipe takes more; raise ``ConnectionError`` once the child no longer reads."""

    def close(self) -> None:
        """Let the child see the end of its input."""


class Child(Protocol):
    """A running process of which the launcher is the parent."""

    @property
    def stdin(self) -> ByteWriter: ...
    @property
    def stdout(self) -> ByteReader: ...
    @property
    def stderr(self) -> ByteReader: ...
    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None:
        """The exit code, ``-N`` for signal N, ``None`` while it runs. Set as soon as the process has ended,
        whoever still holds its pipes."""

    async def wait(self) -> int:
        """Wait for :attr:`returncode`, not for the pipes' end."""

    async def end_tree(self, grace: float) -> None:
        """Close stdin, wait ``grace`` seconds, ask (SIGTERM), wait again, kill: the process and all it started.

        Also where the process has left by itself. Returns when nothing is left; calling it twice does no harm.
        """


class Launcher(Protocol):
    """Starts children. ``isolation`` is what it really gives where it is available.

    Two more attributes are looked for and may be left out. ``available() -> str | None`` says why it does not work on
    this machine, ``None`` where it does; it may block and start processes of its own, so it is asked in a thread and
    its answer kept. ``untested`` is true of one that no one has seen work: it is refused until the owner's settings
    say ``allow_untested_launchers: true``.
    """

    @property
    def name(self) -> str: ...
    @property
    def isolation(self) -> Isolation: ...

    async def launch(self, plan: LaunchPlan) -> Child:
        """Start ``plan`` or raise ``PluginHostStartFailed``; when cancelled, leave no process behind."""


@hookspec
def bascule_launchers(config: Config) -> Iterable[Launcher]:
    """Offer ways to start a child process.

    Called once, when the bridge is assembled. All are offered side by side; names are unique, and the owner's
    settings choose one (``launcher``).

    Example::

        @hookimpl
        def bascule_launchers(config):
            return [ContainerLauncher(image="debian:12")]
    """
    raise NotImplementedError
