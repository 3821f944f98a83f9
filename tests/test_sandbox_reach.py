"""What a sandboxed server can reach: it tries everything, and each attempt must be stopped (or must succeed)."""

from __future__ import annotations

import ast
import asyncio
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sandbox import FIXTURES, LAUNCHERS, copied, hosting, need, reachable, settings_for

SECRET = "the owner's own"

DEEDS = [
    node.name
    for module in sorted((FIXTURES / "misdeeds").glob("w*.py"))
    for node in ast.parse(module.read_text()).body
    if isinstance(node, ast.FunctionDef) and any(ast.unparse(mark) == "deed" for mark in node.decorator_list)
]
MAY = [name for name in DEEDS if name.startswith("may_")]


@contextmanager
def answering(*addresses: tuple[int, int, Any]) -> Iterator[list[Any]]:
    """Sockets that greet whoever comes, until the context is left; yields their addresses."""
    with ExitStack() as stack:
        found = []
        for family, kind, address in addresses:
            listening = stack.enter_context(socket.socket(family, kind))
            listening.bind(address)
            found.append(listening.getsockname())
            if kind == socket.SOCK_STREAM:
                listening.listen()
            thread = threading.Thread(target=_greet, args=(listening, kind), daemon=True)
            thread.start()
            stack.callback(thread.join, 20)
            stack.callback(_shut, listening)
        yield found


def _greet(listening: socket.socket, kind: int) -> None:
    while True:
        try:
            if kind == socket.SOCK_STREAM:
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(b"hello")
            else:
                data, sender = listening.recvfrom(16)
                if not data:
                    return
                listening.sendto(b"hello", sender)
        except OSError:
            return


def _shut(listening: socket.socket) -> None:
    """Wake the thread that waits on it: closing alone does not."""
    if listening.type == socket.SOCK_STREAM:
        listening.shutdown(socket.SHUT_RDWR)
    else:
        with socket.socket(listening.family, socket.SOCK_DGRAM) as waking:
            waking.sendto(b"", listening.getsockname())


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _plant(folder: Path) -> dict[str, Any]:
    outside = folder / "outside"
    neighbour = folder / "state" / "data" / "other" / "secret"
    for place in (outside, neighbour.parent):
        place.mkdir(parents=True)
        place.chmod(0o777)
    for file in (outside / "secret", neighbour, folder / "state" / "planted"):
        file.write_text(SECRET)
        file.chmod(0o666)  # what stops the server is the sandbox, not the file's mode
    return {
        "secret": str(outside / "secret"),
        "outside": str(outside),
        "neighbour": str(neighbour),
        "state": str(folder / "state"),
        "bridge": os.getpid(),
    }


def _attempts(name: str, network: str) -> dict[str, Any]:
    """Let a server try everything, one after the other; also return what the planted secret is afterwards."""
    with reachable() as folder:
        facts = _plant(folder)
        (plugin,) = copied(folder, "misdeeds")
        abstract = f"bascule-{secrets.token_hex(8)}"
        sockets: list[tuple[int, int, Any]] = [
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "outside" / "s")),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}"),
        ]
        if _has_ipv6():
            sockets.append((socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)))
        with answering(*sockets) as where:
            facts |= {"tcp": where[0][1], "udp": where[1][1], "unix": where[2], "abstract": abstract}
            facts |= {"tcp6": where[4][1] if len(where) > 4 else 1}
            Path(facts["unix"]).chmod(0o777)
            settings = settings_for(name, folder, isolation={"fx-misdeeds": {"network": network}})

            async def scenario() -> dict[str, Any]:
                async with hosting(settings, plugin) as bridge, bridge.run("test") as run:
                    assert not bridge.failures, bridge.failures
                    outcomes = {}
                    for deed in DEEDS:
                        result = await run.call("fx-misdeeds.attempt", {"deed": deed, "facts": facts})
                        outcomes[deed] = result.output
                    return outcomes

            outcomes = asyncio.run(scenario())
        outcomes["secret"] = Path(facts["secret"]).read_text()
        return outcomes


@pytest.fixture(scope="module", params=sorted(LAUNCHERS))
def outcomes(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What came of each deed under each launcher."""
    need(request.param)
    return _attempts(request.param, "none")


@pytest.mark.req("N6.10")
@pytest.mark.parametrize("deed", [name for name in DEEDS if name not in MAY])
@pytest.mark.timeout(300)
def test_no_server_can(outcomes: dict[str, Any], deed: str) -> None:
    assert outcomes[deed]["done"] is False, outcomes[deed]["why"]
    assert "Error: name" not in outcomes[deed]["why"]
    assert SECRET not in outcomes[deed]["why"]


@pytest.mark.parametrize("deed", MAY)
@pytest.mark.timeout(300)
def test_every_server(outcomes: dict[str, Any], deed: str) -> None:
    assert outcomes[deed]["done"] is True, outcomes[deed]["why"]


@pytest.mark.timeout(300)
def test_what_the_owner_had_is_as_it_was(outcomes: dict[str, Any]) -> None:
    assert outcomes["secret"] == SECRET
