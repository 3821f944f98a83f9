"""The server transport ``rest``: the whole life of plugins, tools, runs and traces over HTTP (N7, D5).

Quart serves everything but calls, live events (:mod:`.front`) and what anyone may ask (:mod:`.open_paths`), which are
bare ASGI before it: a framework on a call's path would cost ten times what the call itself does. It is loaded when it
is first needed (:mod:`.late`). Every operation stands once, with its handler, its scopes, its
shapes and its errors; ``/openapi.json`` and ``/docs`` are made from that.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field

from ...hookspecs import (
    Bind,
    BridgeView,
    Config,
    Directions,
    Exposure,
    HookPluginBroken,
    HttpPolicy,
    Section,
    ServerTransport,
    hookimpl,
)

_OPEN = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json"})
_ANY_TOKEN = {"/": ""}  # which scopes an operation takes stands beside it


def _either(camel: str, snake: str) -> AliasChoices:
    return AliasChoices(camel, snake)


class RestSettings(Section):
    """The section ``quart_api``; names as in the section ``sse_server``, but everything is exposed by default."""

    port: Annotated[int, Field(ge=1, le=65_535, strict=True)] = 7860
    bind: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    tool_groups: Annotated[
        frozenset[str], Field(default_factory=frozenset, validation_alias=_either("toolGroups", "tool_groups"))
    ]
    allow_restricted: Annotated[
        bool, Field(strict=True, validation_alias=_either("allowRestricted", "allow_restricted"))
    ] = True
    allowed_hosts: Annotated[
        frozenset[str], Field(default_factory=frozenset, validation_alias=_either("allowedHosts", "allowed_hosts"))
    ]
    allowed_origins: Annotated[
        frozenset[str], Field(default_factory=frozenset, validation_alias=_either("allowedOrigins", "allowed_origins"))
    ]


class RestServer:
    """One address. ``plugin_roots`` are where plugins may be installed from."""

    name = "rest"

    def __init__(self, settings: RestSettings, plugin_roots: tuple[Path, ...], state: Path) -> None:
        self.settings = settings
        self.exposure = Exposure(settings.tool_groups, settings.allow_restricted)
        self.directions = directions(settings, state)
        self._plugin_roots = plugin_roots

    @asynccontextmanager
    async def serve(self, bridge: BridgeView) -> AsyncIterator[None]:
        """Listen; on the way out streams end first, then what was begun for someone is awaited.

        Raises ``HookPluginBroken`` where Quart is not installed, which would else show at the first request for it.
        """
        if find_spec("quart") is None:
            hint = "install it, or turn the hook plugin quart_api off"
            raise HookPluginBroken("the REST API runs on Quart, which is not installed here", hint=hint)
        from .app import build

        settings = self.settings
        app = build(bridge, self._plugin_roots)
        policy = HttpPolicy(
            scopes=_ANY_TOKEN,
            open_paths=_OPEN,
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            tokens_required=True,
        )
        async with bridge.serve_http(app, Bind(settings.bind, settings.port), policy):
            bridge.announce(address(settings))
            try:
                yield
            finally:
                await app.close()


def address(settings: RestSettings) -> str:
    """The URL of what is bound; the guard takes its host, also that of every interface, which leads to this machine."""
    host = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
    return f"http://{host}:{settings.port}"


def directions(settings: RestSettings, state: Path) -> Directions:
    """Where the documents are, and how the owner makes the first call."""
    wildcard = settings.bind in ("0.0.0.0", "::")  # noqa: S104 - nobody calls it by that name from elsewhere
    url = f"http://{min(settings.allowed_hosts)}" if wildcard and settings.allowed_hosts else address(settings)
    secret = f"$(cat {shlex.quote(str(state / 'owner.token'))})"
    command = f'curl -H "Authorization: Bearer {secret}" {url}/api/tools'
    return Directions(url, {"documents": f"{url}/docs", "curl": command})


@hookimpl
def bascule_server_transports(config: Config) -> Iterable[ServerTransport]:
    """Offer ``rest``."""
    return [RestServer(config.section(RestSettings), config.plugin_roots, config.state)]
