"""The command line and the bridge: one that runs, one that starts, one that does not run, one somewhere else."""

from __future__ import annotations

import http.server
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.core.cli import exits
from bascule.core.cli.plugins import news
from bascule.hookspecs.kit import free_port


@pytest.fixture
def dev(bascule, echo):
    """Settings in which the fixture may run, and be installed over HTTP; `python3` is this interpreter."""
    import sys

    bascule.settings(
        json.dumps(
            {
                "environment": "development",
                "executables": {"python3": sys.executable},
                "plugin_roots": [str(echo.parent)],
                "plugins": {"quart_api": {"port": free_port()}, "sse_server": {"port": free_port()}},
            }
        )
    )
    return bascule


@pytest.fixture
def serving(dev):
    """A bridge that serves, once all its ways in are open."""
    running = dev.start("serve", "--json")
    running.until('"serving"')
    return running


def installed(bascule, echo: Path) -> None:
    assert bascule("install", echo).code == 0
    assert bascule("grant", "mcp-fixture", "--all").code == 0
    assert bascule("enable", "mcp-fixture").code == 0


def states(bascule) -> dict[str, tuple[str, bool]]:
    found = bascule("plugins", "--json").json["plugins"]
    return {view["plugin_id"]: (view["state"], view["enabled"]) for view in found}


# --- where no bridge runs ---------------------------------------------------------------------------------


@pytest.mark.fresh
@pytest.mark.req("N10")
def test_without_a_bridge_what_is_installed_is_kept_for_the_next_one(dev, echo):
    assert states(dev) == {}
    shown = dev("install", echo)
    assert "it asks for notes.read, tools.call" in shown.out
    assert states(dev) == {"mcp-fixture": ("awaiting_grants", False)}
    refused = dev("enable", "mcp-fixture")
    assert (refused.code, refused.err.split(":")[0]) == (exits.REFUSED, "PLUGIN_PERMISSION_REQUIRED")
    assert dev("grant", "mcp-fixture", "--all").code == 0
    assert "with 6 tools" in dev("enable", "mcp-fixture").out
    assert states(dev) == {"mcp-fixture": ("disabled", True)}
    running = dev.start("serve", "--json")
    up = json.loads(running.until('"serving"'))
    assert [(view["plugin_id"], view["state"]) for view in up["plugins"]] == [("mcp-fixture", "ready")]
    assert running.ended(signal.SIGTERM).code == 0


def test_without_a_bridge_status_says_so_and_shows_what_is_installed(dev, echo):
    dev("install", echo)
    status = dev("status")
    assert status.code == exits.UNREACHABLE
    assert "no bridge runs" in status.out
    assert "mcp-fixture" in status.out
    told = dev("status", "--json")
    assert (told.code, told.json["running"]) == (exits.UNREACHABLE, False)


@pytest.mark.parametrize("command", [("restart", "x"), ("logs", "x"), ("tools",), ("call", "x")])
def test_what_needs_a_bridge_says_how_to_start_one(bascule, command):
    refused = bascule(*command, "--json")
    assert refused.code == exits.UNREACHABLE
    assert refused.json["error"]["code"] == "BRIDGE_UNREACHABLE"
    assert "bascule serve" in refused.json["error"]["hint"]


def test_commands_that_are_given_at_once_wait_for_one_another(dev, echo, plugin_copy):
    names = ("one", "two", "three", "four")
    for name in names:
        manifest = plugin_copy(echo, name=name) / "plugin.yaml"
        manifest.write_text(manifest.read_text().replace("mcp-fixture", name))
    running = [dev.start("install", dev.folder.parent / name) for name in names]
    assert [one.ended(seconds=100).code for one in running] == [0, 0, 0, 0]
    assert set(states(dev)) == set(names)


@pytest.mark.parametrize("command", [("enable", "x"), ("remove", "x"), ("grant", "x", "--all"), ("grant", "x")])
def test_a_plugin_that_is_not_installed_is_not_found_here_either(bascule, command):
    assert bascule(*command).code == exits.NOT_FOUND


# --- where one runs ---------------------------------------------------------------------------------------


@pytest.fixture
def hosting(dev, echo):
    """A bridge that serves the fixture."""
    installed(dev, echo)
    running = dev.start("serve", "--json")
    running.until('"serving"')
    return running


@pytest.mark.fresh
@pytest.mark.req("N10")
def test_a_running_bridge_installs_grants_enables_and_removes(dev, serving, echo):
    installed(dev, echo)
    assert states(dev) == {"mcp-fixture": ("ready", True)}
    assert dev("grant", "mcp-fixture").out.splitlines()[-1] == "mcp-fixture is ready"
    assert "awaiting grants" in dev("grant", "mcp-fixture", "--none").out
    assert dev("remove", "mcp-fixture").code == 0
    assert states(dev) == {}
    assert dev("enable", "mcp-fixture").code == exits.NOT_FOUND


@pytest.mark.fresh
@pytest.mark.req("N4.2.1", "N7.3", "N7.4")
def test_a_running_bridge_restarts_and_disables(dev, hosting):
    assert "the host is ready" in dev("restart", "mcp-fixture").out
    assert dev("disable", "mcp-fixture").code == 0
    refused = dev("restart", "mcp-fixture")
    assert (refused.code, refused.err.split(":")[0]) == (exits.PLUGIN, "PLUGIN_HOST_UNAVAILABLE")
    assert states(dev) == {"mcp-fixture": ("disabled", False)}


@pytest.mark.fresh
def test_a_running_bridge_says_what_it_is_and_which_tools_it_has(dev, hosting):
    status = dev("status", "--json").json
    assert (status["running"], status["environment"]) == (True, "development")
    assert {"rest", "sse"} <= set(status["transports"])
    assert "mcp-fixture" in dev("status").out
    assert "mcp-fixture.echo" in dev("tools").out
    assert len(dev("tools", "--json").json["tools"]) == 6
    assert dev("tools", "--json", "--group", "none").json["tools"] == []


@pytest.mark.req("N5.5", "N9")
def test_a_call_by_the_running_bridge_ends_as_one_by_a_command(dev, hosting):
    assert json.loads(dev("call", "mcp-fixture.echo", '{"message": "hello"}').out)["message"] == "hello"
    failed = dev("call", "mcp-fixture.fail", "--json")
    assert (failed.code, failed.json["error"]["code"]) == (exits.FAILED, "MCP_TOOL_CALL_FAILED")
    assert failed.json["content"]
    wrong = dev("call", "mcp-fixture.echo", "--json")
    assert (wrong.code, wrong.json["error"]["code"]) == (exits.USAGE, "TOOL_ARGUMENTS_INVALID")
    missing = dev("call", "mcp-fixture.nothing", "--json")
    assert (missing.code, missing.json["error"]["code"]) == (exits.NOT_FOUND, "TOOL_NOT_FOUND")
    assert [run["state"] for run in dev("runs", "--json").json["runs"][:4]] == ["failed"] * 3 + ["finished"]


@pytest.mark.req("N5.5", "N9")
@pytest.mark.parametrize(
    "far", [pytest.param(False, id="here", marks=pytest.mark.fresh), pytest.param(True, id="by its address")]
)
def test_a_call_leaves_a_run_that_can_be_looked_at(dev, hosting, far):
    calls = [dev("call", "mcp-fixture.echo", '{"message": "hello"}', "--json").json for _ in range(2)]
    called = calls[-1]
    owner = (dev.state / "owner.token").read_text().strip()
    url = json.loads((dev.state / "bridge.json").read_text())["url"]
    where = ("--url", url, "--token", owner) if far else ()
    runs = dev("runs", "--json", *where).json["runs"]
    assert [run["id"] for run in runs[:2]] == [call["trace"] for call in reversed(calls)]
    assert dev("runs", "--json", "--limit", "1", "--before", runs[0]["id"], *where).json["runs"] == [runs[1]]
    tree = dev("trace", called["trace"], *where).out
    assert "└─ mcp-fixture.echo" in tree
    assert f"trace {called['trace_id']}" in tree
    assert " s\n" in tree  # when it began
    told = dev("trace", called["trace"], "--json", *where).json
    assert (told["run"]["state"], [step["id"] for step in told["steps"]]) == ("finished", [called["trace_id"]])
    step = dev("trace", called["trace_id"], "--json", *where).json
    assert (step["run"], step["steps"]) == (None, told["steps"])
    assert dev("trace", called["trace_id"], *where).out.startswith("── mcp-fixture.echo")
    assert dev("trace", "nothing", *where).code == exits.NOT_FOUND


def test_a_running_bridge_installs_only_from_below_its_plugin_roots(dev, serving, tmp_path):
    refused = dev("install", tmp_path)
    assert (refused.code, refused.err.split(":")[0]) == (exits.REFUSED, "PLUGIN_DIRECTORY_FORBIDDEN")
    assert "plugin_roots" in refused.err


def test_a_relative_directory_is_the_one_that_is_seen_from_here(dev, serving, echo):
    (dev.folder / "here").symlink_to(echo)
    assert dev("install", "here").code == 0


@pytest.mark.fresh
@pytest.mark.req("N6.4")
def test_the_log_of_a_server_is_shown(dev, hosting):
    assert dev("logs", "mcp-fixture", "--json").json["plugin_id"] == "mcp-fixture"
    assert dev("logs", "nothing").code == exits.NOT_FOUND
    assert dev("logs", "mcp-fixture", "-f", "--json").code == exits.USAGE


@pytest.mark.req("N6.4")
def test_a_log_is_followed_until_it_is_enough(dev, echo, plugin_copy):
    folder = plugin_copy(echo, lambda manifest: manifest["backend"].update(args=["chatty.py"]))
    (folder / "chatty.py").write_text(
        "import itertools, sys, threading, time\n"
        "def talk():\n"
        "    for number in itertools.count():\n"
        "        print('line', number, file=sys.stderr, flush=True)\n"
        "        time.sleep(0.2)\n"
        "threading.Thread(target=talk, daemon=True).start()\n"
        "import server\n"
        "server.main()\n"
    )
    serving = dev.start("serve", "--json", "--dev", "--plugin", folder)
    serving.until('"serving"')
    following = dev.start("logs", "mcp-fixture", "-f", env={"PYTHONUNBUFFERED": "1"})
    numbers = [int(following.until("line ").split()[1]) for _ in range(12)]
    assert numbers == list(range(numbers[0], numbers[0] + 12))  # each once, in order
    assert following.ended(signal.SIGINT).code == exits.INTERRUPTED


def test_what_was_added_to_a_log_is_told_from_what_was_there():
    old = "".join(f"line {number}\n" for number in range(2_000))
    assert news("", "new\n") == "new\n"
    assert news(old, old) == ""
    assert news(old, f"{old}new\n") == "new\n"
    assert news(old, f"{old[5_000:]}new\n") == "new\n"  # the beginning has gone
    assert news(old, "all is new\n") == "all is new\n"
    assert news(old, "") == ""


def test_a_bridge_that_is_just_starting_is_waited_for(dev, echo):
    installed(dev, echo)
    running = dev.start("serve", "--json")
    running.process.poll()
    # Whichever comes first, the lock or this command, there is one answer or the other, and no error.
    assert dev("plugins").code == 0
    running.until('"serving"')
    assert dev("status").code == 0


def test_a_bridge_without_an_api_is_told_of(dev):
    running = dev.start("serve", "--json", "--no-hook-plugin", "quart_api")
    running.until('"serving"')
    for command in (("plugins",), ("install", "."), ("status",)):
        refused = dev(*command)
        assert (refused.code, refused.err.split(":")[0]) == (exits.UNREACHABLE, "BRIDGE_UNREACHABLE")
        assert f"process {running.process.pid}" in refused.err
        assert "quart_api" in refused.err
    assert dev("runs").code == 0


def test_what_a_killed_bridge_left_is_no_bridge(dev, echo):
    running = dev.start("serve", "--json")
    running.until('"serving"')
    running.ended(signal.SIGKILL)
    assert (dev.state / "bridge.json").exists()
    assert dev("status").code == exits.UNREACHABLE
    assert dev("install", echo).code == 0


# --- by its address ---------------------------------------------------------------------------------------


@pytest.mark.fresh
def test_by_its_address_a_bridge_wants_a_token_and_what_it_is_good_for(dev, hosting):
    url = json.loads((dev.state / "bridge.json").read_text())["url"]
    none = dev("plugins", "--url", url)
    assert (none.code, none.err.split(":")[0]) == (exits.REFUSED, "TOKEN_REQUIRED")
    reader = dev("token", "create", "reader", "--scope", "read", "--json").json["token"]
    assert dev("plugins", "--url", url, env={"BASCULE_TOKEN": reader}).code == 0
    refused = dev("disable", "mcp-fixture", "--url", url, "--token", reader)
    assert (refused.code, refused.err.split(":")[0]) == (exits.REFUSED, "SCOPE_REQUIRED")


class Impostor(http.server.BaseHTTPRequestHandler):
    """Answers everything in its server's own way, and remembers who asked with what."""

    def do_GET(self) -> None:
        self.server.seen.append(self.headers.get("Authorization"))
        self.server.answer(self)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def impostor() -> Iterator[http.server.HTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:
        server.daemon_threads = True
        server.seen = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def sent(status: int, body: bytes, **headers: str):
    def answer(handler: Impostor) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        sent(200, b"<html>hello</html>"),
        sent(200, b"[" * 100_000),
        sent(500, b"\xff"),
        sent(302, b"", Location="http://127.0.0.1:1/"),
        lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH\r\n"),
        lambda handler: handler.close_connection,
        lambda handler: handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    ],
    ids=["html", "nested", "garbage", "redirect", "no HTTP", "nothing", "half"],
)
def test_what_is_no_bridge_is_told_apart(bascule, impostor, answer):
    impostor.answer = answer
    refused = bascule("plugins", "--url", f"http://127.0.0.1:{impostor.server_port}", "--json")
    assert refused.code in (exits.UNREACHABLE, exits.FAILED)
    assert refused.json["error"]["code"] in ("BRIDGE_UNREACHABLE", "BASCULE_ERROR")


def test_the_owners_token_goes_to_no_other_address(dev, serving, impostor):
    impostor.answer = sent(200, b'{"plugins": []}')
    assert dev("plugins", "--url", f"http://127.0.0.1:{impostor.server_port}").code == 0
    assert impostor.seen == [None]


def test_errors_of_a_bridge_elsewhere_are_told_as_if_they_were_ours(bascule, impostor):
    problem = {"code": "PLUGIN_NOT_FOUND", "detail": "no plugin\x1b[31m here", "hint": "list them", "status": 404}
    impostor.answer = sent(404, json.dumps(problem).encode(), Content_Type="application/problem+json")
    url = f"http://127.0.0.1:{impostor.server_port}"
    refused = bascule("enable", "x", "--url", url)
    assert (refused.code, refused.err) == (exits.NOT_FOUND, "PLUGIN_NOT_FOUND: no plugin[31m here\n  → list them\n")
    impostor.answer = sent(418, b'{"code": "OF_A_LATER_VERSION", "detail": "something new"}')
    later = bascule("enable", "x", "--url", url, "--json")
    assert (later.code, later.json["error"]["code"]) == (exits.FAILED, "OF_A_LATER_VERSION")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:7860", "http://", "http://127.0.0.1:x", ""])
def test_an_address_that_is_none_is_refused(bascule, url):
    assert bascule("plugins", "--url", url).code == exits.USAGE


@pytest.mark.parametrize("token", ["secret\nX-More: 1", "sécret"])
def test_a_token_that_is_none_is_refused_and_not_shown(bascule, token):
    refused = bascule("plugins", "--url", "http://127.0.0.1:1", "--token", token)
    assert refused.code == exits.USAGE
    assert "cret" not in refused.err


def test_where_no_one_listens_the_bridge_is_unreachable(bascule):
    refused = bascule("plugins", "--url", f"http://127.0.0.1:{free_port()}", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (exits.UNREACHABLE, "BRIDGE_UNREACHABLE")
