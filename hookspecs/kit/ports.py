"""Ports for what listens in a check: every process that asks has some of its own."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle, islice

_MANY = 100
_FIRST = range(20_000, 32_600, _MANY)
"""Below what systems hand out unasked (Linux from 32768 on, others from 49152): no connection takes one of these."""


@cache
def reserve() -> Iterator[int]:
    """Take ports that no other process gets here while this one lives: it holds the UDP port of the first's number."""
    for first in random.SystemRandom().sample(_FIRST, len(_FIRST)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim, suppress(OSError):
            claim.bind(("127.0.0.1", first))
            claim.detach()  # kept to the end of the process
            return cycle(range(first, first + _MANY))
    raise OSError(f"too many processes want ports from {_FIRST.start} on")


def free_port() -> int:
    """A port that nobody listens on, for transports whose settings take no 0."""
    for port in islice(reserve(), _MANY):
        with socket.socket() as sock, suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what waits for late packets is in no one's way
            sock.bind(("127.0.0.1", port))
            return port
    raise OSError("none of the ports of this process is free")
