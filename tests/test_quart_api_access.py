"""Who gets in, and with which scopes: every operation, asked with every token."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from contextlib import closing

import httpx
import pytest
import yaml
from http_front import front
from rest_server import problem, serve_rest

from bascule.builtin_plugins.quart_api import RestServer, RestSettings, directions
from bascule.builtin_plugins.quart_api.app import OPERATIONS
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.core.store import Store
from bascule.core.tokens import Tokens
from bascule.hookspecs import Exposure, SettingsInvalid

OPEN = {"/healthz", "/readyz", "/docs", "/openapi.json"}
VALUES = {"{plugin_id}": "nobody", "{name}": "nobody.none", "{alias}": "none", "{run_id}": "0", "{trace_id}": "0"}


def target(path: str) -> str:
    for name, value in VALUES.items():
        path = path.replace(name, value)
    return path


async def test_without_a_token_only_health_and_documents_answer(settings, http_server):
    async with serve_rest(settings, http_server) as api:
        for operation in OPERATIONS:
            answer = await api.http.request(operation.method, target(operation.path), headers={"authorization": ""})
            if operation.path in OPEN:
                assert answer.status_code == 200
            else:
                shown = problem(answer, 401, "TOKEN_REQUIRED")
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert "nobody" not in shown["detail"]
        assert {operation.path for operation in OPERATIONS if not operation.scopes} == OPEN


async def test_scopes_are_three_authorities(settings, http_server):
    """Whoever has not the scope is told so before anything is looked at; whoever has it gets another answer."""
    async with serve_rest(settings, http_server) as api:
        tokens = {scope: api.token(scope, scope) for scope in ("call", "read", "admin")}
        for operation in OPERATIONS:
            if not operation.scopes or operation.id == "get_events":
                continue
            for scope, header in tokens.items():
                answer = await api.http.request(operation.method, target(operation.path), headers=header)
                if scope in operation.scopes:
                    assert answer.status_code not in (401, 403, 500), f"{operation.id}: {answer.text}"
                else:
                    problem(answer, 403, "SCOPE_REQUIRED")
                    assert "insufficient_scope" in answer.headers["www-authenticate"]
        for scope in ("call", "admin"):
            problem(await api.http.get("/api/events", headers=tokens[scope]), 403, "SCOPE_REQUIRED")


def test_what_changes_plugins_or_shows_their_logs_needs_admin():
    for operation in OPERATIONS:
        if operation.path.startswith("/api/plugins") and (operation.method != "GET" or "logs" in operation.path):
            assert operation.scopes == {"admin"}
        if operation.path.startswith("/tools/") or operation.path.endswith("/call"):
            assert operation.scopes == {"call"}


async def test_a_revoked_token_is_unknown_at_once(settings, http_server):
    async with serve_rest(settings, http_server) as api:
        header = api.token("gone", "read")
        assert (await api.http.get("/api/plugins", headers=header)).status_code == 200
        api.bridge.tokens.revoke("gone")
        problem(await api.http.get("/api/plugins", headers=header), 401, "TOKEN_REQUIRED")
        problem(await api.http.get("/healthz", headers=header), 401, "TOKEN_REQUIRED")


async def test_paths_and_methods_that_are_not_there_are_problems(settings, http_server):
    async with serve_rest(settings, http_server) as api:
        for path in (
            "/",
            "/api",
            "/api/",
            "/api/plugins/",
            "/api//plugins",
            "/tools/",
            "/tools/a/b",
            "/api/tools//call",
        ):
            problem(await api.http.get(path), 404, "REQUEST_REFUSED")
        for method, path in (
            ("PATCH", "/api/plugins"),
            ("GET", "/tools/x"),
            ("DELETE", "/healthz"),
            ("PUT", "/api/events"),
        ):
            answer = await api.http.request(method, path)
            problem(answer, 405, "REQUEST_REFUSED")
            assert answer.headers["allow"]
        problem(await api.http.post("/api/runs", content=b"agent=a"), 415, "REQUEST_REFUSED")
        problem(await api.http.get("/api/plugins", headers={"host": "evil.example"}), 421, "REQUEST_REFUSED")
        problem(await api.http.get("/api/plugins", headers={"origin": "https://evil.example"}), 403, "REQUEST_REFUSED")


async def test_a_body_past_the_bound_is_refused(settings, http_server):
    limits = {"http_body_bytes": 4096}
    async with serve_rest(settings.with_(limits=limits), http_server) as api:
        for path in ("/api/runs", "/tools/x", "/api/tools/x/call"):
            answer = await api.http.post(path, json={"agent": "x" * 5000})
            problem(answer, 413, "REQUEST_REFUSED")


async def test_status_shows_the_bridge_at_a_glance(settings, http_server, echo, variant):
    async with serve_rest(settings, http_server, echo, variant("exit-at-start")) as api:
        status = await api.ask("GET", "/api/status")
        assert (status["environment"], status["http_server"]) == ("development", http_server)
        assert status["transports"] == ["rest"]
        assert {plugin["plugin_id"]: plugin["state"] for plugin in status["plugins"]} == {
            "mcp-fixture": "ready",
            "fx-exit-at-start": "error",
        }
        assert status["failures"]["fx-exit-at-start"]["code"]
        assert "fx-exit-at-start" in status["readiness"]
        assert {"version", "launcher", "isolation"} <= set(status)
        ready = await api.http.get("/readyz", headers={"authorization": ""})
        assert (ready.status_code, ready.json()) == (503, {"ready": False, "waiting": ["fx-exit-at-start"]})
        assert (await api.ask("GET", "/healthz")) == {"status": "ok"}


async def test_readiness_names_no_path(settings, http_server, tmp_path):
    async with serve_rest(settings, http_server, tmp_path / "secret-place" / "none") as api:
        answer = await api.http.get("/readyz")
        assert (answer.status_code, answer.json()["waiting"]) == (503, ["none"])
        assert "secret-place" not in answer.text


# --- settings ---------------------------------------------------------------------------------------------


def test_by_default_everything_is_exposed_on_loopback(tmp_path):
    server = RestServer(RestSettings(), (), tmp_path)
    assert server.exposure == Exposure(allow_restricted=True)
    assert (server.settings.bind, server.settings.port) == ("127.0.0.1", 7860)
    assert server.directions.url == "http://127.0.0.1:7860"


@pytest.mark.parametrize(
    "section", [{"port": 0}, {"port": 70_000}, {"prt": 1}, {"bind": ""}, {"allowRestricted": "no"}]
)
async def test_a_fault_of_the_section_keeps_everything_closed(tmp_path, section):
    path = tmp_path / "bascule.yaml"
    path.write_text(yaml.safe_dump({"plugins": {"quart_api": section}}))
    use = Settings.load(path).with_(state=tmp_path / "state")
    async with Bridge(use, remember=False) as bridge:
        with pytest.raises(SettingsInvalid, match=r"plugins\.quart_api\."):
            async with bridge.serve():
                pytest.fail("it served")


async def test_a_taken_address_is_told_in_words_and_hurts_no_other(settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        section = {"port": taken.getsockname()[1]}
        use = settings.with_(plugins={"quart_api": section}, disabled_hook_plugins=("sse_server",))
        async with Bridge(use, remember=False) as bridge, bridge.serve() as opened:
            assert opened == []
            assert bridge.failures["rest"].code == "SETTINGS_INVALID"
            assert "in use" in bridge.failures["rest"].message


def test_what_is_pasted_names_the_owners_token(tmp_path):
    shown = directions(RestSettings(bind="::1", port=9000), tmp_path)
    assert shown.url == "http://[::1]:9000"
    assert shlex.quote(str(tmp_path / "owner.token")) in shown.paste["curl"]
    quoted = directions(RestSettings(), tmp_path / "it's here").paste["curl"]
    printed = subprocess.run(
        ["sh", "-c", quoted.replace("curl", "echo").replace("cat ", "echo ")], capture_output=True, check=True
    )
    assert printed.stdout.decode().split(" Bearer ")[1].startswith(f"{tmp_path}/it's here/owner.token http://")
    behind = directions(RestSettings(bind="0.0.0.0", allowed_hosts=frozenset({"bridge:80"})), tmp_path)
    assert behind.url == "http://bridge:80"


@pytest.mark.req("D4")
def test_a_command_that_serves_nothing_does_without_the_framework():
    """The hook plugin is loaded for every command; what it serves with is not."""
    code = (
        "import sys\n"
        "from bascule.core.bridge import lineup_for\n"
        "from bascule.core.settings import Settings\n"
        "assert 'rest' in lineup_for(Settings()).server_transports\n"
        "print(*({'quart', 'werkzeug', 'flask', 'jinja2'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stderr


async def test_without_this_hook_plugin_nothing_of_it_is_there(settings, http_server):
    use = settings.with_(http_server=http_server, disabled_hook_plugins=("quart_api", "sse_server"))
    async with Bridge(use, remember=False) as bridge, bridge.serve() as opened:
        assert "rest" not in bridge.lineup.server_transports
        assert opened == []


async def test_what_an_app_breaks_on_is_a_problem_and_no_page_of_the_servers(tmp_path, http_server, caplog):
    """Of any app behind the guard: this one answers nothing, or breaks in the middle."""

    async def broken(scope, receive, send):
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        raise RuntimeError("a secret of ours")

    with closing(Store.open(tmp_path / "state")) as store:
        async with (
            front(broken, http_server, identities=Tokens(store)) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
        ):
            answer = await http.get("/")
            assert "secret" not in problem(answer, 500, "INTERNAL_ERROR")["detail"]
            with pytest.raises(httpx.HTTPError):
                await http.get("/begun")
    assert "a secret of ours" in caplog.text  # the log has it


async def test_a_fault_in_an_operation_is_a_problem_and_hurts_no_other(settings, http_server, monkeypatch):
    async with serve_rest(settings, http_server) as api:
        monkeypatch.setattr(api.bridge.plugins, "list", lambda: 1 / 0)
        problem(await api.http.get("/api/plugins"), 500, "INTERNAL_ERROR")
        monkeypatch.undo()
        assert await api.ask("GET", "/api/plugins") == {"plugins": []}
