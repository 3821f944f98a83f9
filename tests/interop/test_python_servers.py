"""Servers from the Python index do their work through Bascule."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bascule.hookspecs import PluginHostStartFailed, ToolArgumentsInvalid, ToolCallFailed, ToolConfirmationUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90, func_only=True)]


def on(name: str) -> pytest.MarkDecorator:
    """Say which plugin a test is about."""
    return pytest.mark.parametrize("plugin", [name], indirect=True)


def git(repository: Path, *arguments: str) -> str:
    """Do it ourselves."""
    return subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True, text=True).stdout


@on("time")
@pytest.mark.req("N5.5", "N5.6")
async def test_the_time_server_converts_between_time_zones(plugin, hosted):
    async with hosted(plugin) as server:
        result = await server.call(
            "convert_time", source_timezone="Asia/Tokyo", time="12:00", target_timezone="Asia/Kolkata"
        )
        converted = json.loads(result.text)
        assert converted["time_difference"] == "-3.5h"
        assert converted["target"]["datetime"].endswith("T08:30:00+05:30")
        assert result.output == list(result.content)  # it answers with text alone


@on("time")
@pytest.mark.req("N5.7")
async def test_a_tool_that_fails_says_so_in_the_servers_own_words(plugin, hosted):
    async with hosted(plugin) as server:
        with pytest.raises(ToolCallFailed, match="Invalid timezone") as caught:
            await server.call("get_current_time", timezone="Mars/Olympus")
        assert caught.value.result.failed


@on("time")
@pytest.mark.req("N5.5", "N6.7")
async def test_arguments_that_do_not_fit_are_refused_before_the_server_sees_them(plugin, hosted):
    async with hosted(plugin) as server:
        with pytest.raises(ToolArgumentsInvalid, match="target_timezone"):
            await server.call("convert_time", source_timezone="Asia/Tokyo", time="12:00")
        with pytest.raises(ToolArgumentsInvalid, match="/timezone"):
            await server.call("get_current_time", timezone=9)
        steps = await server.run.trace()
        assert [step.code for step in steps] == ["TOOL_ARGUMENTS_INVALID"] * 2
        assert [step.upstream for step in steps] == [None, None]


@on("git")
@pytest.mark.req("N1.1", "N1.2")
async def test_the_git_server_works_on_a_repository(plugin, hosted):
    repository = plugin.folder / "repository"
    (repository / "poem.txt").write_text("Roses are red\n")
    where = {"repo_path": str(repository)}
    async with hosted(plugin) as server:
        assert "poem.txt" in (await server.call("git_status", **where)).text
        await server.call("git_add", **where, files=["poem.txt"])
        assert "+Roses are red" in (await server.call("git_diff_staged", **where)).text
        await server.call("git_commit", **where, message="Begin a poem")
        assert "Begin a poem" in (await server.call("git_log", **where, max_count=1)).text
        with pytest.raises(ToolCallFailed, match="outside"):
            await server.call("git_status", repo_path=str(plugin.folder.parent))
        tools = [step.tool for step in await server.run.trace()]
        assert tools[:2] == ["git.git_status", "git.git_add"]
    assert git(repository, "log", "--format=%an: %s") == "A tester: Begin a poem\n"


@on("git")
@pytest.mark.req("N4.1.3")
async def test_a_server_that_leaves_while_it_starts_is_reported_with_its_last_words_for_the_owner(plugin, hosted):
    shutil.rmtree(plugin.folder / "repository")
    with pytest.raises(PluginHostStartFailed) as caught:
        async with hosted(plugin):
            pass
    assert "repository does not exist" in caught.value.diagnosis
    assert "does not exist" not in str(caught.value)


@on("git")
@pytest.mark.req("A5")
async def test_a_tool_for_which_the_manifest_asks_for_a_yes_runs_with_one_alone(plugin, hosted):
    repository = plugin.folder / "repository"
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "x")
    (repository / "staged.txt").write_text("x")
    git(repository, "add", "staged.txt")
    where = {"repo_path": str(repository)}
    async with hosted(plugin) as server:
        with pytest.raises(ToolConfirmationUnavailable):
            await server.call("git_reset", **where)
        assert "staged.txt" in (await server.call("git_diff_staged", **where)).text

        async def agree(question: str, call: object) -> bool:
            return "git_reset" in question

        await server.run.call("git.git_reset", where, ask=agree)
        assert "staged.txt" not in (await server.call("git_diff_staged", **where)).text


@on("sqlite")
@pytest.mark.req("N5.5", "N6.2")
async def test_the_sqlite_server_keeps_rows_in_the_plugins_folder(plugin, hosted):
    async with hosted(plugin) as server:
        await server.call("create_table", query="CREATE TABLE birds (name TEXT, wings INTEGER)")
        await server.call("write_query", query="INSERT INTO birds VALUES ('kiwi', 2), ('emu', 2)")
        rows = await server.call("read_query", query="SELECT name FROM birds ORDER BY name")
        assert rows.text == "[{'name': 'emu'}, {'name': 'kiwi'}]"
        assert "birds" in (await server.call("list_tables")).text
        # it calls this a success
        assert "Database error" in (await server.call("read_query", query="SELECT * FROM fish")).text
        # it tells clients that a resource changed: a notification that means nothing here
        assert "added" in (await server.call("append_insight", insight="birds have wings")).text
    assert (plugin.folder / "kept" / "notes.db").stat().st_size > 0


PAGE = b"<html><head><title>Kiwi</title></head><body><h1>The kiwi</h1><p>It does not fly.</p></body></html>"


class Site(BaseHTTPRequestHandler):
    """One page, and no robots.txt."""

    def do_GET(self) -> None:
        found = self.path == "/kiwi"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(PAGE) if found else 0))
        self.end_headers()
        if found:
            self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """A web site on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@on("fetch")
@pytest.mark.req("N1.1")
async def test_the_fetch_server_brings_a_page_as_text(plugin, hosted, site):
    async with hosted(plugin) as server:
        page = await server.call("fetch", url=f"{site}/kiwi")
        assert "# The kiwi" in page.text
        assert "It does not fly." in page.text
        raw = await server.call("fetch", url=f"{site}/kiwi", raw=True)
        assert PAGE.decode() in raw.text
        with pytest.raises(ToolCallFailed, match="404"):
            await server.call("fetch", url=f"{site}/moa")
        with pytest.raises(ToolArgumentsInvalid, match="/max_length"):
            await server.call("fetch", url=f"{site}/kiwi", max_length=0)
