"""What of a launch is a secret: values that the bridge hands to a server and must find again wherever they turn up.

A server may print what it was given, send it back, or fail over it. So every value that goes to it and is not plainly
harmless is known to the redactor from then on: literal ones of the manifest, those passed from the host, and arguments.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from ..hookspecs import LaunchRequest
from .redaction import SHORTEST_SECRET, telling

_MOST_CHARACTERS = 4_096
"""Of one plugin: each costs memory in every encoding that it may come back in. The tellingly named come first."""

_PLAIN = re.compile(
    r"(?:[A-Za-z]:)?(?:[/\\][\w.@+ -]*)+(?::(?:/[\w.@+ -]*)+)*"  # paths
    r"|[a-z+]{2,10}://(?:\[[\d:a-f]+\]|[\w.-]+)(?::\d{1,5})?(?:/[\w./-]*)?"  # addresses without a user or a query
    r"|[A-Za-z]{1,12}|[\d.,:+-]+|true|false|yes|no|on|off|[a-z]{2}_[A-Z]{2}(?:\.[\w-]+)?"
)
_WORDS = re.compile(r"[A-Za-z]{1,24}\d{0,3}(?:[ _.,:;=/+-]{1,2}[A-Za-z]{1,24}\d{0,3})*")
_USER = re.compile(r"://[^/@\s]*:([^/@\s]+)@")


def credentials(request: LaunchRequest, host: Mapping[str, str]) -> list[str]:
    """The secrets in what ``request`` hands over; ``host`` is the environment that variables are passed from."""
    passed = {name: host[name] for name in request.pass_env if name in host}
    found = [value for name, value in {**request.env, **passed}.items() if telling(name)]
    found += [value for value in passed.values() if not _PLAIN.fullmatch(value)]
    found += [value for value in request.env.values() if not _PLAIN.fullmatch(value) and not _WORDS.fullmatch(value)]
    found += _in_arguments(request.argv)
    found += [user[1] for value in (*passed.values(), *request.env.values()) if (user := _USER.search(value))]
    return list(_bounded(dict.fromkeys(found)))


def sealed(argv: Sequence[str]) -> list[str]:
    """``argv`` to be kept and compared: each secret in it is replaced by its fingerprint."""
    secrets = [value for value in _in_arguments(argv) if len(value) >= SHORTEST_SECRET]
    return [_seal(word, secrets) for word in argv]


def _seal(word: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if secret in word:
            word = word.replace(secret, f"sha256:{hashlib.sha256(secret.encode('utf-8', 'surrogatepass')).hexdigest()}")
    return word


def _in_arguments(argv: Sequence[str]) -> Iterator[str]:
    """Values behind an option that tells what they are: ``--api-key VALUE``, ``--token=VALUE``, ``TOKEN=VALUE``."""
    for option, value in zip_longest(argv, argv[1:], fillvalue=""):
        name, _, given = option.lstrip("-").partition("=")
        if len(name) <= 64 and telling(name):
            yield given or (value if option.startswith("-") else "")
        yield from _USER.findall(option)


def _bounded(values: Mapping[str, None]) -> Iterator[str]:
    left = _MOST_CHARACTERS
    for value in values:
        if len(value) < SHORTEST_SECRET:
            continue
        if left <= 0:
            return
        yield value[:left]
        left -= len(value)
