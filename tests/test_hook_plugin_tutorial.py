"""docs/hook-plugins.md, done as it stands: every file written, every command run, in an environment of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fresh_environment import FreshEnvironment

from bascule.hookspecs.kit import free_port

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "hook-plugins.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.req("D3", "D5")]


class Reader:
    """Someone who does what the page says. The port is another one: the page's may be taken here."""

    def __init__(self, folder: Path, environment: FreshEnvironment, **env: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.env = environment.env(folder.parent, **env)
        self.port = str(free_port())
        self.said: dict[str, str] = {}

    def follow(self) -> None:
        for language, name, text in BLOCK.findall(PAGE):
            if name:
                (self.folder / name).write_text(text.replace("7071", self.port), encoding="utf-8")
            elif language == "sh":
                for line in text.splitlines():
                    self.run(line)
            else:
                raise AssertionError(f"what is to be done with this? {text}")

    def run(self, line: str) -> None:
        with self._server() if line.startswith("bascule call") else _nothing():
            done = subprocess.run(
                ["/bin/sh", "-c", line],
                cwd=self.folder,
                env=self.env,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
        if "pip" in line and re.search("No matching distribution|NewConnectionError|retries exceeded", done.stderr):
            pytest.skip(f"NOT TESTED HERE: no package index answers: {done.stderr[-300:]}")
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        self.said[line] = done.stdout

    @contextmanager
    def _server(self) -> Iterator[None]:
        server = subprocess.Popen(["python", "server.py"], cwd=self.folder, env=self.env, stderr=subprocess.PIPE)
        try:
            _until_it_listens(int(self.port), server)
            yield
        finally:
            server.kill()
            server.communicate()

    def saw_what_the_page_says(self) -> None:
        (listed,) = (text for line, text in self.said.items() if line == "bascule hooks")
        assert "my_tcp" in listed
        assert "client transports: my-tcp" in listed
        (tested,) = (text for line, text in self.said.items() if line == "python -m pytest")
        assert re.search(r"the kit's suites ran: client transport 'my-tcp' \((\d+) of \1 checks hold\)", tested)
        (called,) = (text for line, text in self.said.items() if line.startswith("bascule call"))
        assert "HELLO" in called
        assert list((self.folder / "dist").glob("my_tcp_transport-0.1.0-*.whl"))


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _until_it_listens(port: int, server: subprocess.Popen[bytes]) -> None:
    import socket
    import time

    for _ in range(1_200):
        if server.poll() is not None:
            raise AssertionError(server.communicate()[1])
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the tutorial's server does not listen")


def test_the_tutorial_works_as_it_stands(tmp_path: Path) -> None:
    environment = FreshEnvironment(tmp_path / "fresh")
    # pip takes this variable as what it says of isolation, not of its absence
    reader = Reader(tmp_path / "mine", environment, PIP_NO_INDEX="1", PIP_NO_BUILD_ISOLATION="0")
    reader.follow()
    reader.saw_what_the_page_says()


@pytest.mark.interop
@pytest.mark.skipif(not (ROOT / "core").is_dir(), reason="no repository to build a wheel of")
def test_the_tutorial_alone_and_the_built_wheel_are_enough(tmp_path: Path) -> None:
    """An environment that holds the wheel with its extra `kit`, and nothing of this repository."""
    wheels = tmp_path / "wheels"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = wheels.iterdir()
    environment = FreshEnvironment(tmp_path / "fresh", lent=False)
    reader = Reader(tmp_path / "mine", environment, PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
    reader.run(f"python -m pip install --quiet '{wheel}[kit]'")
    reader.follow()
    reader.saw_what_the_page_says()
    where = subprocess.run(
        [environment.python, "-c", "import bascule; print(bascule.__file__)"],
        env=reader.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert Path(where.stdout.strip()).is_relative_to(tmp_path / "fresh")
