"""One way to write a JSON value, so that equal values have equal digests."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> str:
    """Write ``value`` in ASCII, without blanks, its keys in order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(what: str, value: Any) -> str:
    """The SHA-256 of ``value``, in hex. ``what`` keeps the digests of different things apart."""
    return hashlib.sha256(f"bascule {what} 1\n{canonical(value)}".encode("ascii")).hexdigest()


def shown(value: Any, most: int = 300) -> str:
    """``value`` as JSON in ASCII, cut: nothing in it hides, nothing looks like something else."""
    text = canonical(value)
    return text if len(text) <= most else f"{text[: most - 1]}… ({len(text):,} characters)"
