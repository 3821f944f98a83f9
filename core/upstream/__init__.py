"""Towards one MCP server: we are its client.

``session`` is the protocol without I/O, ``driver`` runs it over a channel for those who wait (``waiters``). Hosting
opens the one seam: `Upstream`.
"""

from .driver import Upstream
from .waiters import OutgoingCall

__all__ = ["OutgoingCall", "Upstream"]
