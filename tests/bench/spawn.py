"""What a sandbox costs: from the order to start a server to its first answer, and the time of one call, by launcher.

``python tests/bench/spawn.py [ROUNDS]``: interleaved rounds; median and best, in milliseconds and microseconds.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sandbox import copied, hosting, reachable, settings_for, unavailable

CALLS = 500
MOST_MORE = 60.0  # milliseconds: what full isolation may add to a start


async def measured(launcher: str, folder: Path, plugin: Path) -> tuple[float, float]:
    """Milliseconds from ``enable`` to the first answer, and microseconds of a call."""
    async with hosting(settings_for(launcher, folder)) as bridge:
        await bridge.plugins.install(plugin, keep=False)
        await bridge.plugins.grant("mcp-fixture", ["tools.call", "notes.read"])
        if launcher != "local":
            await asyncio.to_thread(bridge.keepers.probe, [launcher])
        async with bridge.run("bench") as run:
            began = time.perf_counter()
            await bridge.plugins.enable("mcp-fixture")
            await run.call("mcp-fixture.echo", {"message": "x"})
            started = time.perf_counter()
            for _ in range(CALLS):
                await run.call("mcp-fixture.echo", {"message": "x"})
            ended = time.perf_counter()
    return (started - began) * 1000, (ended - started) / CALLS * 1e6


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    launchers = ["local", *(name for name in ("bubblewrap", "landlock") if unavailable(name) is None)]
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in launchers}
    with reachable() as folder:
        (plugin,) = copied(folder, "mcp-echo")
        for turn in range(rounds + 1):
            for name in launchers:
                result = asyncio.run(measured(name, folder, plugin))
                if turn:
                    results[name].append(result)
    plain = statistics.median(start for start, _ in results["local"])
    print(f"{'launcher':12} {'start ms':>9} {'best':>6} {'more':>6} {'call µs':>8} {'best':>6}")
    for name, figures in results.items():
        starts, calls = zip(*figures, strict=True)
        start = statistics.median(starts)
        print(
            f"{name:12} {start:9.1f} {min(starts):6.1f} {start - plain:+6.1f} "
            f"{statistics.median(calls):8.0f} {min(calls):6.0f}"
        )
        if name == "bubblewrap" and start - plain > MOST_MORE:
            print(f"{name}: a start costs more than {MOST_MORE:.0f} ms more than an unsandboxed one")


if __name__ == "__main__":
    main()
