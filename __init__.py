"""Bascule: a plugin host and bridge for MCP (Model Context Protocol).

Plugin authors import :mod:`bascule.hookspecs`; programs that embed the bridge import
:class:`bascule.core.bridge.Bridge`. Nothing is imported here, so that each costs only itself.
"""
