"""The bridge dies by SIGKILL, at any moment of a start and during calls: nothing that it started is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sandbox import LAUNCHERS, below, copied, interpreter, need, reachable

from bascule.core.needs import Needs

ROUNDS = int(os.environ.get("BASCULE_KILLS", "30"))
SPREAD_SECONDS = 0.15
SOON = 60.0

STARTS = """
# Start the server as the launcher does, in one newborn process after the other; each is killed after the next delay.
import asyncio, json, os, signal, sys, time
from pathlib import Path
from bascule.builtin_plugins.sandbox.bubblewrap import BubblewrapLauncher
from bascule.builtin_plugins.sandbox.landlock import LandlockLauncher
from bascule.hookspecs import IsolationRequest, LaunchPlan, Limits

name, python, directory, data, *readable = json.loads(sys.stdin.readline())  # no argument: they would be taken for it
launcher = {"bubblewrap": BubblewrapLauncher, "landlock": LandlockLauncher}[name]()
readable = tuple(map(Path, readable))
isolation = IsolationRequest(data=Path(data), writable=(Path(data),), readable=readable)
env = {"HOME": data, "TMPDIR": data}
plan = LaunchPlan(Path(python), (python, "server.py"), Path(directory), env, Limits(), isolation)

async def start():
    child = await launcher.launch(plan)
    await child.wait()

for line in sys.stdin:
    born = os.fork()
    if born == 0:
        asyncio.run(start())
        os._exit(0)
    time.sleep(float(line))
    os.kill(born, signal.SIGKILL)
    os.waitpid(born, 0)
    print("killed", flush=True)
"""

CALLS = """
# A bridge in which a call is always under way.
import asyncio, json, sys
from pathlib import Path
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

async def main():
    settings = Settings().with_(**json.loads(sys.argv[1]))
    async with Bridge(settings, plugins=[Path(sys.argv[2])], grant=True, remember=False) as bridge:
        await bridge.settled()
        async with bridge.run("test") as run:
            await run.call("fx-misdeeds.daemons")
            print("calling", flush=True)
            while True:
                await run.call("fx-misdeeds.attempt", {"deed": "may_use_asyncio", "facts": {}})

asyncio.run(main())
"""


def _gone(folder: Path) -> None:
    until = time.monotonic() + SOON
    while left := below(folder):
        assert time.monotonic() < until, left
        time.sleep(0.05)


@pytest.fixture(params=sorted(LAUNCHERS))
def launcher(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


@pytest.mark.req("N6.10", "N4.2.1")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_left_of_a_bridge_that_was_killed_around_a_start(launcher: str) -> None:
    python = interpreter(launcher)
    assert python is not None
    readable = [str(place) for place in Needs((), None).of(python)]
    with reachable() as folder:
        (plugin,) = copied(folder, "misdeeds")
        data = folder / "data"
        data.mkdir()
        with _python(STARTS) as starts:
            assert starts.stdin is not None
            assert starts.stdout is not None
            starts.stdin.write(json.dumps([launcher, str(python), str(plugin), str(data), *readable]) + "\n")
            for number in range(ROUNDS):
                starts.stdin.write(f"{number * SPREAD_SECONDS / ROUNDS}\n")
                starts.stdin.flush()
                assert starts.stdout.readline() == "killed\n"
                _gone(plugin)
            starts.stdin.close()


@pytest.mark.req("N6.10", "N4.2.1")
def test_nothing_is_left_of_a_bridge_that_was_killed_during_calls(launcher: str) -> None:
    with reachable() as folder:
        (plugin,) = copied(folder, "misdeeds")
        settings = {
            "environment": "development",
            "launcher": launcher,
            "state": str(folder / "state"),
            "executables": {"python3": str(interpreter(launcher))},
        }
        for _ in range(max(2, ROUNDS // 15)):
            with _python(CALLS, json.dumps(settings), str(plugin)) as bridge:
                assert bridge.stdout is not None
                assert bridge.stdout.readline() == "calling\n"
                assert len(below(plugin)) > 3
                bridge.send_signal(signal.SIGKILL)
                bridge.wait()
            _gone(plugin)


def _python(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
