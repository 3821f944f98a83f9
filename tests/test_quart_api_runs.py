"""Runs of agents over HTTP: opened, called under, finished, and read again."""

from __future__ import annotations

import pytest
from rest_server import problem, serve_rest

ECHO = {"message": "x"}


@pytest.mark.req("N5.5", "N9", "N1.2")
async def test_calls_under_a_run_are_its_steps(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        answer = await api.http.post("/api/runs", json={"agent": "researcher", "purpose": "try"})
        assert answer.status_code == 201
        run = answer.json()
        assert answer.headers["location"] == f"/api/runs/{run['id']}"
        assert (run["agent"], run["purpose"], run["state"], run["steps"]) == ("researcher", "try", "running", 0)
        under = {"bascule-run": run["id"]}
        first = (await api.call("mcp-fixture.echo", ECHO, headers=under)).json()["trace_id"]
        second = (await api.call("mcp-fixture.fail", headers=under)).json()["trace_id"]
        bare = await api.http.post("/tools/mcp-fixture__echo", json=ECHO, headers=under)
        beside = (await api.call("mcp-fixture.echo", ECHO)).json()["trace_id"]
        finished = await api.ask("POST", f"/api/runs/{run['id']}/finish")
        assert (finished["state"], finished["steps"]) == ("finished", 3)

        shown = await api.ask("GET", f"/api/runs/{run['id']}")
        assert shown["run"] == finished
        assert [step["id"] for step in shown["steps"]] == [first, second, bare.headers["bascule-trace"]]
        assert [step["code"] for step in shown["steps"]] == [None, "MCP_TOOL_CALL_FAILED", None]
        assert (await api.ask("GET", f"/api/traces/{beside}"))["run"] is None
        assert await api.ask("GET", f"/api/traces/{first}") == shown["steps"][0]
        assert (await api.ask("GET", "/api/runs"))["runs"] == [finished]


async def test_a_run_that_has_ended_takes_no_more_calls(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        run = (await api.ask("POST", "/api/runs", 201, json={"agent": "a"}))["id"]
        failed = await api.ask("POST", f"/api/runs/{run}/finish", json={"state": "failed"})
        assert failed["state"] == "failed"
        problem(await api.call("mcp-fixture.echo", ECHO, headers={"bascule-run": run}), 409, "RUN_ENDED")
        problem(await api.http.post(f"/api/runs/{run}/finish"), 409, "RUN_ENDED")
        for unknown in (b"0123456789abcdef", b"x", b"\xff", b""):
            answer = await api.call("mcp-fixture.echo", ECHO, headers={b"bascule-run": unknown})
            problem(answer, 404, "RUN_NOT_FOUND")
        problem(await api.http.get("/api/runs/x"), 404, "TRACE_NOT_FOUND")
        problem(await api.http.get("/api/traces/x"), 404, "TRACE_NOT_FOUND")


async def test_a_run_belongs_to_the_token_that_opened_it(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        mine, other = api.token("mine", "call"), api.token("other", "call")
        run = (await api.ask("POST", "/api/runs", 201, json={"agent": "a"}, headers=mine))["id"]
        taken = await api.call("mcp-fixture.echo", ECHO, headers={**other, "bascule-run": run})
        unknown = await api.call("mcp-fixture.echo", ECHO, headers={**other, "bascule-run": "0123456789abcdef"})
        shown = problem(taken, 404, "RUN_NOT_FOUND")
        assert problem(unknown, 404, "RUN_NOT_FOUND")["detail"].replace("0123456789abcdef", run) == shown["detail"]
        problem(await api.http.post(f"/api/runs/{run}/finish", headers=other), 404, "RUN_NOT_FOUND")
        problem(await api.http.get(f"/api/runs/{run}", headers=mine), 403, "SCOPE_REQUIRED")
        assert (await api.call("mcp-fixture.echo", ECHO, headers={**mine, "bascule-run": run})).status_code == 200
        admin = api.token("boss", "admin")
        assert (await api.ask("POST", f"/api/runs/{run}/finish", headers=admin))["state"] == "finished"


async def test_a_run_is_gone_on_with_after_a_restart_of_the_bridge(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo, remember=True) as api:
        run = (await api.ask("POST", "/api/runs", 201, json={"agent": "a"}))["id"]
        await api.call("mcp-fixture.echo", ECHO, headers={"bascule-run": run})
    async with serve_rest(settings, http_server, echo, remember=True) as api:
        await api.call("mcp-fixture.echo", ECHO, headers={"bascule-run": run})
        assert (await api.ask("POST", f"/api/runs/{run}/finish"))["steps"] == 2


async def test_runs_are_read_page_by_page(settings, http_server):
    async with serve_rest(settings, http_server) as api:
        ids = [(await api.ask("POST", "/api/runs", 201, json={"agent": f"a{n}"}))["id"] for n in range(5)]
        newest = [run["id"] for run in (await api.ask("GET", "/api/runs?limit=2"))["runs"]]
        assert newest == [ids[4], ids[3]]
        older = await api.ask("GET", f"/api/runs?limit=2&before={ids[3]}")
        assert [run["id"] for run in older["runs"]] == [ids[2], ids[1]]
        for wrong in ("0", "-1", "501", "1.5", "x", "", "٣", "9" * 400):
            shown = problem(await api.http.get("/api/runs", params={"limit": wrong}), 422, "REQUEST_INVALID")
            assert shown["errors"][0]["pointer"] == "?limit"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/agent"),
        ({"agent": ""}, "/agent"),
        ({"agent": "x" * 201}, "/agent"),
        ({"agent": "a\0"}, "/agent"),
        ({"agent": "a\u202e"}, "/agent"),
        ({"agent": 1}, "/agent"),
        ({"agent": "a", "purpose": 1}, "/purpose"),
        ({"agent": "a", "state": "x"}, "/state"),
    ],
)
async def test_a_run_needs_an_agent(settings, http_server, body, pointer):
    async with serve_rest(settings, http_server) as api:
        shown = problem(await api.http.post("/api/runs", json=body), 422, "REQUEST_INVALID")
        assert [error["pointer"] for error in shown["errors"]] == [pointer]
