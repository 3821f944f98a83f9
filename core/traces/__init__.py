"""What was called, and what came of it: runs and their steps, in the state directory's SQLite file.

``recorder`` writes what ``rows`` has redacted, ``reader`` reads, ``upkeep`` keeps the file small. A step's row is
written before its call is sent.
"""

from .reader import USES_KEPT
from .recorder import Traces
from .rows import StepEnd, StepFacts, StepStart, packed

__all__ = ["USES_KEPT", "StepEnd", "StepFacts", "StepStart", "Traces", "packed"]
