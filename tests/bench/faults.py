"""How long a neighbour waits while a sandboxed server misbehaves, and how long that server's end takes.

Run it with ``python tests/bench/faults.py [LAUNCHER …]``. One bridge for each fault of
``tests/test_sandbox_faults.py``: beside it the echo server is called without a pause, and its slowest answer is
kept. The stop is what is left of ``disable`` when the grace (0.3 s) is taken off.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from sandbox import LAUNCHERS, copied, hosting, reachable, settings_for  # noqa: E402
from test_sandbox_faults import FAULTS, nothing_below  # noqa: E402

from bascule.hookspecs import BasculeError, CallError, Run  # noqa: E402

GRACE = 0.3
LIMITS = {"startup_seconds": 20, "tool_seconds": 5, "shutdown_grace_seconds": GRACE}


async def neighbour(run: Run, waits: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await run.call("mcp-fixture.echo", {"message": "x"})
        waits.append(time.perf_counter() - began)
        await asyncio.sleep(0.002)


async def one(launcher: str, fault: str) -> tuple[float, float]:
    """Seconds: the neighbour's slowest answer, and the stop beyond its grace."""
    with reachable() as folder:
        echo, variants = copied(folder, "mcp-echo", "variants")
        name = f"fx-{fault}"
        settings = settings_for(launcher, folder, isolation={name: {"readable": [variants]}}, limits=LIMITS)
        async with hosting(settings, echo) as bridge, bridge.run("bench") as run:
            await run.call("mcp-fixture.echo", {"message": "x"})
            waits: list[float] = []
            calling = asyncio.create_task(neighbour(run, waits))
            view = await bridge.plugins.install(variants / fault, keep=False)
            await bridge.plugins.grant(view.plugin_id, view.permissions)
            with suppress(BasculeError):
                await bridge.plugins.enable(view.plugin_id)
            if (call := FAULTS[fault]) is not None:
                with suppress(CallError):
                    await run.call(f"{name}.{call[0]}", call[1])
            began = time.perf_counter()
            await bridge.plugins.disable(view.plugin_id)
            stop = time.perf_counter() - began
            await nothing_below(variants)
            calling.cancel()
            return max(waits), max(0.0, stop - GRACE)


def main() -> None:
    for launcher in sys.argv[1:] or sorted(LAUNCHERS):
        figures = {}
        for fault in sorted(FAULTS):
            figures[fault] = asyncio.run(one(launcher, fault))
            wait, stop = figures[fault]
            print(
                f"{launcher:12} {fault:26} slowest answer {wait * 1000:6.0f} ms   stop {stop * 1000:6.0f} ms",
                flush=True,
            )
        slowest, longest = (max(each) for each in zip(*figures.values(), strict=True))
        print(
            f"{launcher}: slowest answer of a neighbour {slowest * 1000:.0f} ms, longest stop {longest * 1000:.0f} ms"
        )


if __name__ == "__main__":
    main()
