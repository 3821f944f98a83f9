"""What pytest is told, where a test module asks for it by ``pytest_plugins = ["bascule.hookspecs.kit"]``."""

from __future__ import annotations

from typing import Any

from .suite import SUBJECTS


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what the kit has looked at: a suite that was never run looks as good as one that holds."""
    if SUBJECTS:
        shown = ", ".join(f"{name} ({held} of {count} checks hold)" for name, (count, held) in SUBJECTS.items())
        terminalreporter.write_line(f"the kit's suites ran: {shown}")
