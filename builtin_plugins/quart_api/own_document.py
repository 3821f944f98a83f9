"""The API's own document, for programs and for people: made when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ...hookspecs import BridgeView
from .answers import Answer, encode
from .openapi import api_document
from .operations import Operation
from .page import page


class OwnDocument:
    """What ``operations`` are; it stays as it is while the bridge runs."""

    def __init__(self, operations: Sequence[Operation], bridge: BridgeView) -> None:
        self._operations = operations
        self._bridge = bridge

    @cached_property
    def as_json(self) -> Answer:
        return Answer(encode(self._document))

    @cached_property
    def as_page(self) -> Answer:
        return page(self._document)

    @cached_property
    def _document(self) -> dict[str, Any]:
        return api_document(self._operations, self._bridge.status().version, sorted(self._bridge.converters))
