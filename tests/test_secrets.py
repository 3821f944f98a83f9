"""Secrets leak nowhere: they are planted wherever a bridge meets one, and all that it keeps or tells is searched."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import logging
import secrets as random
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from sse_client import connect

from bascule.core.bridge import Bridge
from bascule.core.credentials import credentials
from bascule.core.logs import masked
from bascule.core.redaction import REDACTED, Redactor
from bascule.core.settings import Settings
from bascule.hookspecs import CallError, LaunchRequest, Secret, Section
from bascule.hookspecs.kit import free_port

SERVER = """
import base64, json, os, sys

TOOLS = ["give", "fail", "die"]

def answer(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)

held = [os.environ[name] for name in ("API_KEY", "SETTING_X", "DATABASE_URL", "FROM_HOST")] + sys.argv[1:]
print("starting with", *held, file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        answer(message["id"], {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                               "serverInfo": {"name": "leaky", "version": "1"}})
    elif method == "tools/list":
        answer(message["id"], {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
    elif method == "tools/call" and params["name"] == "give":
        encoded = [base64.b64encode(b"x" + value.encode()).decode() for value in held]
        shown = {"held": held, "encoded": encoded, "reversed": [value[::-1] for value in held],
                 "hex": [value.encode().hex() for value in held], "got": params["arguments"],
                 "environment": dict(os.environ)}
        answer(message["id"], {"content": [{"type": "text", "text": json.dumps(shown)}], "structuredContent": shown})
    elif method == "tools/call" and params["name"] == "fail":
        text = "could not log in with " + " ".join(held)
        answer(message["id"], {"content": [{"type": "text", "text": text}], "isError": True})
    elif method == "tools/call":
        print("fatal: " + " ".join(held), flush=True)
"""


class Planted(dict):
    """Secrets by where they are planted; each is one that no one else has."""

    def __missing__(self, place: str) -> str:
        self[place] = value = f"{random.token_hex(12)}Zq4b"
        return value

    def found_in(self, haystack: str | bytes) -> list[str]:
        """Where those come from that stand in ``haystack``, as they are or in a well-known encoding."""
        text = haystack.decode("latin-1") if isinstance(haystack, bytes) else haystack
        found = []
        for place, value in self.items():
            spellings = (
                value,
                value[::-1],
                value.encode().hex(),
                base64.b64encode(b"x" + value.encode()).decode()[3:-3],
            )
            found += [place for spelling in spellings if spelling in text]
        return found


@pytest.fixture
def planted(monkeypatch):
    planted = Planted()
    monkeypatch.setenv("FROM_HOST", planted["a variable that is passed"])
    monkeypatch.setenv("HOST_SECRET", planted["a variable that is not passed"])
    return planted


@pytest.fixture
def leaky(tmp_path, planted) -> Path:
    """A plugin whose server tells everything that it was given, in every way that it has."""
    folder = tmp_path / "leaky"
    folder.mkdir()
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    manifest = {
        "id": "leaky",
        "name": "Leaky",
        "version": "1.0.0",
        "contributes": {"tools": ["leaky.give", "leaky.fail", "leaky.die"]},
        "backend": {
            "type": "mcp",
            "transport": "stdio",
            "command": "python3",
            "args": ["server.py", "--api-key", planted["an argument"], f"--token={planted['an option']}"],
            "env": {
                "API_KEY": planted["a variable that tells"],
                "SETTING_X": planted["a variable that does not tell"],
                "DATABASE_URL": f"postgres://ann:{planted['a URL']}@db.internal/x",
            },
            "pass_env": ["FROM_HOST"],
        },
    }
    (folder / "plugin.yaml").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def arguments(planted: Planted) -> dict[str, object]:
    return {
        "password": planted["an argument of a call"],
        "note": f"see https://x.example/?api_key={planted['a query']}&y=1",
        "text": f"Authorization: Basic {planted['a header']}\nAccept: */*",
        "blob": json.dumps({"nested": json.dumps({"client_secret": planted["JSON in JSON"]})}),
        "github": "ghp_" + planted["a token by its shape"],
    }


async def everything(bridge: Bridge, state: Path) -> dict[str, str | bytes]:
    """All that the bridge keeps and tells, by where it is."""
    runs = await bridge.traces.runs()
    kept: dict[str, str | bytes] = {
        "steps": repr([await bridge.traces.run(run.id) for run in runs] + list(await bridge.traces.steps())),
        "views": repr(bridge.plugins.list()),
        "readiness": repr(bridge.readiness()),
        "failures": repr([error.as_dict() for error in bridge.failures.values()]),
        "logs of the plugin": bridge.plugins.logs("leaky"),
    }
    return {**kept, **files(state)}


def files(state: Path) -> dict[str, bytes]:
    """What is on disk, but for the one file that is there to hold a secret."""
    return {path.name: path.read_bytes() for path in state.rglob("*") if path.is_file() and path.name != "owner.token"}


async def over_rest(base: str, token: str, planted: Planted) -> list[str]:
    """Everything that the REST API tells the owner, but for what a tool itself answers."""
    told = []
    async with httpx.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        async with http.stream("GET", "/api/events") as live:
            failed = await http.post("/api/tools/leaky.fail/call", json={})
            assert failed.status_code == 502
            events = live.aiter_lines()
            while "leaky.fail" not in (line := await anext(events)):
                told.append(line)
        unknown = await http.post(f"/api/tools/ghp_{planted['a name in a path']}/call", json=arguments(planted))
        wrong = await http.get("/api/tools", headers={"Authorization": f"Bearer {planted['a wrong token']}"})
        told += [failed.text, wrong.text, str(wrong.headers), str(failed.headers), unknown.text]
        for path in ("/api/plugins", "/api/plugins/leaky", "/api/plugins/leaky/host", "/api/plugins/leaky/logs"):
            told.append((await http.get(path)).text)
        for path in ("/api/tools", "/api/tools/openapi.json", "/api/runs", "/api/status", "/readyz", "/openapi.json"):
            told.append((await http.get(path)).text)
        told.append((await http.get(f"/api/traces/{failed.headers['bascule-trace']}")).text)
    return told


@pytest.mark.req("N6.3")
@pytest.mark.req("N6.4")
@pytest.mark.req("N6.10")
async def test_planted_secrets_are_found_nowhere(settings: Settings, leaky, planted, caplog):
    caplog.set_level(logging.DEBUG)
    rest_port = free_port()
    sections = {"sse_server": {"port": (port := free_port()), "tokens": True}, "quart_api": {"port": rest_port}}
    settings = settings.with_(plugins=sections, launcher="local")
    assert settings.state is not None
    told: list[object] = []
    async with Bridge(settings) as bridge, bridge.events() as events, bridge.serve():
        planted["a token of ours"] = token = bridge.tokens.create("laptop", ["call"])
        planted["the owner's token"] = (settings.state / "owner.token").read_text().strip()

        async def listen() -> None:
            async for event in events:
                told.append(event)

        listening = asyncio.create_task(listen())
        view = await bridge.plugins.install(leaky)
        await bridge.plugins.grant("leaky", view.permissions)
        await bridge.plugins.enable("leaky")
        base = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient() as http:
            wrong = {"Authorization": f"Bearer {planted['a token that is wrong']}"}
            assert (await http.get(f"{base}/sse", headers=wrong)).status_code == 401
            assert (await http.get(f"{base}/sse?token={planted['a token in a query']}")).status_code == 401
        async with connect(base, headers={"Authorization": f"Bearer {token}"}) as client:
            await client.initialize()
            given = await client.call("leaky.give", arguments(planted))
            # what a tool answers reaches its caller as it is …
            assert planted["a variable that tells"] in str(given)
            # … but for what never reached the tool
            assert planted["a variable that is not passed"] not in str(given)
            assert (await client.call("leaky.fail"))["isError"]
            unknown = await client.call(f"leaky.{'ghp_' + planted['a name'].replace('-', 'x')}")
            assert unknown["isError"]
            gone = await client.call("leaky.die")
            assert gone["isError"]
            assert not planted.found_in(json.dumps(gone))
        await bridge.plugins.restart("leaky")
        told += await over_rest(f"http://127.0.0.1:{rest_port}", planted["the owner's token"], planted)
        async with bridge.run("agent", purpose=f"use password={planted['a purpose']}") as run:
            with pytest.raises(CallError):
                await run.call("leaky.die", arguments(planted))
        assert len(planted) >= 15
        for place, kept in (await everything(bridge, settings.state)).items():
            assert not planted.found_in(kept), place
        assert "fatal: " in bridge.plugins.logs("leaky")
        listening.cancel()
    assert told
    assert not planted.found_in(repr(told))
    ours = [caplog.handler.format(record) for record in caplog.records if not record.name.startswith("http")]
    assert "was refused, 401" in str(ours)
    assert not planted.found_in("\n".join(ours))
    for name, kept in files(settings.state).items():
        assert not planted.found_in(kept), name


@pytest.mark.req("N6.3")
async def test_a_start_that_fails_over_a_secret_does_not_tell_it(settings: Settings, leaky, planted, caplog):
    server = (leaky / "server.py").read_text(encoding="utf-8")
    (leaky / "server.py").write_text(server.replace("for line", 'print("no " + held[0], flush=True)\nfor line'))
    async with Bridge(settings, plugins=[leaky], grant=True, remember=False) as bridge:
        await bridge.settled()
        error = bridge.failures["leaky"]
        assert error.code == "MCP_PROTOCOL_ERROR"
        assert not planted.found_in(f"{error} {error.as_dict()} {error.diagnosis} {error.args}")
    assert not planted.found_in(caplog.text)


def test_the_command_line_shows_a_plugin_without_its_secrets(bascule, leaky, planted):
    environment = {"FROM_HOST": planted["a variable that is passed"]}
    for more in ((), ("--json",)):
        ended = bascule("call", "leaky.die", "{}", "--dev", "-vv", "--plugin", leaky, *more, env=environment)
        assert ended.code != 0
        assert "PLUGIN_HOST_UNAVAILABLE" in ended.out + ended.err
        traces = bascule("traces", *more)
        assert not planted.found_in(ended.out + ended.err + traces.out + traces.err)


# --- what a launch hands out ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("/usr/local/bin:/opt/x", False),
        ("https://api.example.org:8443/v1", False),
        ("de_DE.UTF-8", False),
        ("8080", False),
        ("true", False),
        ("production", False),
        ("info,debug", False),
        ("a8Zk-29xQ_77hd", True),
        ("postgres://ann:correcthorse@db/x", True),
        ("https://hooks.example.org/T00/B00?sig=a8Zk29", True),
    ],
)
def test_values_that_are_plainly_harmless_are_not_taken_for_secrets(value, secret):
    request = LaunchRequest(("x",), Path(), env={"SETTING": value})
    assert (value in credentials(request, {})) is secret


def test_a_variable_that_is_passed_is_a_secret_unless_its_value_is_plain():
    host = {"NODE_ENV": "production", "LOG": "/var/log/x", "LICENCE": "a8Zk-29xQ", "DB_PASSWORD": "correcthorse"}
    request = LaunchRequest(("x",), Path(), pass_env=tuple(host))
    assert credentials(request, host) == ["correcthorse", "a8Zk-29xQ"]


def test_arguments_behind_a_telling_option_are_secrets():
    argv = (
        "x",
        "--api-key",
        "value-one",
        "--token=value-two",
        "PASSWORD=value-three",
        "--verbose",
        "plain",
        "--key-file",
    )
    assert credentials(LaunchRequest(argv, Path()), {}) == ["value-one", "value-two", "value-three"]


def test_what_a_manifest_can_make_us_look_for_is_bounded():
    request = LaunchRequest(("x",), Path(), env={f"TOKEN_{number}": f"{number:05}" * 10_000 for number in range(200)})
    assert sum(map(len, credentials(request, {}))) <= 4_096


# --- the type ---------------------------------------------------------------------------------------------------


class Holder(Section):
    api_key: Secret


def test_a_secret_shows_itself_only_when_it_is_asked():
    holder = Holder(api_key="hunter2hunter2")
    secret = holder.api_key
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>40}", f"{secret!r}{[secret]}", repr(holder)]
    shown += [
        holder.model_dump_json(),
        json.dumps({"x": secret}, default=str),
        repr(copy.deepcopy(holder)),
        str({secret}),
    ]
    assert not [text for text in shown if "hunter2" in text]
    assert secret.reveal() == "hunter2hunter2"
    assert secret == Secret("hunter2hunter2") != Secret("other")


def test_a_manifest_that_is_shown_shows_no_variables_value(leaky, planted, settings):
    async def scenario() -> str:
        async with Bridge(settings, remember=False) as bridge:
            await bridge.plugins.install(leaky, keep=False)
            manifest = bridge.plugins._find("leaky").manifest
            return repr(manifest.backend) + manifest.backend.model_dump_json()

    shown = asyncio.run(scenario())
    assert not {"a variable that tells", "a variable that does not tell", "a URL"} & set(planted.found_in(shown))


# --- logs -------------------------------------------------------------------------------------------------------


LOADED_TO_SERVE = """
import asyncio, io, json, logging, sys
import httpx
from bascule.core.bridge import Bridge
from bascule.core.settings import Settings

said = io.StringIO()
logging.basicConfig(stream=said)  # what an agent that embeds a bridge may have

async def main(port, http_server, state):
    settings = Settings().with_(
        state=state,
        http_server=http_server,
        plugins={"quart_api": {"port": port}},
        disabled_hook_plugins=("sse_server",),
    )
    async with Bridge(settings) as bridge, bridge.serve() as opened:
        assert opened == ["rest"], bridge.failures
        bridge.plugins.list = broken
        headers = {"authorization": "Bearer " + bridge.tokens.create("tester", ("read",))}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
            assert (await http.get("/api/plugins")).status_code == 500
    told = said.getvalue().partition("RuntimeError: it said")[2]
    assert told, said.getvalue()
    assert "correct-horse" not in told

def broken():
    raise RuntimeError("it said password=correct-horse")

asyncio.run(main(*json.loads(sys.argv[1])))
"""


@pytest.mark.req("N6.4")
def test_what_is_loaded_for_serving_alone_logs_no_secret_either(http_server, short_path):
    """In a process of its own: loggers that another test's bridge made would be there already."""
    given = json.dumps([free_port(), http_server, str(short_path / "state")])
    run = subprocess.run(
        [sys.executable, "-c", LOADED_TO_SERVE, given], capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stderr


def test_what_is_logged_is_masked_before_any_handler_sees_it(caplog):
    log = logging.getLogger("bascule.core.gateway")
    redactor = Redactor(["correct-horse-battery"])
    with masked(redactor.redact):
        log.warning("it said %s to %s", "correct-horse-battery", "ann")
        try:
            raise ValueError("no correct-horse-battery here")
        except ValueError:
            log.exception("failed")
    log.warning("afterwards: %d", 7)
    assert "correct-horse" not in caplog.text
    assert f"it said {REDACTED} to ann" in caplog.text
    assert "ValueError: no" in caplog.text
    assert "afterwards: 7" in caplog.text
