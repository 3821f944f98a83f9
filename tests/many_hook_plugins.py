"""A folder with two hundred hook plugins of strangers, twenty of them broken, each in its own way of four."""

from __future__ import annotations

from pathlib import Path

COUNT = 200
BROKEN_EACH = 10  # every tenth

GOOD = """
from bascule.hookspecs import Permission, Section, hookimpl

class Settings(Section):
    words: tuple[str, ...] = ()

@hookimpl
def bascule_permissions(config):
    config.section(Settings)
    return [Permission("many.{number}", "the word of number {number}")]
"""
HEAD = "from bascule.hookspecs import hookimpl\n@hookimpl\n"
BAD = (
    "raise ImportError('number {number} needs what is not there')\n",
    f"{HEAD}def bascule_permission(config): return []\n",
    f"{HEAD}def bascule_permissions(config): raise OSError('number {{number}}')\n",
    "def broken(:\n",
)


def lay_down(folder: Path) -> set[str]:
    """Write them as an installer does; returns the names of those that are broken."""
    folder.mkdir()
    broken = set()
    for number in range(COUNT):
        name = f"many_{number:03}"
        code = GOOD
        if number % BROKEN_EACH == 0:
            code = BAD[number // BROKEN_EACH % len(BAD)]
            broken.add(name)
        (folder / f"{name}.py").write_text(code.replace("{number}", str(number)), encoding="utf-8")
        metadata = folder / f"{name}-1.{number}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: many-{number:03}\nVersion: 1.{number}\n")
        (metadata / "entry_points.txt").write_text(f"[bascule.plugins]\n{name} = {name}\n")
    return broken
