"""The suite for server transports."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exposure import Exposure
from .client_hosts import bridged
from .clients import Answer, Client
from .faults import Fault, NotApplicable, words
from .memory import DENIED, ECHO, PUBLIC, RESTRICTED, WAIT, WRITING, MemoryTransport, Spy, write_plugin
from .suite import Suite, check

if TYPE_CHECKING:
    from ...core.bridge import Bridge

Address = tuple[str, int] | Path
_REQUEST = "{method} / HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"


class Stage:
    """A bridge that serves through the transport, and what it and its plugin heard."""

    def __init__(self, transport: Any, server: MemoryTransport, spy: Spy, bridge: Bridge) -> None:
        self.transport, self.server, self.spy, self.bridge = transport, server, spy, bridge


class ServerTransportSuite(Suite):
    """Checks one server transport against a real bridge, as its clients see it.

    ``make`` makes the transport with an exposure (on a free port, or in the folder), ``client`` connects one caller to
    it: see :class:`Client`; ``McpClient`` and ``mcp_over_stream`` are ready for those that speak MCP. ``address`` says
    where it listens, ``None`` where it does not; with ``http`` the guard is looked for there. ``clients_at_once``: how
    many may be connected. ``token`` is one that the bridge knows, where clients need one.
    """

    http = False
    clients_at_once = 2
    token = ""

    def make(self, exposure: Exposure, folder: Path) -> Any:
        raise Fault("the suite does not say how to make the transport; see its docstring")

    def client(self, transport: Any) -> AbstractAsyncContextManager[Client]:
        raise Fault("the suite does not say how a client connects; see its docstring")

    def address(self, transport: Any) -> Address | None:
        return None

    def subject_name(self) -> str:
        return f"server transport of {type(self).__name__}"

    @asynccontextmanager
    async def staged(self, folder: Path, exposure: Exposure | None = None) -> AsyncIterator[Stage]:
        """A bridge with the kit's plugin, not serving yet."""
        wanted = exposure or Exposure()
        transport, server, spy = self.make(wanted, folder), MemoryTransport(), Spy()
        if transport.exposure != wanted:
            raise Fault(f"its exposure is {transport.exposure}, not the one of its settings, {wanted}")
        offers = {"client_transports": server, "permission_checks": spy, "server_transports": transport}
        async with bridged(folder, write_plugin(folder), **offers) as bridge:
            await bridge.settled()
            for name, error in bridge.failures.items():
                raise Fault(f"the kit's own plugin is not up: {name}: {error}")
            self.token = bridge.tokens.create("kit", ("call", "read", "admin"))
            yield Stage(transport, server, spy, bridge)

    @asynccontextmanager
    async def serving(self, stage: Stage) -> AsyncIterator[None]:
        """Serve; what goes wrong on the way in or out is a fault."""
        manager = stage.bridge.serve()
        opened = await self.within(manager.__aenter__(), "serve does not come to accepting")
        try:
            if stage.transport.name not in opened:
                raise Fault(f"it does not open: {stage.bridge.failures.get(stage.transport.name)}")
            yield
        except BaseException as error:
            with suppress(Exception):
                await manager.__aexit__(type(error), error, error.__traceback__)
            raise
        try:
            await self.within(manager.__aexit__(None, None, None), "it does not drain: leaving serve does not end")
        except Fault:
            raise
        except Exception as error:  # noqa: BLE001 - it is what is judged
            raise Fault(f"it raises when it is left: {words(error)}") from None

    @asynccontextmanager
    async def served(self, folder: Path, exposure: Exposure | None = None) -> AsyncIterator[Stage]:
        async with self.staged(folder, exposure) as stage, self.serving(stage):
            yield stage

    @asynccontextmanager
    async def connected(self, stage: Stage) -> AsyncIterator[Client]:
        """One client; its own troubles on the way out are not the transport's."""
        manager = self.client(stage.transport)
        try:
            client = await self.within(manager.__aenter__(), "a client can't connect")
        except OSError as error:
            raise Fault(f"entered, it does not accept: {words(error)}") from None
        try:
            yield client
        finally:
            with suppress(OSError, EOFError):
                await manager.__aexit__(None, None, None)

    async def call(self, client: Client, tool: str, text: str = "") -> Answer:
        return await self.within(client.call(tool, {"text": text}), f"a call of {tool} is not answered")

    # --- one decision ---------------------------------------------------------------------------------

    @check
    async def test_entered_means_accepting_and_calls_are_answered(self, folder: Path) -> None:
        async with self.served(folder) as stage, self.connected(stage) as client:
            for text in ("hello", "äöü 漢字 🙂", "x" * 50_000):
                answer = await self.call(client, ECHO, text)
                if answer.failed or text not in answer.text:
                    raise Fault(f"a call of {ECHO} is answered with {answer.text[:80]!r}")

    @check
    async def test_calls_at_once_get_their_own_answers(self, folder: Path) -> None:
        async with self.served(folder) as stage, self.connected(stage) as client:
            answers = await asyncio.gather(*(self.call(client, ECHO, f"<{number}>") for number in range(20)))
            for number, answer in enumerate(answers):
                if f"<{number}>" not in answer.text:
                    raise Fault(f"calls at once get the answers of others: {answer.text[:60]!r} for <{number}>")

    @check
    async def test_what_is_listed_is_what_the_exposure_allows(self, folder: Path) -> None:
        for number, (exposure, wanted) in enumerate(_exposures()):
            place = folder / str(number)
            place.mkdir()
            async with self.served(place, exposure) as stage, self.connected(stage) as client:
                listed = set(await self.within(client.tools(), "tools are not listed"))
                if listed != wanted:
                    raise Fault(
                        f"exposure is not one decision: with {exposure} it lists {sorted(listed ^ wanted)} wrongly"
                    )

    @check
    async def test_what_is_not_listed_can_not_be_called(self, folder: Path) -> None:
        async with self.served(folder) as stage, self.connected(stage) as client:
            hidden = await self.call(client, RESTRICTED)
            unknown = await self.call(client, "kit-fixture.nothing")
            if not hidden.failed:
                raise Fault("exposure is not one decision: a tool that is not listed can be called by its name")
            if not unknown.failed:
                raise Fault("a call of a tool that does not exist is answered as if it had worked")
            if hidden.text.replace(RESTRICTED, "X") != unknown.text.replace("kit-fixture.nothing", "X"):
                raise Fault("it tells a hidden tool from one that does not exist: the two answers differ")

    @check
    async def test_a_call_that_is_denied_has_failed(self, folder: Path) -> None:
        async with self.served(folder) as stage, self.connected(stage) as client:
            answer = await self.call(client, DENIED, "secret")
            if not answer.failed:
                raise Fault("a call that a permission check denied is answered as if it had worked")

    @check
    async def test_the_bridge_knows_who_calls(self, folder: Path) -> None:
        async with self.served(folder) as stage:
            for _ in range(min(2, self.clients_at_once)):
                async with self.connected(stage) as client:
                    await self.call(client, ECHO)
            for caller in stage.spy.callers:
                if caller.transport != stage.transport.name:
                    raise Fault(f"its callers carry the transport {caller.transport!r}, not {stage.transport.name!r}")
                if not (caller.platform and caller.user and caller.session):
                    raise Fault(f"its callers have no platform, user or session: {caller}")

    @check
    async def test_clients_at_once_are_told_apart(self, folder: Path) -> None:
        if self.clients_at_once < 2:
            raise NotApplicable("it takes one client at a time")
        async with self.served(folder) as stage, self.connected(stage) as one, self.connected(stage) as other:
            await asyncio.gather(self.call(one, ECHO, "one"), self.call(other, ECHO, "other"))
            if len({caller.session for caller in stage.spy.callers}) < 2:
                raise Fault("two clients at once have one session: bounds for each caller would be shared")

    # --- ends -----------------------------------------------------------------------------------------

    @check
    async def test_a_client_that_leaves_cancels_its_call(self, folder: Path) -> None:
        async with self.served(folder) as stage:
            async with self.connected(stage) as client:
                calling = asyncio.ensure_future(client.call(WAIT, {}))
                await self._under_way(stage, calling)
            with suppress(asyncio.CancelledError, Exception):
                calling.cancel()
                await calling
            await self.until(
                lambda: stage.server.cancelled, "the call of a client that has left runs on: cancel what awaits it"
            )

    @check
    async def test_leaving_ends_what_runs_and_frees_the_address(self, folder: Path) -> None:
        async with self.staged(folder) as stage:
            for _ in range(2):
                before = stage.server.cancelled
                serving = self.serving(stage)
                await serving.__aenter__()
                async with self.connected(stage) as client:
                    calling = asyncio.ensure_future(client.call(WAIT, {}))
                    await self._under_way(stage, calling)
                    await serving.__aexit__(None, None, None)
                    done, _ = await asyncio.wait({calling}, timeout=self.seconds)
                    if not done:
                        calling.cancel()
                        raise Fault(
                            "left, it leaves a client without an end: its call is neither answered nor broken off"
                        )
                    calling.exception()
                    await self.until(
                        lambda before=before: stage.server.cancelled > before,  # type: ignore[misc]
                        "left, it lets calls run on",
                    )
                    await self._refuses(stage)

    async def _under_way(self, stage: Stage, calling: asyncio.Future[Answer]) -> None:
        await self.until(lambda: stage.server.waiting or calling.done(), "a call does not reach the server")
        if calling.done():
            raise Fault(f"a call that takes its time is answered at once: {calling.exception() or calling.result()}")

    async def _refuses(self, stage: Stage) -> None:
        address = self.address(stage.transport)
        if address is None:
            return
        with suppress(OSError):
            _, writer = await _dial(address)
            writer.close()
            raise Fault("it never closes: left, it still accepts connections")

    @check
    async def test_garbage_harms_no_one_else(self, folder: Path) -> None:
        async with self.served(folder) as stage:
            address = self.address(stage.transport)
            if address is None:
                raise NotApplicable("the suite says no address")
            for garbage in (b"", b"\n", b"\0\xff\n" * 100, b"{}\n[]\nnull\n", b"{" * 5_000 + b"\n", b"x" * 3_000_000):
                try:
                    _, writer = await _dial(address)
                except OSError as error:
                    raise Fault(f"after garbage from another client, it does not accept: {words(error)}") from None
                with suppress(OSError, TimeoutError):
                    writer.write(garbage)
                    async with asyncio.timeout(1):
                        await writer.drain()
                writer.transport.abort()
                await asyncio.sleep(0)
            async with self.connected(stage) as client:
                if (await self.call(client, ECHO, "still here")).failed:
                    raise Fault("after garbage from another client, calls fail")

    # --- who may come in ------------------------------------------------------------------------------

    @check
    async def test_the_door_is_guarded(self, folder: Path) -> None:
        async with self.served(folder) as stage:
            address = self.address(stage.transport)
            if address is None:
                raise NotApplicable("the suite says no address")
            if isinstance(address, Path):
                if stat.S_IMODE(address.stat().st_mode) & 0o077:
                    raise Fault("its socket is open to other users of this machine: set the mode to 0600")
            elif not self.http:
                if not _loopback(address[0]):
                    raise Fault("it listens beyond this machine and knows no tokens; bind it to 127.0.0.1")
            else:
                await self._guarded(address)

    async def _guarded(self, address: tuple[str, int]) -> None:
        host = f"{address[0]}:{address[1]}"
        json_ = "Content-Type: application/json\r\n"
        for what, request, allowed in (
            ("a foreign Host", _http("GET", "evil.example", ""), (400, 421)),
            ("a foreign Origin", _http("POST", host, f"Origin: http://evil.example\r\n{json_}", "{}"), (403,)),
            ("another site's request", _http("GET", host, "Sec-Fetch-Site: cross-site\r\n"), (403,)),
            ("a form's content type", _http("POST", host, "Content-Type: text/plain\r\n", "{}"), (415,)),
            ("a body of a gigabyte", _http("POST", host, json_, length=1 << 30), (400, 401, 413)),
        ):
            status = await self.within(_status(address, request), f"{what} is not answered")
            if status not in allowed:
                raise Fault(f"the guard is not on: {what} is answered with {status}; use bridge.serve_http")


def _exposures() -> list[tuple[Exposure, set[str]]]:
    return [
        (Exposure(), PUBLIC),
        (Exposure(allow_restricted=True), {*PUBLIC, RESTRICTED}),
        (Exposure(frozenset({"writing"})), {WRITING}),
    ]


def _loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


async def _dial(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(address, Path):
        return await asyncio.open_unix_connection(address)
    return await asyncio.open_connection(*address)


def _http(method: str, host: str, headers: str, body: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return _REQUEST.format(method=method, host=host, headers=headers, length=size, body=body).encode()


async def _status(address: tuple[str, int], request: bytes) -> int:
    reader, writer = await _dial(address)
    try:
        writer.write(request)
        line = await reader.readline()
        return int(line.split()[1]) if line.startswith(b"HTTP/") else 0
    except OSError:
        return 0
    finally:
        writer.transport.abort()
