"""Calls of the echo tool by an agent in the process, beside a bare JSON-RPC exchange over the same kind of pipes.

Rounds of both are interleaved, so that a noisy machine disturbs both alike; read the ratio. Run by ``make bench``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

ECHO = Path(__file__).resolve().parents[2] / "fixtures" / "mcp-echo"
ARGUMENTS = {"message": "hello"}
WIDTHS = {"bare exchange": 14, "bridge": 10}

Call = Callable[[], Awaitable[None]]


class Bare(asyncio.SubprocessProtocol):
    """The floor: ids, futures, one decode and one encode a message; nothing is found, checked, permitted or kept."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._rest = b""
        self._id = 0
        self._stdin: asyncio.WriteTransport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            answer = self._decode(line)
            self._waiting.pop(answer["id"]).set_result(answer["result"])

    def connect(self, transport: asyncio.SubprocessTransport) -> None:
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        self._stdin = stdin

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        self._id += 1
        future = self._waiting[self._id] = asyncio.get_running_loop().create_future()
        self._stdin.write(self._encode({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}) + b"\n")
        return await future


async def load(call: Call, count: int, in_flight: int) -> tuple[float, float]:
    """Calls a second with ``in_flight`` at once, and what one costs this process in µs of CPU."""
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            await call()

    started, spent = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return count / (time.perf_counter() - started), (time.process_time() - spent) / count * 1e6


async def measure(count: int, in_flight: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Interleaved rounds of the floor and of the bridge."""
    loop = asyncio.get_running_loop()
    transport, bare = await loop.subprocess_exec(Bare, sys.executable, str(ECHO / "server.py"), stderr=None)
    bare.connect(transport)
    initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
    await bare.request("initialize", initialize)
    call = {"name": "echo", "arguments": ARGUMENTS}

    async def floor() -> None:
        result = await bare.request("tools/call", call)
        assert result["structuredContent"]["message"] == "hello"

    figures: dict[str, list[tuple[float, float]]] = {"bare exchange": [], "bridge": []}
    with tempfile.TemporaryDirectory() as state:
        settings = Settings.load(None).with_(
            environment="development", state=Path(state), executables={"python3": Path(sys.executable)}
        )
        async with Bridge(settings, plugins=[ECHO], grant=True, remember=False) as bridge, bridge.run("bench") as run:

            async def through() -> None:
                result = await run.call("mcp-fixture.echo", ARGUMENTS)
                assert result.output["message"] == "hello"

            for each in (floor, through):
                await load(each, count // 4, in_flight)
            for _ in range(rounds):
                figures["bare exchange"].append(await load(floor, count, in_flight))
                figures["bridge"].append(await load(through, count, in_flight))
    transport.close()
    await asyncio.sleep(0)
    return figures


def cpu_of(count: int, in_flight: int) -> None:
    """Where the time goes: a profile of the bridge alone."""
    import cProfile
    import pstats

    async def only_bridge() -> None:
        with tempfile.TemporaryDirectory() as state:
            settings = Settings.load(None).with_(
                environment="development", state=Path(state), executables={"python3": Path(sys.executable)}
            )
            async with (
                Bridge(settings, plugins=[ECHO], grant=True, remember=False) as bridge,
                bridge.run("bench") as run,
            ):

                async def through() -> None:
                    await run.call("mcp-fixture.echo", ARGUMENTS)

                await load(through, count // 4, in_flight)
                profile = cProfile.Profile()
                profile.enable()
                await load(through, count, in_flight)
                profile.disable()
                pstats.Stats(profile).sort_stats("tottime").print_stats(40)

    asyncio.run(only_bridge())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", action="store_true", help="profile the bridge instead")
    given = parser.parse_args()
    if given.profile:
        cpu_of(given.calls, 32)
        return
    rows = []
    for in_flight in (1, 32):
        figures = asyncio.run(measure(given.calls if in_flight > 1 else given.calls // 8, in_flight, given.rounds))
        row: dict[str, float] = {"in flight": in_flight}
        for name, rounds in figures.items():
            row[name] = statistics.median(rate for rate, _ in rounds)
            row[f"{name} µs"] = statistics.median(cpu for _, cpu in rounds)
        row["ratio"] = row["bridge"] / row["bare exchange"]
        rows.append(row)
    if given.json:
        print(json.dumps({"cpus": os.cpu_count(), "python": sys.version.split()[0], "rows": rows}))
        return
    print(f"calls of echo a second, medians of {given.rounds} interleaved rounds, Python {sys.version.split()[0]}")
    print(f"{'in flight':>10} {'bare exchange':>14} {'µs CPU':>7} {'bridge':>10} {'µs CPU':>7} {'ratio':>7}")
    for row in rows:
        bare, bridge = (f"{row[name]:>{width},.0f} {row[f'{name} µs']:>7.1f}" for name, width in WIDTHS.items())
        print(f"{row['in flight']:>10} {bare} {bridge} {row['ratio']:>7.2f}")


if __name__ == "__main__":
    main()
