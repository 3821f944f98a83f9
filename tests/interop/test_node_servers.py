"""Servers from the Node index do their work through Bascule."""

from __future__ import annotations

import asyncio
import base64
import json
import time

import pytest

from bascule.hookspecs import Progress, ToolArgumentsInvalid, ToolCallFailed, ToolCallTimeout

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90, func_only=True)]


def on(name: str) -> pytest.MarkDecorator:
    """Say which plugin a test is about."""
    return pytest.mark.parametrize("plugin", [name], indirect=True)


AT_ONCE = 60.0  # seconds: far less than any of the calls would take


@on("everything")
@pytest.mark.req("N5.5", "N5.6")
async def test_the_everything_server_answers_with_text_structure_and_an_image(plugin, hosted):
    async with hosted(plugin) as server:
        assert (await server.call("echo", message="hello")).text == "Echo: hello"
        assert "5" in (await server.call("get-sum", a=2, b=3)).text
        weather = await server.call("get-structured-content", location="Chicago")
        assert set(weather.output) == {"temperature", "conditions", "humidity"}
        assert json.loads(weather.text) == weather.output
        image = next(block for block in (await server.call("get-tiny-image")).content if block["type"] == "image")
        assert image["mimeType"] == "image/png"
        assert base64.b64decode(image["data"]).startswith(b"\x89PNG")
        with pytest.raises(ToolCallFailed, match="requires task augmentation"):
            await server.call("simulate-research-query", topic="birds")
        links = (await server.call("get-resource-links", count=3)).content
        assert [block["type"] for block in links].count("resource_link") == 3


@on("everything")
@pytest.mark.req("N5.5", "N5.2")
async def test_everything_gets_no_arguments_that_its_schema_forbids(plugin, hosted):
    async with hosted(plugin) as server:
        with pytest.raises(ToolArgumentsInvalid, match="/a"):
            await server.call("get-sum", a="2", b=3)
        (step,) = await server.run.trace()
        assert (step.code, step.upstream) == ("TOOL_ARGUMENTS_INVALID", None)


@on("everything")
@pytest.mark.req("N6.3")
async def test_a_server_that_shows_its_whole_environment_has_nothing_of_the_hosts_to_show(plugin, hosted, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "not for servers")
    monkeypatch.setenv("VAULT_PATH", "/not/for/servers")
    async with hosted(plugin) as server:
        shown = await server.call("get-env")
        assert "PATH" in shown.text
        assert "SOME_API_KEY" not in shown.text
        assert "VAULT_PATH" not in shown.text
        assert "not for servers" not in shown.text
        assert "MEMORY_FILE_PATH" not in shown.text


@on("everything")
@pytest.mark.req("N3.6")
async def test_progress_is_passed_on_and_gives_a_long_call_the_time_that_it_needs(plugin, hosted):
    seconds = plugin.manifest["backend"]["tool_timeout_seconds"] + 1
    seen: list[Progress] = []
    async with hosted(plugin) as server:
        result = await server.call("trigger-long-running-operation", duration=seconds, steps=4, progress=seen.append)
        assert "completed" in result.text
    assert [(step.progress, step.total) for step in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]


@on("everything")
@pytest.mark.req("N6.8")
async def test_a_cancelled_call_frees_its_caller_at_once_and_the_server_stays_usable(plugin, hosted):
    async with hosted(plugin) as server:
        moving = asyncio.Event()
        seen: list[Progress] = []

        def note(progress: Progress) -> None:
            seen.append(progress)
            moving.set()

        call = asyncio.create_task(
            server.call("trigger-long-running-operation", duration=600, steps=6000, progress=note)
        )
        await moving.wait()
        began = time.monotonic()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert time.monotonic() - began < AT_ONCE
        so_far = len(seen)
        assert (await server.call("echo", message="still there")).text == "Echo: still there"
        # the server goes on reporting progress of what was cancelled; no one is told any more
        assert len(seen) == so_far
        assert [step.code for step in await server.run.trace()] == ["TOOL_CALL_CANCELLED", None]
        began = time.monotonic()
    assert time.monotonic() - began < AT_ONCE  # nor does its unfinished work keep it from being ended


@on("everything")
@pytest.mark.req("N6.8", "N3.6")
async def test_a_call_that_shows_no_sign_of_life_in_time_is_given_up(plugin, hosted):
    async with hosted(plugin) as server:
        began = time.monotonic()
        with pytest.raises(ToolCallTimeout):
            await server.call("trigger-long-running-operation", duration=600, steps=1)
        assert time.monotonic() - began < plugin.manifest["backend"]["tool_timeout_seconds"] + AT_ONCE
        assert (await server.call("echo", message="still there")).text == "Echo: still there"


@on("everything")
@pytest.mark.req("N4.2.1")
async def test_many_calls_in_flight_come_back_to_their_own_callers(plugin, hosted):
    async with hosted(plugin) as server:
        answers = await asyncio.gather(*(server.call("echo", message=str(number)) for number in range(200)))
        assert [answer.text for answer in answers] == [f"Echo: {number}" for number in range(200)]


@on("filesystem")
@pytest.mark.req("N1.1", "N5.6")
async def test_the_filesystem_server_reads_and_writes_in_its_folder_alone(plugin, hosted):
    files = plugin.folder / "files"
    poem = files / "poem.txt"
    async with hosted(plugin) as server:
        await server.call("write_file", path=str(poem), content="Violets are blue\n")
        assert poem.read_text() == "Violets are blue\n"
        read = await server.call("read_text_file", path=str(poem))
        assert read.output == {"content": "Violets are blue\n"}
        listing = await server.call("list_directory", path=str(files))
        assert listing.text == "[FILE] poem.txt"
        await server.call("edit_file", path=str(poem), edits=[{"oldText": "blue", "newText": "violet"}], dryRun=False)
        assert poem.read_text() == "Violets are violet\n"
        with pytest.raises(ToolCallFailed, match="outside allowed directories"):
            await server.call("read_text_file", path=str(plugin.folder / "plugin.yaml"))
        assert all(step.output_valid for step in await server.run.trace() if step.outcome == "ok")


@on("memory")
@pytest.mark.req("N6.3")
async def test_the_memory_server_keeps_its_graph_where_the_host_names_a_file(plugin, hosted):
    kiwi = {"name": "kiwi", "entityType": "bird", "observations": ["does not fly"]}
    async with hosted(plugin) as server:
        await server.call("create_entities", entities=[kiwi])
        await server.call("create_relations", relations=[{"from": "kiwi", "to": "kiwi", "relationType": "knows"}])
        graph = (await server.call("read_graph")).output
        assert graph["entities"] == [kiwi]
        assert [relation["relationType"] for relation in graph["relations"]] == ["knows"]
        found = (await server.call("search_nodes", query="fly")).output
        assert [entity["name"] for entity in found["entities"]] == ["kiwi"]
    assert "kiwi" in (plugin.folder / "kept" / "memory.jsonl").read_text()


@on("sequential-thinking")
@pytest.mark.req("N5.3")
async def test_the_sequential_thinking_server_takes_a_thought(plugin, hosted):
    async with hosted(plugin) as server:
        thought = {"thought": "Birds first.", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
        answer = await server.call("sequentialthinking", **thought)
        assert (answer.output["thoughtNumber"], answer.output["totalThoughts"]) == (1, 2)
        assert answer.output["thoughtHistoryLength"] == 1
        with pytest.raises(ToolArgumentsInvalid, match="/thoughtNumber"):
            await server.call("sequentialthinking", **{**thought, "thoughtNumber": 0})
