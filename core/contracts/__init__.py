"""The JSON Schema gate, and the validators behind it (N5.2, N5.3).

A tool's schema is a stranger's program that runs for every call. :func:`gate` looks at it once, at
registration, and refuses what could not be run within bounds. :func:`compile` makes a :class:`Validator` of
what passed. Two engines serve it:

- ``jsonschema-rs``, compiled, for every check whose cost is bounded beforehand (:mod:`.cost`);
- ``jsonschema``, metered, for the others (:mod:`.metered`), and to say what is wrong with an instance that
  does not fit.

Schemas follow draft-07, 2019-09 or 2020-12 by their root ``$schema``, 2020-12 without one. ``format`` and
``content*`` are annotations and check nothing. References stay inside the schema (``#``, ``#/…``, or the name
of an ``$anchor``); nothing is fetched, ever. Narrower than the specification: a nested ``$id`` or ``$schema``,
``$dynamicRef``, ``$recursiveRef`` and ``$vocabulary`` are refused, and a pattern must be free of lookaround
and backreferences.

Without ``jsonschema-rs`` (a platform without a wheel) everything is metered, and schemas with patterns are
refused: no other engine at hand matches them in linear time.
"""

from .budget import CheckTooExpensive
from .gate import gate
from .problems import NO_JSON, Problem
from .validator import Validator, compile

__all__ = ["NO_JSON", "CheckTooExpensive", "Problem", "Validator", "compile", "gate"]
