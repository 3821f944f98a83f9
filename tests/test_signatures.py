"""Who published a plugin: ssh-keygen's word, over the listing of its files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bascule.core.bridge import Bridge
from bascule.core.settings import Settings
from bascule.hookspecs import PackageUnsafe, PluginState

pytestmark = [
    pytest.mark.req("N6.10"),
    pytest.mark.skipif(
        shutil.which("ssh-keygen") is None, reason="ssh-keygen is not there: apt-get install openssh-client"
    ),
]

PLUGIN = "mcp-fixture"


@dataclass(frozen=True)
class Publisher:
    """Someone with a key of their own."""

    name: str
    key: Path

    @property
    def allowed(self) -> str:
        """Their line in an owner's file of allowed signers."""
        return f"{self.name} {(self.key.parent / f'{self.key.name}.pub').read_text()}"

    def sign(self, folder: Path, listing: str, namespace: str = "bascule-plugin") -> None:
        argv = ["ssh-keygen", "-Y", "sign", "-n", namespace, "-f", str(self.key)]
        done = subprocess.run(argv, input=listing.encode(), capture_output=True, timeout=60, check=True)
        (folder / "plugin.sig").write_bytes(done.stdout)


@pytest.fixture
def publisher(tmp_path: Path) -> Callable[[str], Publisher]:
    def made(name: str) -> Publisher:
        key = tmp_path / f"key of {name}"
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)]
        subprocess.run(argv, timeout=60, check=True)
        return Publisher(name, key)

    return made


@pytest.fixture
def folder(plugin_copy, echo) -> Path:
    copied: Path = plugin_copy(echo)
    return copied


@pytest.fixture
def listing(bascule, folder) -> str:
    """What a publisher gets to sign, as the command prints it."""
    shown = bascule("listing", folder)
    assert shown.code == 0
    assert len(shown.out.splitlines()) == 2
    return str(shown.out)


@pytest.fixture
def trusting(settings: Settings, tmp_path: Path) -> Callable[..., Settings]:
    def made(*publishers: Publisher, **more: object) -> Settings:
        allowed = tmp_path / "allowed signers"
        allowed.write_text("".join(each.allowed for each in publishers))
        return settings.with_(environment="production", launcher="local", allowed_signers=str(allowed), **more)

    return made


async def shown(settings: Settings, folder: Path) -> str:
    async with Bridge(settings) as bridge:
        if not bridge.plugins.list():
            await bridge.plugins.install(folder)
        return (await bridge.plugins.approval(PLUGIN)).signature


async def test_a_signature_of_an_allowed_signer_is_told(publisher, trusting, folder, listing):
    alice, bob = publisher("alice@notes.example"), publisher("bob@notes.example")
    alice.sign(folder, listing)
    assert await shown(trusting(bob, alice), folder) == "valid: alice@notes.example"


async def test_one_of_somebody_else_says_nothing(publisher, trusting, folder, listing):
    alice, mallory = publisher("alice@notes.example"), publisher("mallory@elsewhere.example")
    mallory.sign(folder, listing)
    assert await shown(trusting(alice), folder) == "by no signer that you allow"


@pytest.mark.parametrize("change", ["a file", "the namespace", "the signature"])
async def test_one_that_does_not_fit_is_told(publisher, trusting, folder, listing, change):
    alice = publisher("alice@notes.example")
    alice.sign(folder, listing, "file" if change == "the namespace" else "bascule-plugin")
    if change == "a file":
        (folder / "extra.py").write_text("1")
    if change == "the signature":
        (folder / "plugin.sig").write_text("not one")
    assert (await shown(trusting(alice), folder)).startswith(("INVALID", "by no signer"))


async def test_without_signers_or_a_signature_that_is_said(trusting, settings, folder, publisher, listing):
    production = settings.with_(environment="production", launcher="local")
    assert await shown(production, folder) == "none"
    publisher("alice@notes.example").sign(folder, listing)
    assert await shown(production, folder) == "not checked: the settings name no allowed_signers"


async def test_where_a_signature_is_required_nothing_else_is_approved_or_started(
    publisher, trusting, folder, listing, approve
):
    alice = publisher("alice@notes.example")
    async with Bridge(trusting(alice, require_signature=True)) as bridge:
        await bridge.plugins.install(folder)
        with pytest.raises(PackageUnsafe, match="not signed"):
            await approve(bridge)
        alice.sign(folder, listing)
        await approve(bridge)
        assert (await bridge.plugins.enable(PLUGIN)).state is PluginState.READY
        await bridge.plugins.disable(PLUGIN)
    async with Bridge(trusting(require_signature=True)) as bridge:
        with pytest.raises(PackageUnsafe, match="not signed"):
            await bridge.plugins.enable(PLUGIN)
