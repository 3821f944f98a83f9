"""What was called, and what came of it: runs of agents, and a step for each call (N1.1, N5.5).

:class:`Traces` keeps them, for the bridge. :class:`StoredTraces` shows them, to anyone and from any process.

::

    event loop:  open, close, refuse ──► queue ──► one batch at a time
    writer:                                        redact, one transaction ──► answer: the rows are there

The queue is bounded and gives up detail (arguments, results) before it gives up anything else.
"""

from .reader import StoredTraces
from .recorder import Traces
from .records import StepEnd, StepStart

__all__ = ["StepEnd", "StepStart", "StoredTraces", "Traces"]
