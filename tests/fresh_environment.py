"""Virtual environments of a test's own, as a stranger has them."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

# by way of a shell: a first line takes no path with blanks
SCRIPT = """#!/bin/sh
exec "{python}" -c 'from {module} import main; raise SystemExit(main())' "$@"
"""


class FreshEnvironment:
    """A new virtual environment in which pip, Bascule and what they need are there already.

    They are those of the environment that runs the tests, lent by a ``.pth`` file: a second install of thirty
    distributions would prove nothing about the stranger's, take minutes and need a network. ``site.addsitedir`` in
    it, not a plain path, so that an editable Bascule is found, too. The stranger's distribution is built by its own
    build backend and installed by pip, which meets its ``dependencies`` with what is lent.
    """

    def __init__(self, folder: Path, *, lent: bool = True) -> None:
        venv.create(folder, with_pip=not lent)
        variables = {"base": str(folder), "platbase": str(folder)}
        self.scripts = Path(sysconfig.get_path("scripts", "venv", variables))
        self.python = self.scripts / "python"
        if lent:
            self._lend(Path(sysconfig.get_path("purelib", "venv", variables)))

    def _lend(self, packages: Path) -> None:
        lent = [sysconfig.get_path("purelib"), *([] if sys.prefix != sys.base_prefix else site.getsitepackages())]
        code = "; ".join(["import site", *(f"site.addsitedir({place!r})" for place in dict.fromkeys(lent))])
        (packages / "lent.pth").write_text(f"{code}\n")
        for name, module in (("bascule", "bascule.core.cli"), ("pip", "pip._internal.cli.main")):
            script = self.scripts / name
            script.write_text(SCRIPT.format(python=self.python, module=module))
            script.chmod(0o755)

    def pip(self, *arguments: str | Path, env: dict[str, str], seconds: float = 300) -> None:
        """Run pip without an index, with the build backends that are lent."""
        options = ("--quiet", "--no-index", "--disable-pip-version-check", "--no-input")
        command = [self.python, "-m", "pip", arguments[0], *arguments[1:]]
        if arguments[0] == "install":
            command[4:4] = [*options, "--no-build-isolation"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def env(self, home: Path, **more: str) -> dict[str, str]:
        """The environment of what runs in it, and nothing of the tests' own."""
        return {
            "PATH": os.pathsep.join([str(self.scripts), os.environ.get("PATH", os.defpath)]),
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "LANG": "C.UTF-8",
            **more,
        }
