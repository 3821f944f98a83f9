"""Towards one MCP client: we are its server, over whatever channel it came by."""

from .driver import Downstream

__all__ = ["Downstream"]
