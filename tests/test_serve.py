"""`bascule serve` as its owner meets it: a process that prints what clients paste, and ends when it is told to."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from sse_client import connect

from bascule.hookspecs.kit import free_port

Start = Callable[..., AbstractAsyncContextManager["Process"]]


class Process:
    """A running command and the lines that it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self.error = ""

    async def line(self, start: str) -> str:
        """Wait for a line that begins so."""
        assert self._process.stdout
        async with asyncio.timeout(90):
            while line := (await self._process.stdout.readline()).decode():
                self.lines.append(line.rstrip("\n"))
                if line.strip().startswith(start):
                    return line.strip()
        raise AssertionError(f"no line that begins with {start!r} in {self.lines}")

    async def stop(self, number: int = signal.SIGTERM) -> int:
        self._process.send_signal(number)
        return (await self.end())[0]

    async def end(self) -> tuple[int, str]:
        """Wait for the end; exit code and stderr."""
        async with asyncio.timeout(90):
            self.error = (await self._process.communicate())[1].decode()
            return await self._process.wait(), self.error


@pytest.fixture
def start(tmp_path: Path, echo: Path, http_server: str) -> Start:
    """Runs `bascule serve` with the given section `sse_server`."""

    @asynccontextmanager
    async def started(*options: str, http: str = http_server, **section: object) -> AsyncIterator[Process]:
        config = tmp_path / "bascule.yaml"
        settings: dict[str, Any] = {
            "http_server": http,
            "disabled_hook_plugins": ["quart_api"],
            "plugins": {"sse_server": section},
        }
        config.write_text(yaml.safe_dump({**settings, "executables": {"python3": sys.executable}}))
        command = ["serve", "--config", str(config), "--state", str(tmp_path / "state"), "--dev"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from bascule.core.cli import main; main()",
            *command,
            "--plugin",
            str(echo),
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield Process(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    return started


@pytest.mark.req("A1", "D5")
async def test_what_is_printed_leads_a_client_to_the_tools(start):
    async with start(port=free_port()) as served:
        await served.line("MCP clients")
        entry = json.loads(await served.line("{"))["mcpServers"]["bascule"]
        assert entry["type"] == "sse"
        await served.line("Claude Code")
        command = shlex.split(await served.line("claude mcp add"))
        assert command == ["claude", "mcp", "add", "--transport", "sse", "bascule", entry["url"]]
        assert await served.line("serving") == "serving 6 tools of 1 plugin; ways in: sse"
        async with connect(entry["url"].removesuffix("/sse")) as client:
            await client.initialize()
            assert (await client.call("mcp-fixture.echo", {"message": "x"}))["structuredContent"]["message"] == "x"
            assert await served.stop() == 0
            await client.until_ended()


async def test_as_json_the_addresses_are_in_the_event(start):
    port = free_port()
    async with start("--json", port=port) as served:
        event = json.loads(await served.line('{"event": "serving"'))
        assert event["transports"] == ["sse"]
        assert event["urls"] == {"sse": f"http://127.0.0.1:{port}/sse"}
        assert await served.stop(signal.SIGINT) == 0


@pytest.mark.req("A2")
@pytest.mark.parametrize("port", [0, 70_000, "x"])
async def test_an_invalid_port_is_an_error_in_words(start, port):
    async with start(port=port) as served:
        code, error = await served.end()
        assert code == 2
        assert "SETTINGS_INVALID" in error
        assert "plugins.sse_server.port" in error
        assert "bascule.yaml:" in error
        assert "Traceback" not in error


@pytest.mark.req("A2")
async def test_a_taken_port_is_an_error_in_words(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with start(port=taken.getsockname()[1]) as served:
            code, error = await served.end()
            assert code == 2
            assert "SETTINGS_INVALID" in error
            assert "in use" in error
            assert "choose another port" in error
            assert "Traceback" not in error


async def test_an_http_server_that_is_not_there_is_an_error_in_words(start):
    async with start(http="apache", port=free_port()) as served:
        code, error = await served.end()
        assert code == 2
        assert "'apache'" in error
        assert "hypercorn" in error


async def test_without_any_way_in_plugins_are_hosted_all_the_same(start):
    async with start("--no-hook-plugin", "sse_server", port=free_port()) as served:
        assert "ways in: none" in await served.line("serving")
        assert await served.stop() == 0


async def test_it_stops_though_a_plugin_still_starts(start, variant, plugin_copy):
    slow = variant("slow-start")

    def slower(manifest):  # so slow that whoever waits for it fails
        args = [str(slow.parent / "hostile.py"), "slow-start", "300"]
        manifest["backend"].update(args=args, startup_timeout_seconds=300)

    async with start("--plugin", str(plugin_copy(slow, slower)), port=free_port()) as served:
        await served.line("MCP clients")
        assert await served.stop() == 0


async def test_the_log_tells_who_came_when_it_is_asked_to(start):
    port = free_port()
    async with start("-v", port=port) as served:
        await served.line("serving")
        async with connect(f"http://127.0.0.1:{port}") as client:
            await client.initialize()
        assert await served.stop() == 0
        assert "begins, as mcp-client" in served.error
        assert "tester 1.2.3 speaks MCP" in served.error
