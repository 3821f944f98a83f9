"""The REST API's framework is loaded when it is first needed: until then, and meanwhile, all else is answered."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from rest_server import problem, serve_rest

from bascule.builtin_plugins.quart_api import app
from bascule.builtin_plugins.quart_api.late import Late
from bascule.core.bridge import Bridge
from bascule.hookspecs import HookPluginBroken
from bascule.hookspecs.kit import free_port

OPEN = ("/healthz", "/readyz", "/openapi.json", "/docs")

FRESH = """
import asyncio, json, sys
from pathlib import Path
import httpx
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

LOADED = {"quart", "flask", "werkzeug", "jinja2"}

async def main(port, http_server, state, plugin):
    settings = Settings(environment="development").with_(
        state=state,
        http_server=http_server,
        plugins={"quart_api": {"port": port}},
        disabled_hook_plugins=("sse_server",),
    )
    async with Bridge(settings, plugins=[Path(plugin)], grant=True) as bridge, bridge.serve() as opened:
        assert opened == ["rest"], bridge.failures
        await bridge.settled()
        headers = {"authorization": "Bearer " + bridge.tokens.create("tester", ("call", "read"))}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
            await use(http)

async def use(http):
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        assert (await http.get(path)).status_code == 200, path
    called = await http.post("/tools/mcp-fixture__echo", json={"message": "hi"})
    assert called.json()["message"] == "hi", called.text
    async with http.stream("GET", "/api/events") as events:
        assert await anext(aiter(events.aiter_lines())) == ": listening"
    assert not LOADED & set(sys.modules)
    assert (await http.get("/api/plugins")).status_code == 200
    assert "quart" in sys.modules

asyncio.run(main(*json.loads(sys.argv[1])))
"""


@pytest.mark.req("D4")
def test_probes_documents_calls_and_events_do_without_the_framework(http_server, echo, short_path):
    given = json.dumps([free_port(), http_server, str(short_path / "state"), str(echo)])
    run = subprocess.run([sys.executable, "-c", FRESH, given], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr


class Held:
    """Makes the framework, but not before it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.begun = threading.Event()
        self.may = threading.Event()
        self._make: Callable[..., object] = app._framework
        monkeypatch.setattr(app, "_framework", self)

    def __call__(self, *given: object) -> object:
        self.made += 1
        self.begun.set()
        assert self.may.wait(60)
        return self._make(*given)


@pytest.fixture
def held(monkeypatch):
    held = Held(monkeypatch)
    yield held
    held.may.set()


async def test_while_it_is_made_calls_go_on_and_all_who_want_it_wait_for_the_one(settings, http_server, echo, held):
    async with serve_rest(settings, http_server, echo) as api:
        asking = [asyncio.create_task(api.http.get("/api/plugins")) for _ in range(3)]
        assert await asyncio.to_thread(held.begun.wait, 60)
        called = await api.call("mcp-fixture.echo", {"message": "meanwhile"})
        assert called.json()["output"]["message"] == "meanwhile"
        for path in OPEN:
            assert (await api.http.get(path)).status_code == 200
        assert not any(task.done() for task in asking)
        held.may.set()
        for answer in await asyncio.gather(*asking):
            assert [plugin["plugin_id"] for plugin in answer.json()["plugins"]] == ["mcp-fixture"]
        assert held.made == 1


async def test_whoever_leaves_meanwhile_leaves_it_to_the_others():
    begun, may, answered = threading.Event(), threading.Event(), []

    async def framework(scope, receive, send):
        answered.append(scope["path"])

    def make():
        begun.set()
        assert may.wait(60)
        return framework

    late = Late(make)
    first, second = (asyncio.create_task(late({"path": path}, None, None)) for path in ("first", "second"))
    assert await asyncio.to_thread(begun.wait, 60)
    first.cancel()
    await asyncio.wait([first], timeout=60)
    may.set()
    await asyncio.wait_for(second, 60)
    assert (first.cancelled(), answered) == (True, ["second"])


async def test_a_bridge_can_be_closed_while_it_is_made(settings, http_server, held):
    async with serve_rest(settings, http_server) as api:
        asking = asyncio.create_task(api.http.get("/api/plugins"))
        assert await asyncio.to_thread(held.begun.wait, 60)
        asyncio.get_running_loop().call_soon(held.may.set)
    await asyncio.wait([asking], timeout=60)
    assert asking.done()
    asking.exception()  # answered or cut off: which of the two is a matter of time


async def test_where_it_can_not_be_made_that_is_told_and_tried_again(settings, http_server, monkeypatch, caplog):
    make = app._framework

    def broken(*given: object) -> object:
        monkeypatch.setattr(app, "_framework", make)
        raise ImportError("half of it is missing")

    monkeypatch.setattr(app, "_framework", broken)
    async with serve_rest(settings, http_server) as api:
        shown = problem(await api.http.get("/api/plugins"), 500, "INTERNAL_ERROR")
        assert "half of it" not in str(shown)
        assert "half of it is missing" in caplog.text
        assert await api.ask("GET", "/api/plugins") == {"plugins": []}


async def test_without_the_framework_the_api_does_not_open_and_says_why(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "quart", None)
    use = settings.with_(plugins={"quart_api": {"port": free_port()}, "sse_server": {"port": free_port()}})
    async with Bridge(use, remember=False) as bridge, bridge.serve() as opened:
        assert list(opened) == ["sse"]
        error = bridge.failures["rest"]
        assert isinstance(error, HookPluginBroken)
        assert "Quart, which is not installed" in error.message
        assert error.hint


@pytest.mark.parametrize("path", OPEN)
async def test_what_is_answered_before_the_framework_is_what_it_would_answer(settings, http_server, path):
    async with serve_rest(settings, http_server) as api:
        before, behind = await api.http.get(path), await api.http.head(path)  # the latter is Quart's
        assert (before.status_code, behind.status_code) == (200, 200)
        assert before.headers["cache-control"] == "no-store"
        told = [{name: value for name, value in each.headers.items() if name != "date"} for each in (before, behind)]
        assert told[0] == told[1]


async def test_a_fault_before_the_framework_is_a_problem_as_well(settings, http_server, monkeypatch, caplog):
    caplog.set_level(logging.ERROR)
    async with serve_rest(settings, http_server) as api:
        monkeypatch.setattr(api.bridge, "readiness", lambda: 1 / 0)
        problem(await api.http.get("/readyz"), 500, "INTERNAL_ERROR")
        assert "/readyz broke" in caplog.text
        monkeypatch.undo()
        assert await api.ask("GET", "/readyz") == {"ready": True, "waiting": []}
