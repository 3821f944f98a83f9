"""The client's side of a session, without a server: what answers mean for requests that are gone."""

from __future__ import annotations

import json

import pytest

from bascule.core.upstream.session import Session
from bascule.hookspecs import Limits, McpProtocolError


def session() -> Session:
    return Session(Limits(), lambda: 0.0)


def answer(request_id: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": {"content": []}}).encode()


@pytest.mark.req("N6.8")
def test_a_crowd_that_leaves_its_calls_behind_makes_no_fault_of_their_late_answers() -> None:
    """A client may go while thousands of its calls wait for a slow server: each of them is answered in the end."""
    calls = session()
    numbers = [calls.call("slow", b"{}")[0] for _ in range(20_000)]
    for number in numbers:
        assert calls.cancel(number, "the caller no longer waits") is not None
    for number in numbers:
        assert not calls.receive(answer(number))


def test_a_second_answer_is_a_fault_also_after_a_cancel() -> None:
    calls = session()
    number, _ = calls.call("slow", b"{}")
    calls.cancel(number, "the caller no longer waits")
    calls.receive(answer(number))
    with pytest.raises(McpProtocolError, match="not open"):
        calls.receive(answer(number))
