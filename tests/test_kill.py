"""A bridge that is killed at any moment: what was done is done, what was not is not, and no process stays."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import PluginState

DRIVER = """
import asyncio, random, sys
from pathlib import Path
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import PluginState

NEXT = {
    None: ["install"],
    PluginState.AWAITING_GRANTS: ["grant", "uninstall"],
    PluginState.DISABLED: ["enable", "enable", "revoke", "uninstall"],
    PluginState.READY: ["call", "call", "disable", "revoke", "uninstall"],
}

async def step(bridge, folder, what):
    name, plugins = folder.name, bridge.plugins
    if what == "install":
        await plugins.install(folder)
    elif what == "grant":
        await plugins.grant(name, plugins.get(name).permissions)
    elif what == "revoke":
        await plugins.grant(name, [])
    elif what == "call":
        async with bridge.run("test") as run:
            await run.call(f"{name}.echo", {"message": "x"})
    else:
        await getattr(plugins, what)(name)

async def live(bridge, folder, dice, journal):
    while True:
        states = {view.plugin_id: view.state for view in bridge.plugins.list()}
        what = dice.choice(NEXT[states.get(folder.name)])
        print("begin", what, folder.name, file=journal, flush=True)
        await step(bridge, folder, what)
        print("done", what, folder.name, file=journal, flush=True)

async def main(seed, state, launcher, journal, *folders):
    python = {"python3": sys.executable}
    settings = Settings().with_(environment="development", state=Path(state), launcher=launcher, executables=python)
    print("up", flush=True)
    async with Bridge(settings) as bridge:
        await bridge.settled()
        with open(journal, "w") as file:
            await asyncio.gather(*(live(bridge, Path(f), random.Random(seed + f), file) for f in folders))

asyncio.run(main(*sys.argv[1:]))
"""

Until = Callable[..., Awaitable[None]]

ABSENT, ASKING, OFF, ON = "absent", "asking", "off", "on"
AFTER = {"install": ASKING, "grant": OFF, "revoke": ASKING, "enable": ON, "disable": OFF, "uninstall": ABSENT}
SHOWN = {PluginState.AWAITING_GRANTS: ASKING, PluginState.DISABLED: OFF, PluginState.READY: ON}


def possible(journal: Path, before: dict[str, str]) -> dict[str, set[str]]:
    """What each plugin may be: what its last step that was done made it, or the one that was under way."""
    allowed = {name: {state} for name, state in before.items()}
    done = dict(before)
    lines = journal.read_text().splitlines() if journal.exists() else []
    for line in lines:
        word, what, name = line.split()
        after = AFTER.get(what, done[name])
        if word == "done":
            done[name] = after
            allowed[name] = {after}
        else:
            allowed[name] = {done[name], after}
    return allowed


async def killed_somewhere(
    settings: Settings, tmp_path: Path, folders: list[Path], until: Until, seed: int, kills: int
) -> None:
    dice = random.Random(seed)
    settings = settings.with_(launcher=("local", "auto")[seed % 2])
    known = {folder.name: ABSENT for folder in folders}
    journal = tmp_path / "journal"
    for number in range(kills):
        journal.unlink(missing_ok=True)
        arguments = [f"{seed}.{number}", str(settings.state), settings.launcher, str(journal), *map(str, folders)]
        bridge = await asyncio.create_subprocess_exec(sys.executable, "-c", DRIVER, *arguments, stdout=subprocess.PIPE)
        assert bridge.stdout is not None
        assert await bridge.stdout.readline() == b"up\n"
        await asyncio.sleep(dice.uniform(0, 1.5))  # any moment will do
        assert bridge.returncode is None, "it failed by itself"
        bridge.kill()
        await bridge.wait()
        allowed = possible(journal, known)
        async with Bridge(settings) as again:
            await again.settled()
            shown = {view.plugin_id: SHOWN.get(view.state, view.state) for view in again.plugins.list()}
            known = {name: shown.get(name, ABSENT) for name in known}
            for name, state in known.items():
                assert state in allowed[name], (name, journal.read_text()[-500:] if journal.exists() else "")
                if state == ON:
                    async with again.run("test") as run:
                        assert (await run.call(f"{name}.echo", {"message": "back"})).output["message"] == "back"
            # What a supervisor takes down may take a moment more.
            running = sum(state == ON for state in known.values())
            await until(lambda running=running: len(working_in(tmp_path)) == running, 60)
        await until(lambda: not working_in(tmp_path), 60)


def working_in(directory: Path) -> list[int]:
    """The servers that run, whoever their parent is by now."""
    found = []
    for one in psutil.process_iter():
        try:
            if Path(one.cwd()).is_relative_to(directory) and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one.pid)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.fixture
def folders(plugin_copy, echo) -> list[Path]:
    copies = [plugin_copy(echo, name=name) for name in ("one", "two")]
    for copy in copies:
        manifest = copy / "plugin.yaml"
        manifest.write_text(manifest.read_text().replace("mcp-fixture", copy.name))
    return copies


pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="only Linux tells processes apart for sure, so only there they are ended",
)


@pytest.mark.req("N10")
@pytest.mark.parametrize("seed", range(5))
async def test_a_bridge_killed_at_a_random_moment_comes_back_as_it_was(settings, tmp_path, folders, until, seed):
    await killed_somewhere(settings, tmp_path, folders, until, seed, kills=3)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.req("N10")
@pytest.mark.parametrize("seed", range(5, 22))
async def test_a_bridge_killed_again_and_again_comes_back_as_it_was(settings, tmp_path, folders, until, seed):
    await killed_somewhere(settings, tmp_path, folders, until, seed, kills=5)
