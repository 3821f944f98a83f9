"""Towards one MCP server: we are its client.

``session`` is the protocol without I/O, ``driver`` runs it over a channel. Hosting opens the one seam: `Upstream`.
"""

from .driver import Upstream

__all__ = ["Upstream"]
