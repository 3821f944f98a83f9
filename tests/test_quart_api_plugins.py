"""The life of plugins over HTTP, as who installs, grants and enables them meets it."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from rest_server import patient, problem, serve_rest

from bascule.hookspecs import PluginState

HOST = {
    *("plugin_id", "backend_type", "transport", "status", "tools_count", "started_at", "last_seen_at"),
    *("protocol_version", "server_name", "server_version", "error"),
}
ALL = ["notes.read", "tools.call"]


@pytest.mark.req("D5", "N3.5", "N4.1.1", "N4.2.1")
async def test_a_plugin_is_installed_granted_enabled_used_disabled_and_removed(
    settings, http_server, plugin_copy, echo
):
    folder = plugin_copy(echo)
    async with serve_rest(settings, http_server, roots=[folder.parent], remember=True) as api:
        answer = await api.http.post("/api/plugins", json={"directory": str(folder)})
        assert (answer.status_code, answer.headers["location"]) == (201, "/api/plugins/mcp-fixture")
        installed = answer.json()
        assert (installed["state"], installed["permissions"], installed["granted"]) == ("awaiting_grants", ALL, [])
        assert installed["directory"] == str(folder)
        assert installed["host"]["status"] == "stopped"
        assert await api.ask("GET", "/api/plugins/mcp-fixture") == installed
        assert await api.ask("GET", "/api/plugins") == {"plugins": [installed]}

        problem(await api.http.post("/api/plugins/mcp-fixture/enable"), 409, "PLUGIN_PERMISSION_REQUIRED")
        granted = await api.ask("PUT", "/api/plugins/mcp-fixture/permissions", json={"permissions": ALL})
        assert (granted["state"], granted["granted"]) == ("disabled", ALL)
        enabled = await api.ask("POST", "/api/plugins/mcp-fixture/enable")
        assert (enabled["state"], len(enabled["tools"])) == ("ready", 6)
        assert (await api.call("mcp-fixture.echo", {"message": "x"})).json()["output"]["message"] == "x"

        taken = await api.ask("PUT", "/api/plugins/mcp-fixture/permissions", json={"permissions": ["tools.call"]})
        assert (taken["state"], taken["tools"]) == ("awaiting_grants", [])
        problem(await api.call("mcp-fixture.echo", {"message": "x"}), 404, "TOOL_NOT_FOUND")

        await api.ask("PUT", "/api/plugins/mcp-fixture/permissions", json={"permissions": ALL})
        await api.ask("POST", "/api/plugins/mcp-fixture/enable")
        assert (await api.ask("POST", "/api/plugins/mcp-fixture/disable"))["state"] == "disabled"
        assert await api.ask("GET", "/api/tools") == {"tools": []}
        assert await api.ask("DELETE", "/api/plugins/mcp-fixture", 204) is None
        problem(await api.http.get("/api/plugins/mcp-fixture"), 404, "PLUGIN_NOT_FOUND")
        assert folder.is_dir()


@pytest.mark.req("N7.1", "N7.2")
async def test_the_host_has_exactly_the_documents_fields(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        host = await api.ask("GET", "/api/plugins/mcp-fixture/host")
        assert set(host) == HOST
        assert host["status"] == "ready"
        assert (host["backend_type"], host["transport"], host["tools_count"]) == ("mcp", "stdio", 6)
        assert (host["protocol_version"], host["server_name"], host["server_version"]) == (
            "2025-11-25",
            "mcp-echo",
            "1.0.0",
        )
        assert all(datetime.fromisoformat(host[name]).tzinfo for name in ("started_at", "last_seen_at"))
        assert host["error"] is None

        assert (await api.call("mcp-fixture.exit")).status_code == 503
        lost = await api.ask("GET", "/api/plugins/mcp-fixture/host")
        assert (lost["status"], lost["tools_count"]) == ("unhealthy", 0)
        assert lost["error"]["code"] == "PLUGIN_HOST_UNAVAILABLE"
        await api.ask("POST", "/api/plugins/mcp-fixture/disable")
        assert (await api.ask("GET", "/api/plugins/mcp-fixture/host"))["status"] == "stopped"


@pytest.mark.req("N7.3", "N4.2.2")
async def test_a_restart_answers_when_all_is_done(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        before = await api.ask("GET", "/api/plugins/mcp-fixture/host")
        await api.call("mcp-fixture.exit")
        answer = await api.ask("POST", "/api/plugins/mcp-fixture/host/restart", 202)
        assert set(answer) == {"plugin_id", "status", "message"}
        assert (answer["plugin_id"], answer["status"]) == ("mcp-fixture", "ready")
        assert "ready" in answer["message"]
        after = await api.ask("GET", "/api/plugins/mcp-fixture/host")
        assert (after["status"], after["tools_count"]) == ("ready", 6)
        assert after["started_at"] > before["started_at"]
        assert (await api.call("mcp-fixture.echo", {"message": "x"})).status_code == 200


@pytest.mark.req("N7.4", "N9")
async def test_a_restart_starts_nothing_that_was_not_enabled(settings, http_server, plugin_copy, echo):
    folder = plugin_copy(echo)
    async with serve_rest(settings, http_server, roots=[folder]) as api:
        await api.ask("POST", "/api/plugins", 201, json={"directory": str(folder)})
        restart = "/api/plugins/mcp-fixture/host/restart"
        problem(await api.http.post(restart), 409, "PLUGIN_HOST_UNAVAILABLE")  # awaits grants
        await api.ask("PUT", "/api/plugins/mcp-fixture/permissions", json={"permissions": ALL})
        problem(await api.http.post(restart), 409, "PLUGIN_HOST_UNAVAILABLE")  # never enabled
        await api.ask("POST", "/api/plugins/mcp-fixture/enable")
        await api.ask("POST", "/api/plugins/mcp-fixture/disable")
        shown = problem(await api.http.post(restart), 409, "PLUGIN_HOST_UNAVAILABLE")  # disabled by its owner
        assert "enable" in shown["hint"]
        assert (await api.ask("GET", "/api/plugins/mcp-fixture"))["state"] == "disabled"
        problem(await api.http.post("/api/plugins/nobody/host/restart"), 404, "PLUGIN_NOT_FOUND")


async def test_what_a_start_fails_of_is_told_with_its_code_and_kept(settings, http_server, variant):
    async with serve_rest(settings, http_server, variant("no-tools-capability")) as api:
        shown = problem(
            await api.http.post("/api/plugins/fx-no-tools-capability/enable"), 502, "MCP_CAPABILITY_MISSING"
        )
        assert "tools" in shown["detail"]
        host = await api.ask("GET", "/api/plugins/fx-no-tools-capability/host")
        assert (host["status"], host["error"]["code"]) == ("error", "MCP_CAPABILITY_MISSING")
        waiting = await api.ask("GET", "/readyz", 503)
        assert waiting == {"ready": False, "waiting": ["fx-no-tools-capability"]}


# --- installing -------------------------------------------------------------------------------------------


async def test_only_directories_below_the_owners_roots_are_installed(
    settings, http_server, plugin_copy, echo, tmp_path
):
    inside = plugin_copy(echo, name="roots/inside")
    outside = plugin_copy(echo, name="outside")
    (tmp_path / "roots" / "link").symlink_to(outside)
    (tmp_path / "roots-beside").symlink_to(outside)
    async with serve_rest(settings, http_server, roots=[tmp_path / "roots"]) as api:
        for wanted in (
            outside,
            tmp_path / "roots" / "link",
            tmp_path / "roots" / ".." / "outside",
            tmp_path / "roots-beside",
            tmp_path / "no-such",
            "/",
            "/etc/passwd",
            f"/{'x' * 4000}",
        ):
            answer = await api.http.post("/api/plugins", json={"directory": str(wanted)})
            shown = problem(answer, 403, "PLUGIN_DIRECTORY_FORBIDDEN")
            assert "plugin_roots" in shown["hint"]
            assert str(tmp_path) not in answer.text
        for wanted, code in (("none", "EXTENSION_PACKAGE_NOT_FOUND"), (".", "EXTENSION_MANIFEST_NOT_FOUND")):
            body = {"directory": f"{tmp_path}/roots/{wanted}"}
            problem(await api.http.post("/api/plugins", json=body), 404, code)
        await api.ask("POST", "/api/plugins", 201, json={"directory": str(inside)})
        again = await api.http.post("/api/plugins", json={"directory": str(inside)})
        problem(again, 409, "PLUGIN_ALREADY_INSTALLED")


async def test_without_roots_nothing_is_installed_over_http(settings, http_server, plugin_copy, echo):
    async with serve_rest(settings, http_server) as api:
        answer = await api.http.post("/api/plugins", json={"directory": str(plugin_copy(echo))})
        problem(answer, 403, "PLUGIN_DIRECTORY_FORBIDDEN")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/directory"),
        ({"directory": 1}, "/directory"),
        ({"directory": None}, "/directory"),
        ({"directory": "relative"}, "/directory"),
        ({"directory": "/a\0b"}, "/directory"),
        ({"directory": "/x", "command": "sh"}, "/command"),
        ({"directory": "/x", "backend": {"command": "sh", "args": ["-c", "id"]}}, "/backend"),
        ([], ""),
        ("/x", ""),
    ],
)
async def test_a_body_that_does_not_fit_is_refused_by_place(settings, http_server, body, pointer):
    async with serve_rest(settings, http_server) as api:
        shown = problem(await api.http.post("/api/plugins", json=body), 422, "REQUEST_INVALID")
        assert [error["pointer"] for error in shown["errors"]] == [pointer]
        assert all(error["detail"] for error in shown["errors"])


async def test_a_manifest_that_is_wrong_is_told_line_by_line(settings, http_server, plugin_copy, echo):
    def broken(manifest):
        manifest["bakend"] = manifest.pop("backend")

    folder = plugin_copy(echo, broken)
    async with serve_rest(settings, http_server, roots=[folder]) as api:
        answer = await api.http.post("/api/plugins", json={"directory": str(folder)})
        shown = problem(answer, 422, "EXTENSION_MANIFEST_INVALID")
        assert all({"line", "field", "detail", "hint"} <= set(error) for error in shown["errors"])


async def test_permissions_that_the_manifest_does_not_declare_can_not_be_granted(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        path = "/api/plugins/mcp-fixture/permissions"
        answer = await api.http.put(path, json={"permissions": ["files.write"]})
        problem(answer, 422, "PLUGIN_PERMISSION_UNDECLARED")
        problem(await api.http.put(path, json={"permissions": "tools.call"}), 422, "REQUEST_INVALID")
        assert (await api.ask("GET", "/api/plugins/mcp-fixture"))["state"] == "ready"


# --- what was begun goes on -------------------------------------------------------------------------------


async def test_a_start_goes_on_though_whoever_asked_for_it_leaves(settings, http_server, variant, plugin_copy, until):
    folder = plugin_copy(variant("slow-start"), patient)
    async with serve_rest(settings, http_server, roots=[folder.parent]) as api:
        await api.ask("POST", "/api/plugins", 201, json={"directory": str(folder)})
        (view,) = api.bridge.plugins.list()
        permissions = {"permissions": list(view.permissions)}
        await api.ask("PUT", f"/api/plugins/{view.plugin_id}/permissions", json=permissions)
        asking = asyncio.create_task(api.http.post(f"/api/plugins/{view.plugin_id}/enable"))
        await until(lambda: api.bridge.plugins.get(view.plugin_id).state is PluginState.ENABLING, 60)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: api.bridge.plugins.get(view.plugin_id).state is not PluginState.ENABLING, 60)
        assert api.bridge.plugins.get(view.plugin_id).state is PluginState.READY


@pytest.mark.req("N7.2", "N7.4")
async def test_a_start_that_is_under_way_is_seen_and_can_be_broken_off(
    settings, http_server, variant, plugin_copy, until
):
    folder = plugin_copy(variant("silent"), patient)
    async with serve_rest(settings, http_server, folder, settle=False) as api:
        await until(lambda: api.bridge.plugins.get("fx-silent").state is PluginState.ENABLING, 60)
        host = await api.ask("GET", "/api/plugins/fx-silent/host")
        assert (host["status"], host["tools_count"]) == ("starting", 0)
        assert (await api.ask("GET", "/readyz", 503))["waiting"] == ["fx-silent"]
        disabled = await api.ask("POST", "/api/plugins/fx-silent/disable")
        assert (disabled["state"], disabled["host"]["status"]) == ("disabled", "stopped")
        problem(await api.http.post("/api/plugins/fx-silent/host/restart"), 409, "PLUGIN_HOST_UNAVAILABLE")


@pytest.mark.req("N4.2.4")
async def test_asked_for_often_at_once_a_plugin_is_started_once(settings, http_server, echo):
    async with serve_rest(settings, http_server, echo) as api:
        await api.ask("POST", "/api/plugins/mcp-fixture/disable")
        asked = [api.ask("POST", "/api/plugins/mcp-fixture/enable") for _ in range(5)]
        views = await asyncio.gather(*asked)
        assert len({view["host"]["started_at"] for view in views}) == 1


@pytest.mark.req("N6.4")
async def test_logs_are_for_administrators_and_stand_nowhere_else(settings, http_server, variant, until):
    async with serve_rest(settings, http_server, variant("flood-stderr")) as api:
        (view,) = api.bridge.plugins.list()
        path = f"/api/plugins/{view.plugin_id}/logs"
        await until(lambda: bool(api.bridge.plugins.logs(view.plugin_id)), 60)
        text = (await api.ask("GET", path))["text"]
        assert text
        for scope in ("read", "call"):
            problem(await api.http.get(path, headers=api.token(scope, scope)), 403, "SCOPE_REQUIRED")
        shown = await api.http.get(f"/api/plugins/{view.plugin_id}")
        assert not [line for line in text.splitlines() if line.strip() and line in shown.text]


@pytest.mark.req("N6.9", "N6.10")
async def test_outside_development_a_plugin_runs_after_two_yeses(settings, http_server, plugin_copy, echo):
    folder = plugin_copy(echo)
    use = settings.with_(environment="production", launcher="local")
    async with serve_rest(use, http_server, roots=[folder], remember=True) as api:
        await api.ask("POST", "/api/plugins", 201, json={"directory": str(folder)})
        path = "/api/plugins/mcp-fixture"
        await api.ask("PUT", f"{path}/permissions", json={"permissions": ALL})
        problem(await api.http.post(f"{path}/enable"), 403, "MCP_TRUST_APPROVAL_REQUIRED")
        shown = await api.ask("GET", f"{path}/approval")
        assert (shown["state"], shown["required"], shown["tools"]) == ("none", True, [])
        assert shown["command"]["argv"]
        problem(await api.http.post(f"{path}/approval", json={"digest": "x"}), 409, "PLUGIN_APPROVAL_OUTDATED")
        problem(await api.http.post(f"{path}/approval", json={}), 422, "REQUEST_INVALID")
        answer = {"unsandboxed": True}
        tools = await api.ask("POST", f"{path}/approval", json={"digest": shown["digest"], **answer})
        assert (tools["state"], len(tools["tools"])) == ("command", 6)
        complete = await api.ask("POST", f"{path}/approval", json={"digest": tools["digest"], **answer})
        assert complete["state"] == "complete"
        assert (await api.ask("POST", f"{path}/enable"))["state"] == "ready"
        for scope in ("read", "call"):
            problem(await api.http.get(f"{path}/approval", headers=api.token(scope, scope)), 403, "SCOPE_REQUIRED")
