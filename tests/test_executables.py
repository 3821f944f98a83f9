"""Which program a bare name means is which program runs, with all that belongs to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bascule.core.launching import Planner
from bascule.hookspecs import LaunchRequest, Limits


@pytest.mark.req("N3.3")
@pytest.mark.parametrize("name", ["python", "some-python"])
def test_a_name_bound_to_the_python_of_a_virtual_environment_runs_in_that_environment(tmp_path: Path, name: str):
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    planner = Planner({name: place / "bin" / "python"})
    plan = planner.plan(LaunchRequest([name, "-c", "import sys; print(sys.prefix)"], tmp_path), Limits())
    shown = subprocess.run(plan.argv, executable=plan.executable, env=dict(plan.env), check=True, capture_output=True)
    assert shown.stdout.decode().strip() == str(place)
