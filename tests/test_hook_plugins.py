"""Hook plugins of others: found by their entry points, asked once, judged, combined – and harmless where broken."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fresh_environment import FreshEnvironment

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import (
    ExtensionPermissionInvalid,
    HookPluginRequired,
    PluginHostUnavailable,
    ToolCall,
    ToolConfirmationDeclined,
    ToolNotFound,
    ToolPermissionDenied,
)

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
HOOK_PLUGINS = FIXTURES / "hook-plugins"
TCP_ECHO = FIXTURES / "tcp-echo"

HELLO = ("mcp-fixture.echo", {"message": "hello"})

BROKEN = {
    "broken-on-import": ("HOOK_PLUGIN_BROKEN", "ImportError: the library that this hook plugin needs is not installed"),
    "broken-exits": ("HOOK_PLUGIN_BROKEN", "SystemExit: usage: broken-exits FILE"),
    "broken-hook-name": ("HOOK_PLUGIN_BROKEN", "unknown hook 'bascule_client_transport'"),
    "broken-arguments": ("HOOK_PLUGIN_BROKEN", "bridge"),
    "broken-offer": ("HOOK_PLUGIN_BROKEN", "the client transport 'half' lacks preview, connect"),
    "takes-a-name": ("HOOK_CONFLICT", "the client transport 'stdio', which stdio_client offers already"),
    "raises-in-hook": ("HOOK_PLUGIN_BROKEN", "bascule_tool_converters raised RuntimeError: the dictionary"),
    "endless-offers": ("HOOK_PLUGIN_BROKEN", "bascule_permissions offers more than 1,000 values"),
}

BUILT_IN = ("grants", "group_exposure", "local_launcher", "mcp_converter", "stdio_client")


def told(bascule, *arguments: str) -> dict[str, dict[str, Any]]:
    """What `bascule hooks --json` says of each hook plugin, by name."""
    shown = bascule("hooks", "--json", *arguments)
    assert shown.code == 0
    return {plugin["name"]: plugin for plugin in shown.json["hook_plugins"]}


def entry(name: str) -> str:
    return name.replace("-", "_")


# --- a stranger's transport, the whole way ----------------------------------------------------------------


@contextmanager
def tcp_server() -> Iterator[int]:
    """The fixture's server behind a port of its own; gone afterwards."""
    server = subprocess.Popen(
        [sys.executable, str(TCP_ECHO / "server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.communicate(timeout=20)


@pytest.fixture
def tcp_plugin(tmp_path: Path) -> Iterator[Path]:
    """The plugin `tcp-fixture`, whose server listens on a free port."""
    with tcp_server() as port:
        folder = tmp_path / "tcp-plugin"
        folder.mkdir()
        manifest = (TCP_ECHO / "plugin.yaml").read_text(encoding="utf-8")
        (folder / "plugin.yaml").write_text(manifest.replace("port: 7071", f"port: {port}"), encoding="utf-8")
        yield folder


@pytest.mark.slow
@pytest.mark.req("D5", "D3", "D4", "N3.1")
def test_a_strangers_transport_that_pip_installs_hosts_a_server(bascule, tmp_path, tcp_plugin):
    environment = FreshEnvironment(tmp_path / "fresh")
    source = tmp_path / "source"
    shutil.copytree(HOOK_PLUGINS / "bascule-tcp-transport", source)
    bascule.program = [str(environment.python), "-c", "from bascule.core.cli import main; main()"]
    quiet = {**bascule.env, "PYTHONWARNINGS": "ignore"}  # what pip and its build backend warn of is theirs
    call = ("call", "tcp-fixture.echo", '{"message": "through a port"}', "--plugin", tcp_plugin, "--json")

    before = bascule(*call)
    assert before.json["error"]["code"] == "EXTENSION_MANIFEST_INVALID"
    assert "stdio" in json.dumps(before.json)

    environment.pip("install", source, env=quiet)
    plugin = told(bascule)["tcp"]
    assert (plugin["distribution"], plugin["version"], plugin["state"]) == ("bascule-tcp-transport", "0.3.0", "ok")
    assert plugin["offers"] == {"bascule_client_transports": ["tcp"]}

    refused = bascule(*call)  # no process starts, and yet it has not been approved
    assert (refused.code, refused.json["error"]["code"]) == (3, "MCP_TRUST_APPROVAL_REQUIRED")
    answer = bascule(*call, "--dev")
    assert answer.code == 0
    assert answer.json["output"]["message"] == "through a port"
    shown = bascule("check", tcp_plugin)
    assert "starts no process" in shown.out

    environment.pip("uninstall", "--yes", "bascule-tcp-transport", env=quiet)
    assert "tcp" not in told(bascule)


@pytest.mark.req("D5", "N4.2.2")
async def test_a_strangers_transport_has_the_whole_life_of_a_host(strangers, settings, tcp_plugin, approve):
    strangers.install("bascule-tcp-transport")
    production = settings.with_(environment="production")
    async with Bridge(production, remember=False) as bridge, bridge.run("test") as run:
        await bridge.plugins.install(tcp_plugin)
        await approve(bridge, "tcp-fixture", unsandboxed=False)  # there is no process that could be isolated
        await bridge.plugins.enable("tcp-fixture")
        assert (await run.call("tcp-fixture.echo", {"message": "x"})).output["message"] == "x"
        await bridge.plugins.restart("tcp-fixture")
        assert (await run.call("tcp-fixture.large", {"bytes": 200_000})).text
        with pytest.raises(PluginHostUnavailable):
            await run.call("tcp-fixture.exit")
        assert bridge.plugins.get("tcp-fixture").restart_allowed
        await bridge.plugins.restart("tcp-fixture")
        assert (await run.call("tcp-fixture.echo", {"message": "x"})).output["message"] == "x"


@pytest.mark.req("D5")
async def test_where_no_one_listens_the_transports_own_words_are_told(strangers, settings, tmp_path):
    strangers.install("bascule-tcp-transport")
    with tcp_server() as port:
        pass  # no one has it now
    shutil.copytree(TCP_ECHO, tmp_path / "plugin")
    manifest = tmp_path / "plugin" / "plugin.yaml"
    manifest.write_text(manifest.read_text().replace("7071", str(port)))
    async with Bridge(settings, plugins=[tmp_path / "plugin"], grant=True, remember=False) as bridge:
        await bridge.settled()
        assert f"there is no server at 127.0.0.1:{port}" in str(bridge.failures["tcp-fixture"])


# --- broken ones ------------------------------------------------------------------------------------------


@pytest.mark.req("D5", "D4")
def test_broken_hook_plugins_are_reported_with_their_reasons_and_hurt_nothing_else(bascule, strangers, echo):
    strangers.install(*BROKEN)
    plugins = told(bascule)
    for name, (code, reason) in BROKEN.items():
        plugin = plugins[entry(name)]
        assert (plugin["distribution"], plugin["version"]) == (name, "1.0.0")
        assert (plugin["state"], plugin["offers"]) == ("broken", {})
        assert plugin["error"]["code"] == code
        assert reason in plugin["error"]["message"]
        assert plugin["error"]["hint"]
    assert {plugins[name]["state"] for name in BUILT_IN} == {"ok"}

    call = bascule("call", HELLO[0], json.dumps(HELLO[1]), "--dev", "--plugin", echo)
    assert call.code == 0
    assert json.loads(call.out)["message"] == "hello"
    for name in BROKEN:
        assert f"warning: hook plugin {entry(name)} is out" in call.err


@pytest.mark.req("D5")
def test_people_see_in_a_table_what_is_broken_and_why(bascule, strangers):
    strangers.install("broken-on-import", "bascule-tcp-transport")
    shown = bascule("hooks", env={"COLUMNS": "200"})
    assert shown.code == 0
    assert "client transports: tcp" in shown.out
    assert "HOOK_PLUGIN_BROKEN: it did not import: ImportError: the library" in shown.out
    assert "Hook plugins run inside the bridge, with all its rights." in shown.out
    assert shown.err == ""


HOOKIMPL = "from bascule.hookspecs import *\nfrom bascule.hookspecs import hookimpl\n"
TRANSPORT = f"""{HOOKIMPL}
class T:
    name = "t"
    backend_model = Section
    starts_process = False
    def preview(self, backend, directory): ...
    def connect(self, backend, context): ...
"""
LAUNCHER = f"""{HOOKIMPL}
class L:
    name = "free"
    isolation = "none"
    async def launch(self, plan): ...
"""


def offering(family: str, answer: str, code: str = HOOKIMPL) -> str:
    """A module that offers ``answer``, an expression."""
    return f"{code}\n@hookimpl\ndef bascule_{family}(): return {answer}\n"


UNMARKED = f"{TRANSPORT}\ndef bascule_client_transports(): return [T()]\n"


@pytest.mark.req("D3", "N6.9")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (UNMARKED, "bascule_client_transports lacks @hookimpl"),
        (offering("client_transports", "[T]", TRANSPORT), "returned the class T"),
        (offering("client_transports", "T()", TRANSPORT), "returned a T"),
        (offering("client_transports", "[T()]", TRANSPORT).replace("def bascule", "async def bascule"), "a coroutine"),
        (offering("client_transports", "[T(), T()]", TRANSPORT), "itself offers already"),
        (offering("client_transports", "[T()]", f"{TRANSPORT}T.name = 7"), "no text 'name'"),
        (offering("client_transports", "[T()]", f"{TRANSPORT}T.backend_model = dict"), "is not a pydantic model"),
        (offering("client_transports", "[T()]", f"{TRANSPORT}T.name = property(lambda _: 1 / 0)"), "ZeroDivisionError"),
        (offering("launchers", "[L()]", LAUNCHER), "isolation of the launcher 'free' is not an Isolation"),
        (offering("server_transports", "exit(3)"), "raised SystemExit: 3"),
        ("assert False, 'not here'", "AssertionError: not here"),
        ("class Odd(BaseException): ...\nraise Odd('very')", "Odd: very"),
        ("def broken(:", "SyntaxError"),
    ],
)
async def test_each_way_to_break_the_contract_is_told_by_its_name(strangers, settings, echo, code, reason):
    strangers.write("odd-one", code)
    async with Bridge(settings, plugins=[echo], grant=True, remember=False) as bridge, bridge.run("test") as run:
        (broken,) = bridge.lineup.broken
        assert (broken.name, broken.found.distribution) == ("odd_one", ("odd-one", "1.0.0"))
        assert reason in str(broken.error)
        assert (await run.call(*HELLO)).output["message"] == "hello"


@pytest.mark.parametrize("value", ["no_such_module", "odd_one:nothing", "odd one", ""])
def test_an_entry_point_that_leads_nowhere_is_one_more_broken_hook_plugin(bascule, strangers, value):
    strangers.write("odd-one", "", entry=value)
    if not value:
        points = strangers.folder / "odd_one-1.0.0.dist-info" / "entry_points.txt"
        points.write_text("[bascule.plugins]\nodd_one =\n")
    plugins = told(bascule)
    assert plugins["odd_one"]["error"]["code"] == "HOOK_PLUGIN_BROKEN"
    assert plugins["stdio_client"]["state"] == "ok"


@pytest.mark.parametrize("points", ["[bascule.plugins]\nno equals sign\n", "[bascule.plugins]\n\ufffd = \udcff"])
def test_metadata_that_no_one_can_read_is_its_own_distributions_affair(bascule, strangers, points):
    strangers.install("bascule-tcp-transport")
    strangers.write("odd-one", "")
    path = strangers.folder / "odd_one-1.0.0.dist-info" / "entry_points.txt"
    path.write_bytes(points.encode(errors="surrogateescape"))
    assert {*BUILT_IN, "tcp"} <= set(told(bascule))


def test_a_hook_plugin_that_misspells_a_hook_is_told_which_one_was_meant(bascule, strangers):
    strangers.install("broken-hook-name")
    assert told(bascule)["broken_hook_name"]["error"]["hint"] == "did you mean bascule_client_transports?"


def test_what_a_hook_plugin_prints_never_stands_among_our_output(bascule, strangers, echo):
    strangers.write("chatty", "import os\nprint('hello from python')\nos.system('echo hello from a shell')\n")
    call = bascule("call", HELLO[0], json.dumps(HELLO[1]), "--dev", "--plugin", echo, "--json")
    assert call.json["output"]["message"] == "hello"
    assert "hello from python" in call.err
    assert "hello from a shell" in call.err


# --- found anew at every start ----------------------------------------------------------------------------


@pytest.mark.req("D4")
def test_the_very_next_command_sees_what_was_installed_edited_and_taken_away(bascule, strangers):
    assert "tcp" not in told(bascule)
    strangers.install("bascule-tcp-transport")
    assert told(bascule)["tcp"]["state"] == "ok"
    # edited in place, within the two minutes that a cache of 32-bit times can't tell apart
    points = strangers.folder / "bascule_tcp_transport-0.3.0.dist-info" / "entry_points.txt"
    points.write_text("[bascule.plugins]\nport = bascule_tcp_transport\n")
    assert {"tcp", "port"} & set(told(bascule)) == {"port"}
    strangers.uninstall("bascule-tcp-transport")
    assert "port" not in told(bascule)
    assert not (bascule.home / ".cache").exists()


def test_looking_for_hook_plugins_leaves_nothing_anywhere(bascule, strangers):
    assert bascule("hooks", env={"XDG_CACHE_HOME": None}).code == 0
    assert list(bascule.home.iterdir()) == []
    assert list(bascule.folder.iterdir()) == [bascule.home]


@pytest.mark.req("D4")
def test_a_hook_plugin_that_is_turned_off_is_not_imported(bascule, strangers):
    strangers.write("loud", "raise SystemExit('imported')")
    plugin = told(bascule, "--no-hook-plugin", "loud")["loud"]
    assert (plugin["state"], plugin["error"], plugin["version"]) == ("disabled", None, "1.0.0")
    bascule.env["BASCULE_DISABLED_HOOK_PLUGINS"] = "quiet, loud,"
    assert told(bascule)["loud"]["state"] == "disabled"
    assert bascule("hooks", "--json").json["warnings"] == [
        "command line: disabled_hook_plugins: no hook plugin 'quiet' is installed"
    ]
    del bascule.env["BASCULE_DISABLED_HOOK_PLUGINS"]
    bascule.settings("disabled_hook_plugins: [loud]\n")
    assert told(bascule)["loud"]["state"] == "disabled"


@pytest.mark.req("D4")
def test_a_built_in_is_replaced_by_turning_it_off(bascule, strangers):
    strangers.install("takes-a-name")
    assert told(bascule)["takes_a_name"]["state"] == "broken"
    plugins = told(bascule, "--no-hook-plugin", "stdio_client")
    assert plugins["takes_a_name"]["state"] == "ok"
    assert plugins["takes_a_name"]["offers"]["bascule_client_transports"] == ["stdio"]
    assert plugins["stdio_client"]["state"] == "disabled"


def test_of_two_distributions_with_one_entry_point_name_none_is_loaded_and_a_built_in_stands(bascule, strangers):
    for name in ("first", "second"):
        strangers.write(name, f"raise SystemExit('{name} was imported')")
        points = strangers.folder / f"{name}-1.0.0.dist-info" / "entry_points.txt"
        points.write_text(f"[bascule.plugins]\nshared = {name}\ngrants = {name}\n")
    shown = bascule("hooks", "--json").json["hook_plugins"]
    states = [(plugin["name"], plugin["distribution"], plugin["state"]) for plugin in shown]
    assert {state for state in states if state[0] in ("shared", "grants")} == {
        ("grants", "bascule", "ok"),
        ("grants", "first", "broken"),
        ("grants", "second", "broken"),
        ("shared", "first", "broken"),
        ("shared", "second", "broken"),
    }
    reasons = [plugin["error"]["message"] for plugin in shown if plugin["name"] == "shared"]
    assert all("first (first), second (second)" in reason for reason in reasons)
    assert not any("imported" in json.dumps(plugin) for plugin in shown)


# --- the owner's settings ---------------------------------------------------------------------------------


def test_a_hook_plugin_reads_its_own_section(bascule, strangers):
    strangers.install("own-section")
    assert told(bascule)["own_section"]["offers"] == {"bascule_permissions": ["calendar.read"]}
    bascule.settings("plugins:\n  own_section:\n    words: {mail.read: read the mail, mail.send: send mail}\n")
    assert told(bascule)["own_section"]["offers"] == {"bascule_permissions": ["mail.read", "mail.send"]}


@pytest.mark.req("N5.4")
def test_a_word_that_a_hook_plugin_registers_may_stand_in_manifests(bascule, strangers, echo, plugin_copy):
    folder = plugin_copy(echo, lambda manifest: manifest["permissions"].append("calendar.read"))
    refused = bascule("check", folder, "--json")
    assert refused.json["error"]["code"] == ExtensionPermissionInvalid.code
    strangers.install("own-section")
    assert "calendar.read" in bascule("check", folder, "--json").json["permissions"]


def test_a_section_that_does_not_fit_puts_its_hook_plugin_out_and_names_line_and_cure(bascule, strangers, echo):
    strangers.install("own-section")
    path = bascule.settings("plugins:\n  own_section:\n    most: 20\n    wrods: {}\n")
    error = told(bascule)["own_section"]["error"]
    assert error["code"] == "SETTINGS_INVALID"
    assert error["where"] == f"{path}:4"
    assert "words" in error["hint"]
    assert bascule("call", *_hello(), "--dev", "--plugin", echo).code == 0


def _hello() -> tuple[str, str]:
    return HELLO[0], json.dumps(HELLO[1])


def test_what_the_settings_say_of_hook_plugins_that_are_not_there_is_warned_about(bascule, echo):
    path = bascule.settings("disabled_hook_plugins: [grantz]\nplugins:\n  sse_servr: {port: 1}\n  absent:\n")
    shown = bascule("hooks", "--json")
    assert shown.code == 0
    assert shown.json["warnings"] == [
        f"{path}:3: plugins: no hook plugin 'sse_servr' is installed; did you mean sse_server?",
        f"{path}:4: plugins: no hook plugin 'absent' is installed",
        f"{path}:1: disabled_hook_plugins: no hook plugin 'grantz' is installed; did you mean grants?",
    ]
    call = bascule("call", *_hello(), "--dev", "--plugin", echo)
    assert call.code == 0
    for warning in shown.json["warnings"]:
        assert f"warning: {warning}" in call.err


# --- many checks, one answer ------------------------------------------------------------------------------

VOICES = """
from bascule.hookspecs import Allow, Ask, Deny, Section, hookimpl

class Voices(Section):
    say: tuple[str, ...] = ()

ANSWERS = {
    "allow": Allow("fine", "v"), "deny": Deny("never", "v"), "ask": Ask("Really?", "v"), "silent": None, "nonsense": 1
}

class Voice:
    def __init__(self, index, word):
        self.name = f"voice-{index}"
        self._answer = ANSWERS[word]
    async def __call__(self, call, tool, facts):
        return self._answer

@hookimpl
def bascule_permission_checks(config):
    return [Voice(index, word) for index, word in enumerate(config.section(Voices).say)]
"""


@pytest.mark.req("N6.7", "N5.5")
@pytest.mark.parametrize(
    ("voices", "verdict"),
    [
        (("allow",), "allow"),
        (("silent", "allow"), "allow"),
        (("allow", "ask"), "ask"),
        (("ask", "silent"), "ask"),
        (("allow", "deny"), "deny"),
        (("deny", "ask"), "deny"),
        (("allow", "ask", "deny", "silent"), "deny"),
        (("silent",), "deny"),
        (("silent", "silent"), "deny"),
        ((), "deny"),
        (("allow", "nonsense"), "deny"),
    ],
)
async def test_deny_outweighs_ask_outweighs_allow_and_silence_is_no(strangers, settings, echo, voices, verdict):
    strangers.write("voices", VOICES)
    chosen = settings.with_(disabled_hook_plugins=("grants",), plugins={"voices": {"say": voices}})
    asked: list[str] = []

    async def no(question: str, call: ToolCall) -> bool:
        asked.append(question)
        return False

    async with Bridge(chosen, plugins=[echo], grant=True, remember=False) as bridge, bridge.run("test") as run:
        if verdict == "allow":
            assert (await run.call(*HELLO, ask=no)).output["message"] == "hello"
        else:
            with pytest.raises(ToolPermissionDenied if verdict == "deny" else ToolConfirmationDeclined):
                await run.call(*HELLO, ask=no)
        assert asked == (["Really?"] if verdict == "ask" else [])
        (step,) = await run.trace()
        assert step.decision == verdict
        assert step.decision_reason


@pytest.mark.req("N5.5", "N6.7")
async def test_a_check_that_denies_gives_its_reason_to_the_caller_and_to_the_trace(strangers, host, echo):
    strangers.install("deny-all-check")
    async with host(echo) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolPermissionDenied, match="nothing runs during the stocktaking"):
            await run.call(*HELLO)
        (step,) = await run.trace()
        assert (step.decision, step.decision_rule, step.upstream) == ("deny", "stocktaking", None)


@pytest.mark.req("N6.7")
async def test_a_check_that_is_late_denies_and_holds_up_no_other_call(strangers, settings, host, echo):
    strangers.install("late-check")
    hasty = settings.with_(limits=replace(settings.limits, check_seconds=0.2))
    async with host(echo, use=hasty) as bridge, bridge.run("test") as run:
        with pytest.raises(ToolPermissionDenied, match=r"late did not answer within 0\.2 s"):
            await run.call(*HELLO)
        (step,) = await run.trace()
        assert step.decision_rule == "late"
        assert 0.2 <= step.total < 2
    assert Settings().limits.check_seconds == 2


@pytest.mark.req("N6.7")
def test_a_check_that_raises_denies_in_words(bascule, strangers, echo):
    strangers.install("raising-check")
    call = bascule("call", *_hello(), "--dev", "--plugin", echo)
    assert call.code == 3
    assert "TOOL_PERMISSION_DENIED: mcp-fixture.echo may not run: the permission check raising failed" in call.err
    assert "error: permission check raising failed: LookupError: the list of friends is gone" in call.err
    assert "Traceback" in subprocess.run(
        [*bascule.program, "call", *_hello(), "--dev", "--plugin", str(echo), "-vv"],
        env=bascule.env, cwd=bascule.folder, capture_output=True, text=True, timeout=60, check=False,
    ).stderr  # fmt: skip


# --- many policies, one answer ----------------------------------------------------------------------------


@pytest.mark.req("A4", "N5.5")
async def test_all_policies_must_agree_for_listing_and_for_calling_alike(strangers, settings, host, echo):
    strangers.install("hide-policy")
    hiding = settings.with_(plugins={"hide_policy": {"names": ["mcp-fixture.echo"]}})
    async with host(echo, use=hiding) as bridge, bridge.run("test") as run:
        names = {tool.name for tool in await run.tools()}
        assert "mcp-fixture.echo" not in names
        assert "mcp-fixture.large" in names
        with pytest.raises(ToolNotFound):
            await run.call(*HELLO)
    async with host(echo) as bridge, bridge.run("test") as run:
        assert (await run.call(*HELLO)).output["message"] == "hello"


@pytest.mark.parametrize("answer", ["raise LookupError", "return 1", "return None"])
async def test_a_policy_that_raises_or_says_no_plain_yes_hides(strangers, host, echo, answer):
    policy = f"class P:\n    name = 'p'\n    def __call__(self, tool, caller, exposure):\n        {answer}\n"
    strangers.write("shy", offering("exposure_policies", "[P()]", HOOKIMPL + policy))
    async with host(echo) as bridge, bridge.run("test") as run:
        assert await run.tools() == []
        with pytest.raises(ToolNotFound):
            await run.call(*HELLO)


# --- observers --------------------------------------------------------------------------------------------


@pytest.mark.req("D3")
async def test_observers_are_told_everything_in_order_and_one_that_raises_stops_no_one(strangers, host, echo, settings):
    strangers.install("counting-observer")
    observer = "class O:\n    name = 'o'\n    def __call__(self, event):\n        raise LookupError\n"
    strangers.write("angry", offering("observers", "[O()]", HOOKIMPL + observer))
    async with host(echo) as bridge, bridge.run("test") as run:
        await run.call(*HELLO)
    path = settings.state / "hook-plugins" / "counting_observer" / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    kinds = [event["event"] for event in events]
    assert kinds.index("ToolsChanged") < kinds.index("CallEnded")
    (ended,) = [event for event in events if event["event"] == "CallEnded"]
    assert (ended["tool"], ended["code"]) == ("mcp-fixture.echo", None)
    assert [event["plugin_state"] for event in events if event["event"] == "HostChanged"][-1] == "disabled"


# --- a guard that is missing ------------------------------------------------------------------------------

Serve = Callable[..., Any]


@pytest.fixture
def serve(settings: Settings) -> Serve:
    """Opens the ways in of a bridge that remembers, as `bascule serve` does; ours take no part, nor a port."""

    async def served(*disabled: str, **changes: Any) -> None:
        chosen = settings.with_(disabled_hook_plugins=("sse_server", "quart_api", *disabled), **changes)
        async with Bridge(chosen, remember=True) as bridge, bridge.serve():
            pass

    return served


@pytest.mark.req("D3", "N6.7")
async def test_nothing_is_served_while_a_check_that_was_there_is_missing(strangers, serve):
    strangers.install("deny-all-check")
    await serve()
    strangers.uninstall("deny-all-check")
    for _ in range(2):  # a second start is no way around it
        with pytest.raises(HookPluginRequired, match="deny_all_check: it is not installed any more"):
            await serve()
    await serve("deny_all_check")
    await serve()  # its owner has given it up


@pytest.mark.req("D3", "N6.7")
@pytest.mark.parametrize("code", ["raise ImportError('gone')", offering("permission_checks", "1 / 0")])
async def test_nothing_is_served_while_a_check_that_was_there_fails(strangers, serve, code):
    strangers.install("hide-policy")
    await serve()
    del sys.modules["hide_policy"]
    strangers.write("hide-policy", code)
    with pytest.raises(HookPluginRequired, match="hide_policy"):
        await serve()
    await serve("hide_policy")


@pytest.mark.req("D3")
async def test_nothing_is_served_while_a_guard_offers_less_than_before(strangers, serve):
    policy = "class P:\n    name = 'p'\n    def __call__(self, *_): return True\n"
    check = "class C:\n    name = 'c'\n    async def __call__(self, *_): ...\n"
    less = offering("permission_checks", "[C()]", HOOKIMPL + check)
    strangers.write("both", less + offering("exposure_policies", "[P()]", policy))
    await serve()
    strangers.write("both", less)
    for _ in range(2):
        sys.modules.pop("both")
        with pytest.raises(HookPluginRequired, match="no longer offers"):
            await serve()
    await serve("both")  # its owner accepts it
    await serve()


@pytest.mark.req("D3")
async def test_a_one_shot_command_neither_gives_a_guard_up_nor_counts_on_one(strangers, serve, host, echo, settings):
    strangers.install("deny-all-check")
    async with host(echo):
        pass
    strangers.uninstall("deny-all-check")
    await serve()
    sys.modules.pop("deny_all_check")
    strangers.install("deny-all-check")
    await serve()
    strangers.uninstall("deny-all-check")
    async with host(echo, use=settings.with_(disabled_hook_plugins=("deny_all_check",))):
        pass
    with pytest.raises(HookPluginRequired):
        await serve()


async def test_a_required_hook_plugin_must_be_there_and_in_order(strangers, serve):
    with pytest.raises(HookPluginRequired, match="tcp: it is not installed"):
        await serve(required_hook_plugins=("tcp",))
    strangers.install("bascule-tcp-transport", "broken-on-import")
    await serve(required_hook_plugins=("tcp", "stdio_client"))
    with pytest.raises(HookPluginRequired, match="broken_on_import: it did not import"):
        await serve(required_hook_plugins=("broken_on_import",))
    await serve("broken_on_import", required_hook_plugins=("broken_on_import",))


@pytest.mark.req("D3", "D5")
def test_serve_refuses_in_words_and_hooks_shows_what_is_missing(bascule, strangers):
    strangers.install("deny-all-check")
    quiet = ("--no-hook-plugin", "sse_server", "--no-hook-plugin", "quart_api")
    serving = bascule.start("serve", "--json", *quiet)
    serving.until("serving")
    assert serving.ended(15).code == 0
    strangers.uninstall("deny-all-check")

    refused = bascule("serve", "--json", *quiet)
    assert (refused.code, refused.json["error"]["code"]) == (5, "HOOK_PLUGIN_REQUIRED")
    assert "--no-hook-plugin" in refused.json["error"]["hint"]
    shown = bascule("hooks", "--json")
    assert shown.json["missing"] == {"deny_all_check": "it is not installed any more"}
    assert "deny_all_check must guard calls, and does not" in bascule("hooks").err
    again = bascule.start("serve", "--json", *quiet, "--no-hook-plugin", "deny_all_check")
    again.until("serving")
    assert again.ended(15).code == 0
    assert bascule("hooks", "--json").json["missing"] == {}


def test_a_name_that_a_stranger_shares_with_a_built_in_guard_opens_and_closes_nothing(bascule, strangers):
    strangers.write("imitation", "")
    points = strangers.folder / "imitation-1.0.0.dist-info" / "entry_points.txt"
    quiet = ("--no-hook-plugin", "sse_server", "--no-hook-plugin", "quart_api")
    for text in ("", "[bascule.plugins]\ngrants = imitation\n"):
        points.write_text(text)
        serving = bascule.start("serve", "--json", *quiet)
        serving.until("serving")
        assert serving.ended(15).code == 0


# --- the fixtures themselves ------------------------------------------------------------------------------


@pytest.mark.req("D2", "D5")
@pytest.mark.parametrize("folder", sorted(HOOK_PLUGINS.iterdir()), ids=lambda folder: folder.name)
def test_each_fixture_is_a_distribution_as_a_third_party_would_write_it(folder: Path):
    assert (folder / "pyproject.toml").is_file()
    (module,) = folder.glob("*.py")
    assert module.stem == folder.name.replace("-", "_")
    imports = [line for line in module.read_text().splitlines() if line.startswith(("from bascule", "import bascule"))]
    assert all(line.startswith("from bascule.hookspecs import ") for line in imports)
    assert len(imports) <= 1


def test_a_transport_is_written_in_a_few_lines():
    module = HOOK_PLUGINS / "bascule-tcp-transport" / "bascule_tcp_transport.py"
    lines = [line for line in module.read_text().splitlines() if line.strip()]
    assert len(lines) <= 50, "the contract asks for more than it should"
