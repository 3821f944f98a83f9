"""The suite for client transports."""

from __future__ import annotations

from .client_hosts import HostChecks
from .client_life import CancellationChecks, EndChecks, PressureChecks
from .client_messages import MessageChecks
from .client_process import ProcessChecks


class ClientTransportSuite(MessageChecks, EndChecks, CancellationChecks, PressureChecks, ProcessChecks, HostChecks):
    """Checks one client transport against a server that the kit plays.

    ``transport`` is the transport, ``peer`` the class of the server: ``LinesOverTcp``, ``LinesOverUnix``,
    ``LinesOfChild``, or one of your own where the framing is another (see :class:`Peer`). Override ``backend``
    where the manifest's keys are not the peer's. ``one_at_a_time`` says that the peer takes no second connection.

    Example::

        class TestTcp(ClientTransportSuite):
            transport, peer = TcpTransport(), LinesOverTcp
    """
