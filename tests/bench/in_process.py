"""Calls of the echo tool by an agent in the process, beside bare JSON-RPC exchanges over the same kind of pipes.

There are two of these: one as asyncio's documentation would have it written (streams and the json module), and one
tuned by hand (a protocol's callbacks and msgspec), which is as fast as Python gets. Rounds of all three are
interleaved, so that a noisy machine disturbs them alike; read the ratios. Run by ``make bench``.
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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

ECHO = Path(__file__).resolve().parents[2] / "fixtures" / "mcp-echo"
ARGUMENTS = {"message": "hello"}
STREAMS, TUNED, BRIDGE = "by streams", "tuned by hand", "bridge"

Call = Callable[[], Awaitable[None]]


class Streams:
    """The plain floor: ids and futures over asyncio's streams; nothing is found, checked, permitted or kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._id = 0
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while line := await self._stdout.readline():
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set_result(answer["result"])

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        self._id += 1
        future = self._waiting[self._id] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._stdin.write(json.dumps(message).encode() + b"\n")
        await self._stdin.drain()
        return await future


class Tuned(asyncio.SubprocessProtocol):
    """The floor tuned by hand: one decode and one encode a message by msgspec, and no stream or task in between."""

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


@asynccontextmanager
async def floors() -> AsyncIterator[dict[str, Call]]:
    """Both bare exchanges, each with a server of its own that has shaken hands."""
    command = sys.executable, str(ECHO / "server.py")
    transport, tuned = await asyncio.get_running_loop().subprocess_exec(Tuned, *command, stderr=None)
    tuned.connect(transport)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
    call = {"name": "echo", "arguments": ARGUMENTS}

    def calling(request: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> Call:
        async def one() -> None:
            result = await request("tools/call", call)
            assert result["structuredContent"]["message"] == "hello"

        return one

    streams = Streams(process)
    try:
        for exchange in (streams, tuned):
            await exchange.request("initialize", initialize)
        yield {STREAMS: calling(streams.request), TUNED: calling(tuned.request)}
    finally:
        transport.close()
        process.kill()
        await process.wait()


async def measure(count: int, in_flight: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Interleaved rounds of the floors and of the bridge."""
    with tempfile.TemporaryDirectory() as state:
        settings = Settings.load(None).with_(
            environment="development", state=Path(state), executables={"python3": Path(sys.executable)}
        )
        async with (
            Bridge(settings, plugins=[ECHO], grant=True, remember=False) as bridge,
            bridge.run("bench") as run,
            floors() as calls,
        ):

            async def through() -> None:
                result = await run.call("mcp-fixture.echo", ARGUMENTS)
                assert result.output["message"] == "hello"

            calls[BRIDGE] = through
            figures: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
            for call in calls.values():
                await load(call, count // 4, in_flight)
            for _ in range(rounds):
                for name, call in calls.items():
                    figures[name].append(await load(call, count, in_flight))
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
        for floor in (STREAMS, TUNED):
            row[f"of {floor}"] = row[BRIDGE] / row[floor]
        rows.append(row)
    if given.json:
        print(json.dumps({"cpus": os.cpu_count(), "python": sys.version.split()[0], "rows": rows}))
        return
    print(f"calls of echo a second, medians of {given.rounds} interleaved rounds, Python {sys.version.split()[0]}")
    print(
        "in flight" + "".join(f"{name:>15} {'µs CPU':>7}" for name in (STREAMS, TUNED, BRIDGE)) + "  the bridge's share"
    )
    for row in rows:
        rates = (f"{row[name]:>15,.0f} {row[f'{name} µs']:>7.1f}" for name in (STREAMS, TUNED, BRIDGE))
        shares = (f"{row[f'of {floor}']:>6.2f} of {floor}" for floor in (STREAMS, TUNED))
        print(f"{row['in flight']:>9}" + "".join(rates) + "".join(shares))


if __name__ == "__main__":
    main()
