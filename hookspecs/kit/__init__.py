"""The conformance kit: tells the author of a hook plugin whether it does what its hook asks for.

PYTEST_DONT_REWRITE. Three lines in a test module run the suite of a family (``pip install bascule[kit]``)::

    from bascule.hookspecs.kit import ClientTransportSuite, LinesOverTcp
    from my_transport import TcpTransport

    class TestTcp(ClientTransportSuite):
        transport, peer = TcpTransport(), LinesOverTcp

A fault is told in one line that names it. Each check runs on an event loop of its own and needs no plugin of pytest
for coroutines. Nothing here is loaded by pytest unless a test module asks for it.
"""

from __future__ import annotations

try:
    from .client_transports import ClientTransportSuite
    from .faults import Fault, NotApplicable
    from .peers import LinesOfChild, LinesOverTcp, LinesOverUnix, Peer, PeerEnd, RawEnd
    from .suite import faults
except ModuleNotFoundError as _error:
    raise ImportError(f"the conformance kit needs {_error.name}: pip install 'bascule[kit]'") from _error

__all__ = [
    "ClientTransportSuite",
    "Fault",
    "LinesOfChild",
    "LinesOverTcp",
    "LinesOverUnix",
    "NotApplicable",
    "Peer",
    "PeerEnd",
    "RawEnd",
    "faults",
]
