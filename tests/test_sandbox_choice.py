"""Which launcher starts a server, what it may reach, and what its executable needs."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sandbox import copied, hosting, interpreter, need, reachable, settings_for

from bascule.builtin_plugins.sandbox import job_object, seatbelt, seccomp
from bascule.core.bridge import Bridge
from bascule.core.demands import Demands, OwnersDemands, request, widened
from bascule.core.isolation import Keepers
from bascule.core.needs import Needs, unshimmed
from bascule.core.settings import Settings
from bascule.hookspecs import (
    BasculeError,
    Isolation,
    IsolationRequest,
    LaunchPlan,
    Limits,
    ManifestInvalid,
    Network,
    PluginIsolationUnavailable,
    SettingsInvalid,
    TrustApprovalRequired,
)


class Offered:
    """A launcher as far as it is chosen."""

    def __init__(self, name: str, isolation: Isolation, missing: str | None = None, untested: bool = False) -> None:
        self.name, self.isolation, self.untested = name, isolation, untested
        self.asked = 0
        self._missing = missing

    def available(self) -> str | None:
        self.asked += 1
        return self._missing

    async def launch(self, plan: LaunchPlan) -> Any:
        raise NotImplementedError


def choose(*offered: Offered, require: str | None = None, **settings: Any) -> str:
    """Who would start a plugin."""
    manifest: Any = SimpleNamespace(id="fx", isolation=Demands(require=require), directory=Path("/plugin"))
    launchers: Any = {each.name: each for each in offered}
    return Keepers(Settings().with_(**settings), launchers, Path("/state")).chosen(manifest).launcher.name


FULL, REDUCED = Offered("a", Isolation.FULL), Offered("b", Isolation.REDUCED)
LOCAL, BROKEN = Offered("local", Isolation.NONE), Offered("c", Isolation.FULL, "no namespaces here")
UNTESTED = Offered("d", Isolation.FULL, untested=True)
DEVELOPMENT = {"environment": "development"}


@pytest.mark.req("N6.10")
@pytest.mark.parametrize(
    ("offered", "more", "chosen"),
    [
        ((LOCAL, REDUCED, FULL), {}, "a"),
        ((LOCAL, REDUCED, BROKEN), {}, "b"),
        ((LOCAL, REDUCED, FULL), DEVELOPMENT, "local"),
        ((LOCAL, REDUCED, FULL), {**DEVELOPMENT, "require": "reduced"}, "a"),
        ((LOCAL, REDUCED), {**DEVELOPMENT, "require": "reduced"}, "b"),
        ((LOCAL, REDUCED, FULL), {"launcher": "b"}, "b"),
        ((LOCAL, REDUCED, FULL), {"launchers": {"fx": "local"}}, "local"),
        ((UNTESTED, REDUCED), {}, "b"),
        ((UNTESTED, REDUCED), {"allow_untested_launchers": True}, "d"),
    ],
)
def test_auto_is_the_best_that_works_and_a_name_is_a_name(offered: Any, more: dict[str, Any], chosen: str) -> None:
    assert choose(*offered, **more) == chosen


@pytest.mark.req("N6.10", "N6.9")
@pytest.mark.parametrize(
    ("offered", "more", "error", "words"),
    [
        ((LOCAL, BROKEN), {}, TrustApprovalRequired, "no namespaces here"),
        ((LOCAL, REDUCED), {"require": "full"}, PluginIsolationUnavailable, "requires isolation full"),
        ((LOCAL, BROKEN), {**DEVELOPMENT, "require": "reduced"}, PluginIsolationUnavailable, "no namespaces here"),
        ((LOCAL,), {"launcher": "local", "require": "reduced"}, PluginIsolationUnavailable, "'local' gives none"),
        ((BROKEN,), {"launcher": "c"}, PluginIsolationUnavailable, "no namespaces here"),
        ((UNTESTED,), {"launcher": "d"}, PluginIsolationUnavailable, "allow_untested_launchers"),
        ((LOCAL,), {"launcher": "x"}, SettingsInvalid, "no launcher 'x'"),
        (
            (LOCAL, FULL),
            {"launcher": "local", "isolation": {"fx": {"require": "full"}}},
            PluginIsolationUnavailable,
            "requires isolation full",
        ),
    ],
)
def test_what_is_required_is_never_replaced_by_less(
    offered: Any, more: dict[str, Any], error: type[BasculeError], words: str
) -> None:
    with pytest.raises(error) as refusal:
        choose(*offered, **more)
    assert words in str(refusal.value)
    assert refusal.value.hint


def test_a_launcher_is_asked_once_and_one_that_fails_to_answer_does_not_work() -> None:
    offered = Offered("a", Isolation.FULL)

    class Raises(Offered):
        def available(self) -> str | None:
            raise RuntimeError("it broke")

    keepers = Keepers(Settings(), {"a": offered, "r": Raises("r", Isolation.FULL)}, Path("/state"))
    assert keepers.probe() == {"a": None, "r": "RuntimeError: it broke"}
    keepers.probe()
    assert offered.asked == 1


# --- what is asked for -----------------------------------------------------------------------------------


def asked(manifest: dict[str, Any], owner: dict[str, Any]) -> IsolationRequest:
    return request(Demands(**manifest), OwnersDemands(**owner), Path("/p"), Path("/s/data/p"), Path("/s"))


def test_without_a_word_a_server_has_no_network_and_its_own_data() -> None:
    kept = asked({}, {})
    assert (kept.network, kept.require) == (Network.NONE, Isolation.NONE)
    assert (kept.writable, kept.data, kept.readable) == ((Path("/s/data/p"),), Path("/s/data/p"), ())
    assert kept.file_mb == 64


def test_the_owners_words_hold_and_what_they_add_is_named() -> None:
    manifest = {"network": "any", "writable": ["data", "cache"], "memory_mb": 2000, "require": "reduced"}
    narrow = {"network": "none", "writable": ["/w"], "memory_mb": 100, "require": "full"}
    kept = asked(manifest, narrow)
    assert (kept.network, kept.memory_mb, kept.require) == (Network.NONE, 100, Isolation.FULL)
    assert (kept.writable, kept.data) == ((Path("/w"),), None)
    assert asked(manifest, {"require": "reduced"}).writable == (Path("/s/data/p"), Path("/p/cache"))

    def added(owner: dict[str, Any]) -> Any:
        return widened(Demands(**manifest), OwnersDemands(**owner), Path("/p"), Path("/s/data/p"))

    assert added({}) == []
    assert added({"network": "none", "memory_mb": 50}) == []
    assert added({"memory_mb": 4000, "readable": ["/x"], "writable": ["data", "/y"]}) == [
        *("memory_mb", "readable", "writable")
    ]


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ({"network": "some"}, "isolation.network"),
        ({"require": "none"}, "isolation.require"),
        ({"writable": ["../up"]}, "isolation.writable[0]"),
        ({"writable": ["/etc"]}, "isolation.writable[0]"),
        ({"writable": ["."]}, "isolation.writable[0]"),
        ({"memory_mb": "1"}, "isolation.memory_mb"),
        ({"memory_mb": 1}, "isolation.memory_mb"),
        ({"readable": ["/"]}, "isolation.readable"),
        ({"networks": "any"}, "isolation.networks"),
    ],
)
async def test_a_manifest_that_asks_for_what_it_may_not_is_refused(
    plugin_copy: Any, echo: Path, settings: Settings, written: dict[str, Any], field: str
) -> None:
    folder = plugin_copy(echo, lambda manifest: manifest.update(isolation=written))
    async with Bridge(settings) as bridge:
        with pytest.raises(ManifestInvalid) as refusal:
            await bridge.plugins.install(folder)
    assert [problem["field"] for problem in refusal.value.problems] == [field]
    assert all(problem["hint"] for problem in refusal.value.problems)


# --- what an executable needs ---------------------------------------------------------------------------


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """Makes an executable file in the test's own folder."""

    def made(place: str, text: str = "\x7fELF", link: str | None = None) -> Path:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if link is not None:
            path.symlink_to(tmp_path / link)
        else:
            path.write_text(text)
            path.chmod(0o755)
        return path

    return made


def needs(tmp_path: Path, executable: Path, search: str | None = None) -> set[str]:
    found = Needs((tmp_path / "home", tmp_path / "home" / ".local" / "state"), search).of(executable)
    return {str(place.relative_to(tmp_path)) for place in found}


def test_an_environment_brings_the_installation_that_it_was_made_from(tmp_path: Path, install: Any) -> None:
    base = install("opt/python/bin/python3")
    (tmp_path / "opt/python/lib").mkdir()
    install("home/venv/bin/python", link="opt/python/bin/python3")
    (tmp_path / "home/venv/pyvenv.cfg").write_text(f"home = {base.parent}\nversion = 3\n")
    script = install("home/venv/bin/serve", first_lines(tmp_path / "home/venv/bin/python"))
    assert needs(tmp_path, script) == {"opt/python", "home/venv"}


@pytest.mark.parametrize("quote", ['"{}"'.format, shlex.quote], ids=["pip", "uv"])
def test_an_interpreter_in_an_odd_place_is_found_by_what_the_shell_is_told(
    tmp_path: Path, install: Any, quote: Callable[[str], str]
) -> None:
    install("opt/a python/bin/python3")
    (tmp_path / "opt/a python/lib").mkdir()
    script = install("home/.local/bin/serve", first_lines(tmp_path / "opt/a python/bin/python3", quote))
    assert needs(tmp_path, script) == {"opt/a python", "home/.local/bin/serve"}
    broken = install("home/.local/bin/broken", "#!/bin/sh\n'''exec' \"/opt\n")
    assert needs(tmp_path, broken) == {"home/.local/bin/broken"}


def first_lines(interpreter: Path, quote: Callable[[str], str] = shlex.quote) -> str:
    """As installers write them: the kernel ends the name of an interpreter at the first blank."""
    if " " not in str(interpreter):
        return f"#!{interpreter}\n"
    return f"#!/bin/sh\n'''exec' {quote(str(interpreter))} \"$0\" \"$@\"\n' '''\n"


def test_a_link_in_a_home_shows_neither_the_home_nor_the_state_beside_it(tmp_path: Path, install: Any) -> None:
    install("home/.local/share/tools/x/bin/x")
    (tmp_path / "home/.local/share/tools/x/pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "home/.local/lib").mkdir()
    link = install("home/.local/bin/x", link="home/.local/share/tools/x/bin/x")
    assert needs(tmp_path, link) == {"home/.local/bin/x", "home/.local/share/tools/x"}
    loose = install("home/downloads/server")
    assert needs(tmp_path, loose) == {"home/downloads/server"}
    beside = install("home/bin/tool")
    (tmp_path / "home/lib").mkdir()
    assert needs(tmp_path, beside) == {"home/bin/tool"}


def test_a_node_program_brings_its_modules_and_its_node(tmp_path: Path, install: Any) -> None:
    install("node/bin/node")
    (tmp_path / "node/include").mkdir()
    (tmp_path / "node/lib").mkdir()
    install("app/node_modules/server/dist/index.js", "#!/usr/bin/env node\n")
    link = install("app/node_modules/.bin/server", link="app/node_modules/server/dist/index.js")
    assert needs(tmp_path, link, str(tmp_path / "node/bin")) == {"app/node_modules", "node"}


def test_a_system_program_needs_nothing_more() -> None:
    assert Needs((), None).of(Path("/bin/sh")) == ()


def test_links_that_lead_in_circles_end(tmp_path: Path, install: Any) -> None:
    install("a", link="b")
    install("b", link="a")
    assert needs(tmp_path, tmp_path / "a") <= {"a", "b"}


def test_a_version_managers_shim_stands_for_a_program(tmp_path: Path, install: Any) -> None:
    shim = install(".pyenv/shims/python3", "#!/usr/bin/env bash\n")
    assert unshimmed(shim, {}) == shim
    old = install(".pyenv/versions/3.11.7/bin/python3")
    new = install(".pyenv/versions/3.12.1/bin/python3")
    (tmp_path / ".pyenv/version").write_text("3.11.7\n")
    assert unshimmed(shim, {}) == old
    assert unshimmed(shim, {"PYENV_VERSION": "3.12"}) == new
    assert unshimmed(shim, {"PYENV_VERSION": "../../evil"}) == old
    assert unshimmed(old, {}) == old


# --- what the launchers make of it ------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("by_path", [True, False])
def test_the_filter_is_a_program_that_ends(machine: str, by_path: bool) -> None:
    code = seccomp.program(sockets=seccomp.families(True), by_path=by_path, machine=machine)
    assert len(code) % 8 == 0
    count = len(code) // 8
    for at in range(count):
        operation, met, otherwise = code[8 * at], code[8 * at + 2], code[8 * at + 3]
        operation |= code[8 * at + 1] << 8
        if operation & 0x07 == 0x05:  # BPF_JMP
            assert at + 1 + max(met, otherwise) < count
    assert code[-8:-6] == b"\x06\x00"


def test_the_numbers_of_system_calls_are_the_kernels_own() -> None:
    headers = {
        "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    }
    present = {machine: path for machine, path in headers.items() if path.exists()}
    if not present:
        pytest.skip("NOT TESTED HERE: the kernel's headers are not installed (package linux-libc-dev)")
    for machine, path in present.items():
        told = {}
        for line in path.read_text().splitlines():
            words = line.replace("__NR3264_", "__NR_").split()
            if len(words) == 3 and words[0] == "#define" and words[1].startswith("__NR_") and words[2].isdigit():
                told[words[1].removeprefix("__NR_")] = int(words[2])
        numbers = seccomp._MACHINES[machine][1]
        assert {name: told[name] for name in numbers if name in told} == {
            name: number for name, number in numbers.items() if name in told
        }


def test_the_untested_launchers_say_where_they_belong_and_write_what_they_would_do() -> None:
    isolation = IsolationRequest(
        network=Network.NONE,
        data=Path("/d"),
        writable=(Path("/d"),),
        readable=(Path('/odd"name'),),
        hidden=(Path("/s"),),
    )
    plan = LaunchPlan(Path("/bin/x"), ("/bin/x",), Path("/"), {}, Limits(), isolation)
    assert len(job_object.limits(isolation)) == 144  # sizeof(JOBOBJECT_EXTENDED_LIMIT_INFORMATION) on 64 bits
    text = seatbelt.profile(plan)
    assert "(deny default)" in text
    assert text.index('(deny file-read* file-write* (subpath "/s"))') < text.index('file-write* (subpath "/d")')
    assert "network" not in text
    if sys.platform == "linux":
        assert job_object.JobObjectLauncher().available()
        assert seatbelt.SeatbeltLauncher().available()


# --- on the machine ---------------------------------------------------------------------------------------


@pytest.mark.req("N6.10")
@pytest.mark.parametrize("launcher", ["bubblewrap", "landlock"])
async def test_a_granted_network_is_the_network_and_nothing_else(launcher: str) -> None:
    need(launcher)
    with reachable() as folder:
        (plugin,) = copied(folder, "misdeeds")
        settings = settings_for(launcher, folder, isolation={"fx-misdeeds": {"network": "any", "memory_mb": 300}})
        facts = {"tcp": 1, "unix": str(folder / "s"), "abstract": "x"}
        async with hosting(settings, plugin) as bridge, bridge.run("test") as run:
            view = bridge.plugins.get("fx-misdeeds")
            assert (view.launcher, view.isolation) == (launcher, str(_tier(launcher)))

            async def tried(deed: str) -> str:
                output: Any = (await run.call("fx-misdeeds.attempt", {"deed": deed, "facts": facts})).output
                assert not output["done"], output
                return str(output["why"])

            assert "ConnectionRefusedError" in await tried("connect_by_tcp")  # it was let through, and no one listens
            assert "Address family not supported" in await tried("connect_to_a_socket_file")
            assert "Address family not supported" in await tried("open_netlink")
            assert "MemoryError" in await tried("take_much_memory")


def _tier(launcher: str) -> Isolation:
    return Isolation.FULL if launcher == "bubblewrap" else Isolation.REDUCED


@pytest.mark.req("N6.10")
@pytest.mark.parametrize("launcher", ["bubblewrap", "landlock"])
async def test_the_state_directory_stays_out_of_sight_wherever_it_lies(launcher: str) -> None:
    need(launcher)
    with reachable() as folder:
        (plugin,) = copied(folder, "misdeeds")
        settings = settings_for(launcher, folder, state=plugin / "state")
        (plugin / "state").mkdir(mode=0o755)
        (plugin / "state" / "planted").write_text("secret")
        async with hosting(settings, plugin) as bridge, bridge.run("test") as run:
            if launcher == "landlock":  # it knows no exceptions, so it refuses
                assert "no server may see" in str(bridge.failures["fx-misdeeds"])
                return
            facts = {"state": str(plugin / "state")}
            for deed, done in (("read_state", False), ("may_keep_data", True)):
                output: Any = (await run.call("fx-misdeeds.attempt", {"deed": deed, "facts": facts})).output
                assert output["done"] is done, output


@pytest.mark.req("N6.10")
async def test_a_plugin_below_a_directory_that_is_roots_alone_works_in_full_isolation() -> None:
    need("bubblewrap")
    with reachable() as folder:
        (folder / "closed").mkdir(mode=0o700)
        (plugin,) = copied(folder / "closed", "mcp-echo")
        async with hosting(settings_for("bubblewrap", folder / "closed"), plugin) as bridge, bridge.run("test") as run:
            assert not bridge.failures, bridge.failures
            server: Any = (await run.call("mcp-fixture.environment")).output
            assert server["environment"]["HOME"] == str(folder / "closed" / "state" / "data" / "mcp-fixture")
            assert not {"USER", "LOGNAME", "SHELL"} & server["environment"].keys()
            owner = (folder / "closed" / "state" / "data" / "mcp-fixture").stat().st_uid
            assert owner in (range(60_578, 61_184) if os.geteuid() == 0 else [os.geteuid()])


def test_check_says_what_each_launcher_lacks_and_what_a_server_would_reach(bascule: Any, echo: Path) -> None:
    python = interpreter("bubblewrap")
    bascule.settings(f"executables: {{python3: {json.dumps(str(python))}}}\n")
    shown = bascule("check", echo, "--json").json
    assert {"bubblewrap", "landlock", "local", "seatbelt", "job_object"} <= shown["launchers"].keys()
    assert shown["launchers"]["local"] == "works"
    assert "a part of" in shown["launchers"]["job_object"] or "no one has seen" in shown["launchers"]["job_object"]
    if shown["isolation"] != "none":
        assert shown["sandbox"]["network"] == "none"
        assert str(echo) in shown["sandbox"]["reads"]
