"""How long a command takes from a cold start, beside the bare imports of three packages that it stands on.

``python tests/bench/cold_start.py [ROUNDS]``: interleaved rounds in new processes, after one that writes the bytecode;
median and best of wall time, and of the processor time of the process and its children.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ECHO = Path(__file__).resolve().parents[2] / "fixtures" / "mcp-echo"
SCRIPTS = Path(sys.executable).parent
BARE = "import pluggy, pydantic, jsonschema"


def commands(state: str) -> dict[str, list[str]]:
    bascule = str(SCRIPTS / "bascule")
    call = [bascule, "call", "mcp-fixture.echo", '{"message": "hello"}', "--dev", "--plugin", str(ECHO)]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        f"python -c '{BARE}'": [sys.executable, "-c", BARE],
        "bascule --help": [bascule, "--help"],
        "bascule hooks --json": [bascule, "hooks", "--json"],
        "bascule call …": [*call, "--state", state],
    }


def measured(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Wall and processor time of one run, in milliseconds."""
    used = _processor_time()
    began = time.perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1000, (_processor_time() - used) * 1000


def _processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "PATH": os.pathsep.join([str(SCRIPTS), env["PATH"]])}
        todo = commands(f"{folder}/state")
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in todo}
        for turn in range(rounds + 1):
            for name, command in todo.items():
                result = measured(command, env)
                if turn:
                    results[name].append(result)
    bare = statistics.median(wall for wall, _ in results[f"python -c '{BARE}'"])
    print(f"{'':52} {'wall ms':>8} {'best':>6} {'cpu ms':>8} {'best':>6}  times the bare imports")
    for name, figures in results.items():
        walls, used = zip(*figures, strict=True)
        wall = statistics.median(walls)
        shown = f"{wall:8.0f} {min(walls):6.0f} {statistics.median(used):8.0f} {min(used):6.0f}"
        print(f"{name:52} {shown}  {wall / bare:.2f}")


if __name__ == "__main__":
    main()
