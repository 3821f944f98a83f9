"""What was called, and what came of it: runs and their steps, in the state directory's SQLite file.

``recorder`` writes, ``reader`` reads. A step's row is written before its call is sent; what is written was redacted.
"""

from .reader import StoredTraces
from .recorder import StepEnd, StepStart, Traces

__all__ = ["StepEnd", "StepStart", "StoredTraces", "Traces"]
