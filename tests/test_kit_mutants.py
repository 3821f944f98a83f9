"""The conformance kit catches every way in which a client transport can be wrong, and names it."""

from __future__ import annotations

import pytest
from kit_mutants import MUTANTS, tcp

from bascule.hookspecs.kit import ClientTransportSuite, LinesOverTcp
from bascule.hookspecs.kit.suite import run

pytestmark = pytest.mark.slow


class Suite(ClientTransportSuite):
    peer = LinesOverTcp


@pytest.mark.req("D5")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_transport_is_caught_and_its_fault_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, check, told, seconds = MUTANTS[name]
    monkeypatch.delenv("KIT_MUTANT", raising=False)
    suite = type(name, (Suite,), {"transport": kind(), "seconds": seconds})
    with pytest.raises(AssertionError, match=told):
        run(suite(), getattr(suite, check).scenario)


@pytest.mark.parametrize("check", sorted({check for _, check, _, _ in MUTANTS.values()}))
def test_the_right_transport_passes_the_same_checks(check: str) -> None:
    suite = type("Right", (Suite,), {"transport": tcp.TcpTransport()})
    run(suite(), getattr(suite, check).scenario)
