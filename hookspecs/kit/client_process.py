"""Client transports: what they say of the process that they start, and that they start no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..launchers import LaunchRequest
from .client_base import ClientTransportBase, local_launcher
from .connection import Heard, Launches
from .faults import Fault, NotApplicable
from .messages import numbered
from .suite import check
from .watch import Belongings


class ProcessChecks(ClientTransportBase):
    """The preview, the launch, stderr."""

    @check
    async def test_its_backend_refuses_unknown_keys(self, folder: Path) -> None:
        async with self.served(folder) as peer:
            good = dict(self.backend(peer))
            self.opener.model(peer)
        try:
            self.opener.transport.backend_model.model_validate({**good, "no_such_key_": 1})
        except ValueError:
            return
        raise Fault("its backend_model takes unknown keys: a slip in a manifest goes unseen; derive it from Section")

    @check
    async def test_its_preview_says_what_would_start_and_starts_nothing(self, folder: Path) -> None:
        transport = self.opener.transport
        async with self.served(folder) as peer:
            backend = self.opener.model(peer)
            before = Belongings.here()
            first, second = (transport.preview(backend, folder) for _ in range(2))
            if left := before.left():
                raise Fault(f"its preview starts something: {left}")
            if first != second:
                raise Fault("its preview says another thing each time")
            if transport.starts_process != isinstance(first, LaunchRequest):
                raise Fault(
                    f"starts_process is {transport.starts_process} and its preview returns {type(first).__name__}: "
                    "a LaunchRequest where it starts a process, None where it starts none"
                )

    @check
    async def test_it_starts_what_its_preview_says_and_nothing_else(self, folder: Path) -> None:
        transport = self.opener.transport
        async with self.served(folder) as peer:
            backend = self.opener.model(peer)
            launches = Launches(local_launcher, self.limits)
            context = self.opener.context(folder, self.limits, launches, Heard())
            before = Belongings.here().children
            async with transport.connect(backend, context):
                await self.within(peer.accept(), "connect returned, and no connection reached the server")
                started = Belongings.here().children - before - {child.pid for child in launches.children}
                requests = list(launches.requests)
            await launches.end()
            if started:
                raise Fault("it starts a process by itself: context.launch alone passes the owner's gate and launcher")
            if requests != ([transport.preview(backend, folder)] if transport.starts_process else []):
                raise Fault("it launches something else than its preview says")

    @check
    async def test_a_flood_on_stderr_is_told_aside_and_holds_nothing_up(self, folder: Path) -> None:
        heard = Heard()
        messages = numbered(20)
        async with self.served(folder) as peer, self.opened(peer, folder, heard=heard) as it:
            if not hasattr(it.end, "complain"):
                raise NotApplicable("it has no server whose stderr it could read")

            async def complain() -> None:
                for _ in range(16):
                    await it.end.complain(b"e" * 65_536)  # type: ignore[attr-defined]
                await it.end.complain(b"the last words")  # type: ignore[attr-defined]
                for message in messages:
                    await it.end.send(message)

            await it.receive(messages, asyncio.ensure_future(complain()))
            await self.until(
                lambda: heard.errors.endswith(b"the last words"),
                "what the server writes to stderr does not reach context.diagnostics",
            )
