"""Bearer tokens: made here, shown once, kept as hashes, compared in constant time (A6)."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..hookspecs import Identity, SettingsInvalid
from .endpoint import write_private
from .store import Store

SCOPES = frozenset({"call", "read", "admin"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
OWNER = "owner"
OWNER_FILE = "owner.token"
_PREFIX = "bascule_"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as the store keeps it: ``digest`` is the SHA-256 of the secret."""

    name: str
    digest: str
    scopes: frozenset[str]
    created_at: float


class Tokens:
    """The tokens of one state directory. A change by another process is seen at the next request."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[TokenRecord, ...] = ()
        self._version = -1

    def create(self, name: str, scopes: Iterable[str]) -> str:
        """Make a token and return its secret: 256 bits, shown this once."""
        wanted = frozenset(scopes)
        if not _NAME.fullmatch(name):
            raise SettingsInvalid(f"{name!r} is no name for a token", hint="letters, digits and _ . - up to 63")
        if not wanted or wanted - SCOPES:
            raise SettingsInvalid(
                f"unknown scopes {', '.join(sorted(wanted - SCOPES)) or '(none)'}", hint="there are call, read, admin"
            )
        secret = _PREFIX + secrets.token_urlsafe(32)
        if not self._store.add_token(name, _digest(secret), wanted, time.time()):
            raise SettingsInvalid(f"there is a token {name!r} already", hint="revoke it first, or take another name")
        self._version = -1
        return secret

    def list(self) -> tuple[TokenRecord, ...]:
        """Every token, by name."""
        return tuple(TokenRecord(*row) for row in self._store.tokens())

    def revoke(self, name: str) -> bool:
        """Forget a token; ``False`` where there was none."""
        self._version = -1
        return self._store.delete_token(name)

    def knows(self, name: str, secret: str) -> bool:
        """Whether ``secret`` is that of the token ``name``, with every scope."""
        digest = _digest(secret)
        return any(
            record.name == name and record.scopes == SCOPES and hmac.compare_digest(record.digest, digest)
            for record in self.list()
        )

    async def verify(self, secret: str) -> Identity | None:
        """Name the owner of ``secret``."""
        version = self._store.data_version()
        if version != self._version:
            self._known, self._version = self.list(), version
        digest = _digest(secret)
        found = [record for record in self._known if hmac.compare_digest(record.digest, digest)]
        return Identity(found[0].name, found[0].scopes) if found else None


def keep_owner_token(tokens: Tokens, directory: Path) -> None:
    """See to it that ``owner.token`` holds the secret of the token ``owner``, which has every scope.

    The command line reads it there. Whoever revokes the token or removes the file gets a new one at the next start.
    Raises ``StateUnavailable``.
    """
    path = directory / OWNER_FILE
    secret = read_owner_token(directory)
    if secret is None or not tokens.knows(OWNER, secret):
        tokens.revoke(OWNER)
        write_private(path, tokens.create(OWNER, SCOPES) + "\n")
    elif os.name == "posix" and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def read_owner_token(directory: Path) -> str | None:
    """Return the secret in ``owner.token``; ``None`` where it can't be read."""
    try:
        with (directory / OWNER_FILE).open(encoding="ascii") as file:
            return file.read(1_024).strip() or None
    except (OSError, ValueError):
        return None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
