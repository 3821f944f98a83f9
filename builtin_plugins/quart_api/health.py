"""Is it there, is it ready, what is it: and the documents that say how it is used."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from ...hookspecs import BridgeStatus
from .answers import Answer
from .operations import OPEN, READ, Operation, Request, Rest, operation, operations_of
from .shapes import Health, Readiness

_TAG = "bridge"


@operation("GET", "/healthz", _TAG, OPEN, answers=Health, example={"status": "ok"})
async def get_health(rest: Rest, request: Request) -> Answer:
    """Say that the bridge runs."""
    return Answer({"status": "ok"})


@operation(
    "GET",
    "/readyz",
    _TAG,
    OPEN,
    answers=Readiness,
    also=(503, "Something is not ready."),
    example={"ready": True, "waiting": []},
)
async def get_readiness(rest: Rest, request: Request) -> Answer:
    """Say whether every enabled plugin serves: 200, or 503 with the names of those that don't."""
    # some stand under their directory's path, which is nobody's affair who has no token
    waiting = sorted({PurePath(name).name for name in rest.bridge.readiness()})
    return Answer({"ready": not waiting, "waiting": waiting}, 503 if waiting else 200)


@operation("GET", "/api/status", _TAG, READ, answers=BridgeStatus)
async def get_status(rest: Rest, request: Request) -> Answer:
    """Show the bridge at a glance: version, environment, launcher, ways in, plugins, and what is wrong."""
    return Answer(rest.bridge.status())


GET_EVENTS = Operation(
    "get_events",
    "GET",
    "/api/events",
    _TAG,
    READ,
    "Listen to what happens, from now on.\n\n"
    "Server-sent events: `host_changed`, `tools_changed`, `call_ended`, each with a JSON object; `lost` says how many\n"
    "are missing because this reader was too slow. A comment comes every 15 seconds.",
    answers=str,
    content_type="text/event-stream",
    example='event: lost\ndata: {"count": 3}\n\n',
)


@operation("GET", "/openapi.json", _TAG, OPEN, answers=dict[str, Any])
async def get_openapi(rest: Rest, request: Request) -> Answer:
    """Describe this API in OpenAPI 3.1.

    The tools have a document of their own, `/api/tools/openapi.json`.
    """
    return rest.own.as_json


@operation("GET", "/docs", _TAG, OPEN, answers=str, content_type="text/html")
async def get_page(rest: Rest, request: Request) -> Answer:
    """Show this API as a page, which needs no other server."""
    return rest.own.as_page


OPERATIONS = operations_of(globals())
