"""Which package a command runs, read from its arguments (N6.11): exact, or refused with the form that is."""

from __future__ import annotations

import pytest

from bascule.core.trust import PackageRun, read_run
from bascule.hookspecs import PackageUnpinned

PINNED = {
    "uvx tool==1.2": PackageRun("pypi", (("tool", "1.2"),), "tool", ()),
    "uvx tool@1.2.3 --port 1": PackageRun("pypi", (("tool", "1.2.3"),), "tool", ("--port", "1")),
    "uvx tool[cli]==1.2.post1": PackageRun("pypi", (("tool[cli]", "1.2.post1"),), "tool", ()),
    "uvx -q --from some-pkg==1.2 cmd -x": PackageRun("pypi", (("some-pkg", "1.2"),), "cmd", ("-x",)),
    "uvx --from=some==1 --with more==2 cmd": PackageRun("pypi", (("some", "1"), ("more", "2")), "cmd", ()),
    "uv tool run tool==1.2": PackageRun("pypi", (("tool", "1.2"),), "tool", ()),
    "/usr/bin/uvx tool==1.2": PackageRun("pypi", (("tool", "1.2"),), "tool", ()),
    "npx -y tool@1.2.3 /a": PackageRun("npm", (("tool", "1.2.3"),), "", ("/a",)),
    "npx --yes @scope/tool@1.2.3-beta.1": PackageRun("npm", (("@scope/tool", "1.2.3-beta.1"),), "", ()),
    "npx -y -p @scope/tool@1.2.3 cmd a": PackageRun("npm", (("@scope/tool", "1.2.3"),), "cmd", ("a",)),
    "npm exec -y -- tool@1.2.3": PackageRun("npm", (("tool", "1.2.3"),), "", ()),
}


@pytest.mark.req("N6.11")
@pytest.mark.parametrize("command", PINNED)
def test_a_pinned_command_says_which_package_runs(command: str) -> None:
    assert read_run(command.split()) == PINNED[command]


@pytest.mark.req("N6.11")
@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("uvx tool", "tool==1.2.3"),
        ("uvx tool@latest", "tool==1.2.3"),
        ("uvx tool>=1", "tool==1.2.3"),
        ("uvx tool==1.*", "tool==1.2.3"),
        ("uvx --from tool cmd", "tool==1.2.3"),
        ("uvx --from git+https://host.example/x cmd", "==1.2.3"),
        ("uvx --from a==1 --with b cmd", "b==1.2.3"),
        ("uvx", "NAME==1.2.3"),
        ("npx -y tool", "tool@1.2.3"),
        ("npx -y tool@latest", "tool@1.2.3"),
        ("npx -y tool@^1.2.3", "tool@1.2.3"),
        ("npx -y tool@1", "tool@1.2.3"),
        ("npx -y @scope/tool", "@scope/tool@1.2.3"),
        ("npx -y https://host.example/x.tgz", "@1.2.3"),
        ("npx -y", "NAME@1.2.3"),
    ],
)
def test_an_unpinned_command_is_refused_with_the_pinned_form(command: str, form: str) -> None:
    with pytest.raises(PackageUnpinned) as refusal:
        read_run(command.split())
    assert form in str(refusal.value.hint)


@pytest.mark.req("N6.11")
@pytest.mark.parametrize(
    "command",
    ["npx -c tool", "npx --call=tool", "uvx --index http://x tool==1", "uvx --python 3.9 tool==1", "uv run server.py",
     "uvx --from tool==1 ../../bin/sh", "uvx --from tool==1 /bin/sh", "npx -y -p tool@1.2.3 ../x", "npx -y -- -x@1.2.3",
     "pipx run tool", "bunx tool@1.2.3", "pnpm dlx tool@1.2.3"],
)  # fmt: skip
def test_what_can_not_be_said_before_is_refused(command: str) -> None:
    with pytest.raises(PackageUnpinned):
        read_run(command.split())


@pytest.mark.parametrize("command", ["python3 server.py", "./uvx-like x", "node index.js", "npm start"])
def test_other_commands_run_no_package(command: str) -> None:
    assert read_run(command.split()) is None


def test_the_same_packages_have_one_environment_whatever_is_called() -> None:
    one, other = read_run(["uvx", "--from", "a==1", "x"]), read_run(["uvx", "--from", "a==1", "y", "z"])
    assert one is not None
    assert other is not None
    assert one.key == other.key
