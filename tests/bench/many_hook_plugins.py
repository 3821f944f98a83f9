"""How much longer a bridge takes to start with 200 hook plugins installed, 20 of them broken, than with none.

``python tests/bench/many_hook_plugins.py [ROUNDS]``: interleaved rounds in new processes, after one that writes the
bytecode; the time from starting ``bascule serve`` to its word that it serves: median, best, and the median of the
processor time that the whole run took.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from many_hook_plugins import COUNT, lay_down

SCRIPTS = Path(sys.executable).parent
MOST_SECONDS = 2.0


def started(state: Path, env: dict[str, str]) -> tuple[float, float]:
    """Seconds until ``serve`` says that it serves, and its processor time to the end."""
    used = _processor_time()
    quiet = [part for name in ("sse_server", "quart_api") for part in ("--no-hook-plugin", name)]
    command = [str(SCRIPTS / "bascule"), "serve", "--json", "--state", str(state), *quiet]
    began = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    for line in process.stdout:
        if b"serving" in line:
            break
    took = time.perf_counter() - began
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return took, _processor_time() - used


def _processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        broken = lay_down(Path(folder) / "many")
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        plain["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        crowded = {**plain, "PYTHONPATH": f"{folder}/many"}
        results: dict[str, list[tuple[float, float]]] = {"none": [], "many": []}
        for turn in range(rounds + 1):
            for name, env in (("none", plain), ("many", crowded)):
                took = started(Path(folder) / name, env)
                if turn:
                    results[name].append(took)
    medians = {}
    print(f"{'bascule serve, until it serves':44} {'median s':>9} {'best':>6} {'cpu s':>6}")
    for name, label in (("none", "with the built-ins alone"), ("many", f"with {COUNT} more, {len(broken)} broken")):
        walls, used = zip(*results[name], strict=True)
        medians[name] = statistics.median(walls)
        print(f"{label:44} {medians[name]:9.2f} {min(walls):6.2f} {statistics.median(used):6.2f}")
    more = medians["many"] - medians["none"]
    verdict = "within" if more <= MOST_SECONDS else "OVER"
    print(f"{'the difference of the medians':44} {more:9.2f}        {verdict} the bound of {MOST_SECONDS:g} s")


if __name__ == "__main__":
    main()
