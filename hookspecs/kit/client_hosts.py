"""Client transports: a real bridge hosts a server through it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bridge import PluginState
from ..errors import BasculeError
from ..markers import hookimpl
from .client_base import ClientTransportBase
from .faults import Fault, words
from .played import ECHO, PLUGIN, PlayedServer, write_plugin
from .suite import check

if TYPE_CHECKING:
    from ...core.bridge import Bridge


class Offers:
    """A hook plugin that offers what is under test, and nothing else."""

    def __init__(self, **offers: Any) -> None:
        for family, offer in offers.items():
            setattr(self, f"bascule_{family}", hookimpl(specname=f"bascule_{family}")(_returning(offer)))


def _returning(offer: Any) -> Any:
    def offered() -> list[Any]:
        return [offer]

    return offered


@asynccontextmanager
async def bridged(folder: Path, *plugins: Path, sections: Any = None, **offers: Any) -> AsyncIterator[Bridge]:
    """A bridge with a state of its own, on which ``offers`` (by family) are there beside what is installed."""
    from ...core.bridge import Bridge, lineup_for

    plain = Bridge().settings
    ways_in = [
        plugin.name for plugin in lineup_for(plain).hook_plugins if plugin.offers.get("bascule_server_transports")
    ]
    settings = plain.with_(
        disabled_hook_plugins=tuple(ways_in),
        environment="development",
        launcher="local",
        state=folder / "state",
        executables={"python3": Path(sys.executable)},
        plugins=sections or {},
    )
    subject = {"under_test": Offers(**offers)} if offers else {}
    async with Bridge(settings, plugins=plugins, grant=True, remember=False, hook_plugins=subject) as bridge:
        yield bridge


class HostChecks(ClientTransportBase):
    """The whole way: discovery, handshake, calls, loss, restart."""

    @check
    async def test_a_bridge_hosts_a_server_through_it(self, folder: Path) -> None:
        transport = self.opener.transport
        async with self.served(folder) as peer, PlayedServer().on(peer) as server:
            plugin = write_plugin(folder, transport.name, self.backend(peer))
            async with bridged(folder, plugin, client_transports=transport) as bridge:
                await self.within(bridge.settled(), "the bridge waits for the server for ever")
                for name, error in bridge.failures.items():
                    raise Fault(f"a bridge can't host a server through it: {name}: {error}")
                await self._calls(bridge)
                await server.ends[-1].close()
                await self.until(
                    lambda: bridge.plugins.get(PLUGIN).state is PluginState.ERROR,
                    "it swallows the end: the server has gone, and the bridge is not told",
                )
                try:
                    await self.within(bridge.plugins.restart(PLUGIN), "it does not come up")
                except (Fault, BasculeError) as error:
                    raise Fault(f"the server can't be started again through it: {error}") from None
                await self._calls(bridge)

    async def _calls(self, bridge: Bridge) -> None:
        async with bridge.run("kit") as run:
            calls = [run.call(ECHO, {"text": f"call {number}"}) for number in range(30)]
            try:
                results = await self.within(asyncio.gather(*calls), "calls through it are not answered")
            except Fault:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the transport is what is new here
                raise Fault(f"a call through it fails: {words(error)}") from None
        if [result.text for result in results] != [f"call {number}" for number in range(30)]:
            raise Fault("calls through it get the answers of others")
