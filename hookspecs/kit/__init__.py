"""The conformance kit: tells the author of a hook plugin whether it does what its hook asks for.

PYTEST_DONT_REWRITE. Three lines in a test module run the suite of a family (``pip install bascule[kit]``)::

    from bascule.hookspecs.kit import ClientTransportSuite, LinesOverTcp
    from my_transport import TcpTransport

    class TestTcp(ClientTransportSuite):
        transport, peer = TcpTransport(), LinesOverTcp

With ``pytest_plugins = ["bascule.hookspecs.kit"]`` besides, pytest sums up at its end what was looked at.
A fault is told in one line that names it. Each check runs on an event loop of its own and needs no plugin of pytest
for coroutines. Nothing here is loaded by pytest unless a test module asks for it.
"""

from __future__ import annotations

try:
    from .client_transports import ClientTransportSuite
    from .clients import Answer, Client, McpClient, mcp_over_stream
    from .converters import ConverterSuite
    from .faults import Fault, NotApplicable
    from .guards import ExposurePolicySuite, PermissionCheckSuite
    from .peers import LinesOfChild, LinesOverTcp, LinesOverUnix, Peer, PeerEnd, RawEnd
    from .ports import free_port
    from .reporting import pytest_terminal_summary
    from .server_transports import ServerTransportSuite
    from .suite import faults
except ModuleNotFoundError as _error:
    raise ImportError(f"the conformance kit needs {_error.name}: pip install 'bascule[kit]'") from _error

__all__ = [
    "Answer",
    "Client",
    "ClientTransportSuite",
    "ConverterSuite",
    "ExposurePolicySuite",
    "Fault",
    "LinesOfChild",
    "LinesOverTcp",
    "LinesOverUnix",
    "McpClient",
    "NotApplicable",
    "Peer",
    "PeerEnd",
    "PermissionCheckSuite",
    "RawEnd",
    "ServerTransportSuite",
    "faults",
    "free_port",
    "mcp_over_stream",
    "pytest_terminal_summary",
]
