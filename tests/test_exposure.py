"""One exposure decision: what is listed is what can be called, and what can't be called all looks the same (A2, A4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_channel import CALLER, Memory
from sse_client import connect

from bascule.builtin_plugins.group_exposure import GroupExposure
from bascule.builtin_plugins.mcp_converter import McpConverter
from bascule.core import contracts, naming
from bascule.core.bridge import Bridge
from bascule.core.downstream import Downstream
from bascule.core.events import Events
from bascule.core.gateway import Gateway, Guards, Road
from bascule.core.registry import Entry, Registry
from bascule.core.settings import Settings
from bascule.hookspecs import (
    Allow,
    Exposure,
    ExposurePolicy,
    Limits,
    SessionOptions,
    ToolDefinition,
    ToolResult,
    Visibility,
)

GROUPS = ("writing", "search", "system")
NAMES = tuple(f"p.tool-{number}" for number in range(8))
UNKNOWN = ("p.nothing", "q.tool-1", "", "p")
ANYTHING = contracts.compile({"type": "object"})


class Answers:
    """Where calls go that got through."""

    generation = 1

    def prepare(self, remote_name, arguments, progress, logs):
        return Sent(remote_name)


class Sent:
    """A call that is answered as soon as it was sent."""

    def __init__(self, remote_name):
        self.remote_name = remote_name
        self.sent = asyncio.Event()
        self.sent_at = 0.0

    def send(self, error=None):
        assert error is None
        self.sent_at = time.perf_counter()
        self.sent.set()

    async def answer(self):
        await self.sent.wait()
        return ToolResult("done", [{"type": "text", "text": f"{self.remote_name} ran"}])


class Yes:
    """Lets every call run: exposure alone is in question here."""

    name = "yes"

    async def __call__(self, call, tool, facts):
        return Allow("why not")


class Stranger:
    """Some third party's policy: an answer for each tool, an exception among them."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.name = "stranger"
        self._answers = answers

    def __call__(self, tool, caller, exposure):
        answer = self._answers[tool.name]
        if isinstance(answer, Exception):
            raise answer
        return answer


def entry(name: str, groups: frozenset[str], visibility: Visibility) -> Entry:
    tool = ToolDefinition(
        name=name,
        description="",
        parameters={"type": "object"},
        plugin_id="p",
        remote_name=name.partition(".")[2],
        alias=naming.alias(name),
        groups=groups,
        visibility=visibility,
    )
    return Entry(tool, ANYTHING, None, frozenset(), Answers())


groups = st.frozensets(st.sampled_from(GROUPS))
entries = st.builds(entry, st.sampled_from(NAMES), groups, st.sampled_from(Visibility))
registries = st.lists(entries, unique_by=lambda each: each.tool.name)
exposures = st.builds(Exposure, groups, st.booleans())
odd_answers = st.sampled_from([True, True, True, False, None, 1, "yes", RuntimeError("broken")])
strangers = st.builds(Stranger, st.fixed_dictionaries(dict.fromkeys(NAMES, odd_answers)))


async def session(road: Road, registry: Registry, names: str) -> tuple[set[str], dict[str, tuple[str | None, str]]]:
    """Over MCP: the names that are listed, and code and text of the answer for every name there is or isn't."""
    channel = Memory()
    downstream = Downstream(
        channel, CALLER, SessionOptions(names=names), road=road, converter=McpConverter(), watchers=registry.watchers
    )
    running = asyncio.create_task(downstream.run())
    await channel.initialize()
    listed = {tool["name"] for tool in (await channel.request("tools/list"))["result"]["tools"]}
    answers = {}
    for name in (*NAMES, *map(naming.alias, NAMES), *UNKNOWN):
        result = await channel.call(name)
        answers[name] = (result.get("_meta", {}).get("bascule/code"), result["content"][0]["text"])
    channel.close()
    await running
    return listed, answers


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def bridge(runner, tmp_path):
    bridge = Bridge(Settings().with_(state=tmp_path / "state"), remember=False)
    runner.run(bridge.__aenter__())
    yield bridge
    runner.run(bridge.__aexit__(None, None, None))


def road(bridge: Bridge, registry: Registry, policies: list[ExposurePolicy], exposure: Exposure) -> Road:
    named = {f"policy {number}": policy for number, policy in enumerate(policies)}
    guards = Guards({"yes": Yes()}, named, "production")
    return Gateway(registry, guards, bridge.traces, Events(), Limits()).through(exposure)


@pytest.mark.req("A4", "A2")
def test_what_is_listed_is_what_can_be_called_whatever_the_policies_say(bridge, runner):
    nothing = runner.run(session(road(bridge, Registry(), [GroupExposure()], Exposure()), Registry(), "canonical"))[1]

    @settings(max_examples=100, deadline=None)
    @given(registries, exposures, st.lists(strangers, max_size=2), st.sampled_from(["canonical", "flat"]))
    def holds(found, exposure, others, names):
        registry = Registry()
        registry.replace("p", found)
        way = road(bridge, registry, [GroupExposure(), *others], exposure)
        listed, answers = runner.run(session(way, registry, names))
        ran = {name for name, (code, _) in answers.items() if code is None}
        shown = {each.tool.alias if names == "flat" else each.tool.name: each.tool for each in found}
        assert listed == ran & set(shown)
        assert ran == {name for tool in (shown[name] for name in listed) for name in (tool.name, tool.alias)}
        # unknown, hidden, unexposed: one answer, as if there were no tool at all
        assert {name: answer for name, answer in answers.items() if name not in ran} == {
            name: answer for name, answer in nothing.items() if name not in ran
        }
        # others can only narrow
        alone = {tool.name for tool in road(bridge, registry, [GroupExposure()], exposure).tools(CALLER)}
        assert {shown[name].name for name in listed} <= alone
        assert alone == {
            each.tool.name
            for each in found
            if (exposure.allow_restricted or each.tool.visibility is Visibility.PUBLIC)
            and (not exposure.tool_groups or exposure.tool_groups & each.tool.groups)
        }

    holds()


@pytest.mark.req("A4")
def test_without_any_policy_nothing_is_shown(bridge, runner):
    registry = Registry()
    registry.replace("p", [entry(name, frozenset(), Visibility.PUBLIC) for name in NAMES])
    listed, answers = runner.run(session(road(bridge, registry, [], Exposure()), registry, "canonical"))
    assert not listed
    assert {code for code, _ in answers.values()} == {"TOOL_NOT_FOUND"}


# --- the same at a real server ----------------------------------------------------------------------------


@pytest.fixture
def grouped(plugin_copy, echo):
    """The echo fixture, its tools in groups and of every visibility."""
    declared = {
        "echo": {"groups": ["writing"]},
        "fail": {"groups": ["search", "system"]},
        "sleep": {"groups": ["writing"], "visibility": "restricted"},
        "large": {"visibility": "sensitive", "groups": ["system"]},
    }

    def edit(manifest: dict[str, Any]) -> None:
        tools = manifest["contributes"]["tools"]
        for name, entry in declared.items():
            tools[tools.index(f"mcp-fixture.{name}")] = {"id": f"mcp-fixture.{name}", **entry}

    return plugin_copy(echo, edit)


CALLS = {
    "echo": {"message": "x"},
    "fail": {},
    "sleep": {"seconds": 0},
    "large": {"bytes": 1},
    "environment": {},
}


@pytest.mark.req("A2", "A4", "A5")
@pytest.mark.parametrize(
    ("section", "exposed"),
    [
        ({}, {"echo", "fail", "environment", "exit"}),
        ({"toolGroups": []}, {"echo", "fail", "environment", "exit"}),
        ({"toolGroups": ["writing"]}, {"echo"}),
        ({"toolGroups": ["search", "nobody's"]}, {"fail"}),
        ({"toolGroups": ["nobody's"]}, set()),
        ({"allowRestricted": True}, {"echo", "fail", "sleep", "large", "environment", "exit"}),
        ({"allowRestricted": True, "toolGroups": ["writing", "system"]}, {"echo", "fail", "sleep", "large"}),
    ],
)
async def test_the_section_decides_what_is_listed_and_called(serve, grouped, section, exposed):
    async with serve(grouped, **section) as served, connect(served.base) as client:
        await client.initialize()
        listed = {tool["name"] for tool in (await client.request("tools/list"))["tools"]}
        assert listed == {f"mcp-fixture.{name}" for name in exposed}
        for name, arguments in CALLS.items():
            result = await client.call(f"mcp-fixture.{name}", arguments)
            code = result.get("_meta", {}).get("bascule/code")
            text = result["content"][0]["text"]
            if name not in exposed:
                unknown = await client.call("mcp-fixture.unknown", arguments)
                assert (result["isError"], code) == (True, "TOOL_NOT_FOUND")
                assert text.replace(name, "unknown") == unknown["content"][0]["text"]
                assert f"'mcp-fixture.{name}' is not available" in text
            elif name == "large":  # sensitive: exposed, but a person would have to say yes
                assert code == "TOOL_CONFIRMATION_UNAVAILABLE"
            else:
                assert code is None
