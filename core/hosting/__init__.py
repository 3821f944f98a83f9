"""One plugin's running side: its process, its session, its state."""

from .diagnostics import HostDiagnostics
from .host import Host, HostSpec

__all__ = ["Host", "HostDiagnostics", "HostSpec"]
