"""The README's walk from the wheel to a call, as a newcomer takes it: each command of it, in its order."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from bascule.hookspecs.kit import free_port

README = Path(__file__).resolve().parents[1] / "README.md"
BEFORE = ("python3 -m venv", "pip install", ". env/")  # what the environment that runs the tests has behind it
ELSEWHERE = ("npx",)  # tests/interop runs that client, and others


def commands(text: str) -> list[list[str]]:
    """The commands of each block, without comments."""
    section = text.split("## From the wheel to a call")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = [block.replace("\\\n", "").splitlines() for block in blocks]
    return [[re.sub(r"\s{2,}#.*", "", line) for line in each if not line.startswith(BEFORE)] for each in lines]


@pytest.mark.skipif(not README.exists(), reason="the README is not beside these tests")
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_walk_from_the_wheel_to_a_call(bascule):
    rest, sse = free_port(), free_port()
    bascule.settings(f"plugins: {{quart_api: {{port: {rest}}}, sse_server: {{port: {sse}}}}}\n")
    first, second = commands(README.read_text(encoding="utf-8"))

    def run(command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command.replace("7860", str(rest)).replace("7861", str(sse))],
            cwd=bascule.folder,
            env=bascule.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    *before, last = first
    assert last.startswith("bascule serve ")
    for command in before:
        run(command)
    serving = bascule.start(*last.split()[1:])
    serving.until("Ctrl-C stops")
    shown = {command.split(" ")[0:2][-1]: run(command) for command in second if not command.startswith(ELSEWHERE)}
    assert "Hello, Ada!" in shown["call"]
    assert "Hello, Ada!" in shown["-s"]  # curl
    assert "call clock.greet" in shown["runs"]
    assert serving.ended(signal.SIGINT).code == 0
