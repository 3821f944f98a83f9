"""Every example is a distribution that pip builds and installs; all of them side by side in one environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fresh_environment import FreshEnvironment

HOOK_PLUGINS = Path(__file__).resolve().parents[1] / "fixtures" / "hook-plugins"
PROJECTS = {
    folder.name: tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for folder in sorted(HOOK_PLUGINS.iterdir())
}
BROKEN = {
    "broken-arguments",
    "broken-exits",
    "broken-hook-name",
    "broken-offer",
    "broken-on-import",
    "endless-offers",
    "raises-in-hook",
    "takes-a-name",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.req("D4", "D5")]


@pytest.fixture
def everything(tmp_path: Path) -> tuple[FreshEnvironment, dict[str, str]]:
    """One environment with all of them, installed by pip in one go."""
    folder = tmp_path
    environment = FreshEnvironment(folder / "fresh")
    sources = folder / "sources"
    shutil.copytree(HOOK_PLUGINS, sources, ignore=shutil.ignore_patterns("__pycache__"))
    env = environment.env(folder)
    environment.pip("install", "--no-deps", *sorted(sources.iterdir()), env=env, seconds=500)
    return environment, env


def bascule(everything: tuple[FreshEnvironment, dict[str, str]], *arguments: str, **env: str) -> Any:
    environment, basis = everything
    run = subprocess.run(
        [environment.scripts / "bascule", *arguments, "--json"],
        env={**basis, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return json.loads(run.stdout)


def test_pip_installs_all_of_them_and_each_is_told_for_what_it_is(everything):
    shown = {plugin["distribution"]: plugin for plugin in bascule(everything, "hooks")["hook_plugins"]}
    for name, project in PROJECTS.items():
        plugin = shown[name]
        assert {plugin["name"]: plugin["entry_point"]} == project["entry-points"]["bascule.plugins"]
        assert plugin["version"] == project["version"]
        assert plugin["state"] == ("broken" if name in BROKEN else "ok"), plugin
        assert bool(plugin["error"]) == (name in BROKEN)
        assert bool(plugin["offers"]) == (name not in BROKEN)

    # the brake for an emergency turns all of them off, unseen
    names = [name for project in PROJECTS.values() for name in project["entry-points"]["bascule.plugins"]]
    shown = bascule(everything, "hooks", BASCULE_DISABLED_HOOK_PLUGINS=",".join(names))["hook_plugins"]
    states = {plugin["name"]: plugin["state"] for plugin in shown}
    assert {states[name] for name in names} == {"disabled"}
    assert states["stdio_client"] == "ok"
