"""Takes secrets out of text that is kept: traces, and the ends of logs.

A secret is known by the name of its key, by the shape of a well-known token, or because it is a value that the host
itself handed out, in any of the encodings that it may come back in. Too much is taken rather than too little; calls
and answers themselves are never touched.

Most texts hold nothing, so one search decides first whether a closer look is worth its time. Every pattern is linear
in the text: quantifiers are bounded, or what they match is consumed.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus

import msgspec

REDACTED = "[redacted]"

SHORTEST_SECRET = 6
"""Shorter values are not looked for: they would stand in innocent text too often."""

_LONG = 15
"""From so many bytes on, a value holds eight bytes of a text that begin at a multiple of eight, wherever it stands."""

_SHAPE_REACH = 4096
"""How far from its beginning a token may still be told, where the end of the text is cut off."""

# Each alternative begins with one letter, a rare one, of what it hints at: that is what makes the search fast.
_HINTS = re.compile(
    r"k(?:[eE][yYnN]|[iI][eE]|-|_live_|_test_)|K(?:[eE][yYnN]|[iI][eE]|IA)"  # key, token, cookie; sk-, sk_live_, AKIA
    r"|w(?:[oO][rR])?[dD]|W(?:[oO][rR])?[dD]|p[aA][sS][sS]|P[aA][sS][sS]"  # password, pwd, pass
    r"|c[rR][eE][dDtT]|C[rR][eE][dDtT]"  # credential, secret
    r"|u[tT][hH](?:[\"\\=:']|[oO][rR][iI])|U[tT][hH](?:[\"\\=:']|[oO][rR][iI])"  # auth, authorization
    r"|SIA|_(?:(?<=gh[pousr]_)|pat_)|xox|za(?<=AIza)|J(?<=eyJ)|bear|Bear|@"
)

# What must stand in a text for the pattern to be tried, the pattern, and (a group 1) what of it stays.
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (needle, re.compile(pattern, re.ASCII))
    for needle, pattern in (
        (
            "PRIVATE KEY",
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[^\"\\]|\\(?!\"))*?"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|(?=\\?\")|\Z)",
        ),
        # One part alone is left, and consumed: the base64 of some JSON object, a cursor say.
        ("eyJ", r"((?=eyJ[\w-]++(?!\.))eyJ[\w-]++)|eyJ[\w-]++(?:\.[\w-]*+)++"),
        ("AKIA", r"AKIA[A-Z0-9]{16,}"),
        ("ASIA", r"ASIA[A-Z0-9]{16,}"),
        ("gh", r"gh[pousr]_[A-Za-z0-9]{20,}"),
        ("github_pat_", r"github_pat_\w{20,}"),
        ("xox", r"xox[a-z]-[\w-]{10,}"),
        ("sk-", r"sk-(?:(?<![\w-]sk-)|(?<=\\[bfnrt]sk-))[\w-]{16,}"),
        ("AIza", r"AIza[\w-]{30,}"),
        ("_live_", r"[rsp]k_live_[A-Za-z0-9]{10,}"),
        ("_test_", r"[rsp]k_test_[A-Za-z0-9]{10,}"),
        ("earer ", r"([Bb]earer[ ]{1,4})[\w.~+/=-]{8,}"),
        ("://", r"(://[^\s/:@\"\\]{0,128}:)[^\s/@\"\\]{1,256}(?=@)"),
    )
)

_KEY = re.compile(r'"([^"\\]{1,128})(\\*)"\s*+:\s*+')
# In JSON a bare quote after the sign would be the end of a string; in plain text it begins the value.
_ASSIGNED_IN_JSON = re.compile(r"[=:](?<=[\w.'-][=:])[ ]?('|\\+\")?", re.ASCII)
_ASSIGNED = re.compile(r"[=:](?<=[\w.'-][=:])[ ]?('|\\*\")?", re.ASCII)
_NAME_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_LONGEST_NAME = 64
_WORD = re.compile(r"[^\s\"'\\&;,<>(){}\[\]]{1,4096}")
_QUOTED = re.compile(r"[^\"'\\\r\n]{1,4096}")
_LINE = re.compile(r"[^\"\\\r\n]{1,4096}")
_SCALAR = re.compile(r"[^\s,\]}\"\\]*")
_NUMBER = re.compile(r"-?\d")
_QUOTE = re.compile(r'(?<!\\)\\*+"')
_STRUCTURE = re.compile(r'[][{}]|(?<!\\)\\*+"')

_SECRET_NAMES = re.compile(
    r"passw|passphrase|passcode|^pass$|pwd|secret(?!ar)|apikey|(?:access|private|signing|encryption|ssh|auth)key"
    r"|credential|authori[sz]ation|^auth$|cookie"
)
_HEADERS = frozenset({"authorization", "proxyauthorization", "cookie", "setcookie"})
_HUMPS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NO_TOKEN = re.compile(
    r"max|min|limit|budget|used?|usage|count|num|number|total|sum|per|prompt|completion|input|output|cached|reasoning"
    r"|remaining|type|kind|page|next|progress|continuation|url|uri|endpoint|expires|expiry"
)
_PLAIN = frozenset({"true", "false", "null"})


class Redactor:
    """Redacts text, JSON or not. ``secrets`` are values to be found in it wherever they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._spellings: tuple[str, ...] = ()
        self._short: tuple[str, ...] = ()
        self._grams: frozenset[int] = frozenset()
        self.version = 0
        """Grows with every secret: what was found clean before may not be so now."""
        self._learn(secrets)

    def add(self, value: str) -> None:
        """Look for ``value`` from now on, unless it is shorter than ``SHORTEST_SECRET``."""
        self._learn((value,))

    def _learn(self, values: Iterable[str]) -> None:
        new = {spelling for value in values if len(value) >= SHORTEST_SECRET for spelling in _spellings(value)}
        # The longest first: a shorter one may be a part of it.
        self._spellings = tuple(sorted(new.union(self._spellings), key=len, reverse=True))
        encoded = {spelling: spelling.encode("utf-8", "surrogatepass") for spelling in new}
        self._short += tuple(spelling for spelling, raw in encoded.items() if len(raw) < _LONG)
        self._grams |= {gram for raw in encoded.values() if len(raw) >= _LONG for gram in _grams(raw)}
        self.version += 1

    @property
    def reach(self) -> int:
        """How many characters a secret may take: so many at a cut end of a text can't be judged."""
        return max(_SHAPE_REACH, len(self._spellings[0]) if self._spellings else 0)

    def redact(self, json_text: str) -> str:
        """Return ``json_text`` without its secrets; what was JSON is still JSON."""
        known = self._may_hold_known(json_text)
        if not known and _HINTS.search(json_text) is None:
            return json_text
        redacted = _without_named(_without_shapes(self._without_known(json_text) if known else json_text))
        if redacted != json_text and not _is_json(redacted) and _is_json(json_text):
            # A secret that is a bare number, or one that takes the half of an escape: nothing of it is worth a risk.
            return f'"{REDACTED}"'
        return redacted

    def _may_hold_known(self, text: str) -> bool:
        """Look for all known values at once: a long one holds eight whole bytes of the text, wherever it begins."""
        for spelling in self._short:  # a loop: any() costs as much again on a short text
            if spelling in text:
                return True
        if not self._grams:
            return False
        raw = text.encode("utf-8", "surrogatepass")
        return not self._grams.isdisjoint(memoryview(raw)[: len(raw) & ~7].cast("Q"))

    def _without_known(self, text: str) -> str:
        for spelling in self._spellings:
            if spelling in text:
                text = text.replace(spelling, REDACTED)
        return text


# --- values that the host handed out ----------------------------------------------------------------------------


def _spellings(value: str) -> Iterator[str]:
    """Yield ``value`` as it may stand in a text: as it is, encoded, reversed, and each of these inside JSON."""
    raw = value.encode("utf-8", "surrogatepass")
    plain = [value, value[::-1], raw.hex(), raw.hex().upper(), *_base64_cores(raw)]
    plain += [quote(raw), quote(raw, safe=""), quote_plus(raw)]
    for spelling in plain:
        yield spelling
        for ascii_only in (True, False):
            inside = json.dumps(spelling, ensure_ascii=ascii_only)[1:-1]
            yield inside
            yield json.dumps(inside, ensure_ascii=ascii_only)[1:-1]


def _grams(raw: bytes) -> Iterator[int]:
    for start in range(len(raw) - 7):
        yield int.from_bytes(raw[start : start + 8], sys.byteorder)


def _base64_cores(raw: bytes) -> Iterator[str]:
    """Yield what ``raw`` looks like inside a longer base64 text, for each of the three ways to be aligned there."""
    for offset, shared in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(bytes(offset) + raw).decode("ascii").rstrip("=")
        last = len(encoded) - 1 if (offset + len(raw)) % 3 else len(encoded)
        yield encoded[shared:last]
        yield encoded[shared:last].replace("+", "-").replace("/", "_")


# --- tokens of a known shape ------------------------------------------------------------------------------------


def _without_shapes(text: str) -> str:
    for needle, pattern in _SHAPES:
        if needle in text:
            text = pattern.sub(_keep_first_group, text)
    return text


def _keep_first_group(match: re.Match[str]) -> str:
    kept = match[1] if match.re.groups else None
    return match[0] if kept == match[0] else f"{kept or ''}{REDACTED}"


# --- values under a telling name --------------------------------------------------------------------------------


def _without_named(text: str) -> str:
    return _without_assigned(_without_members(text))


def _without_members(text: str) -> str:
    """Redact the values of JSON members, also in JSON that stands inside a string."""
    kept: list[str] = []
    done = position = 0
    while (key := _KEY.search(text, position)) is not None:
        position = key.end()
        kind = _kind(key[1])
        if kind is None:
            continue
        end = _end_of_value(text, position, len(key[2]))
        value = text[position:end]
        if not _telling(kind, value):
            continue
        kept += text[done:position], f'{key[2]}"{REDACTED}{key[2]}"'
        done = position = end
    return "".join((*kept, text[done:])) if kept else text


def _telling(kind: str, value: str) -> bool:
    return bool(value) and value not in _PLAIN and not (kind == "token" and _NUMBER.match(value))


def _end_of_value(text: str, start: int, slashes: int) -> int:
    """Find where a JSON value ends whose quotes have ``slashes`` backslashes before them; a cut one ends the text."""
    opening = _QUOTE.match(text, start)
    if opening is not None and opening.end() - start - 1 == slashes:
        return _end_of_string(text, opening.end(), slashes)
    if text[start : start + 1] not in ("{", "["):
        found = _SCALAR.match(text, start)
        return found.end() if found else start
    depth = 0
    position = start
    while (mark := _STRUCTURE.search(text, position)) is not None:
        position = mark.end()
        if mark[0][-1] == '"':
            if _level(len(mark[0]) - 1) < _level(slashes):
                return mark.start()
            position = _end_of_string(text, position, slashes)
        else:
            depth += 1 if mark[0] in "{[" else -1
            if depth == 0:
                return position
    return len(text)


def _end_of_string(text: str, start: int, slashes: int) -> int:
    level = _level(slashes)
    for mark in _QUOTE.finditer(text, start):
        found = _level(len(mark[0]) - 1)
        if found == level:
            return mark.end()
        if found < level:
            return mark.start()  # the string around this one ends: the JSON inside was cut off
    return len(text)


def _level(slashes: int) -> int:
    """Say how deep in JSON inside JSON a quote stands that has so many backslashes before it.

    Each level doubles them and adds one: 0, 1, 3, 7; an even number are backslashes of the text itself.
    """
    level = 0
    while slashes % 2:
        slashes //= 2
        level += 1
    return level


def _without_assigned(text: str) -> str:
    """Redact ``name=value`` and ``Name: value`` in plain text; a header's value goes to the end of its line."""
    kept: list[str] = []
    done = 0
    for sign in (_ASSIGNED_IN_JSON if text[:1] in ("{", "[", '"') else _ASSIGNED).finditer(text):
        name = _name_before(text, sign.start())
        kind = _kind(name)
        if kind is None or sign.start() < done:
            continue
        until = _QUOTED if sign[1] else _LINE if _flat(name) in _HEADERS else _WORD
        value = until.match(text, sign.end())
        if value is None or not _telling(kind, value[0]):
            continue
        kept += text[done : sign.end()], REDACTED
        done = value.end()
    return "".join((*kept, text[done:])) if kept else text


def _name_before(text: str, end: int) -> str:
    window = text[max(0, end - _LONGEST_NAME) : end].removesuffix("'")
    rest = window.rstrip(_NAME_LETTERS)
    # The letter after a backslash is an escape's, as in \\nPASSWORD=
    return window[len(rest) + rest.endswith("\\") :]


@lru_cache(maxsize=4096)
def _kind(name: str) -> str | None:
    """Say what the value of ``name`` is: a ``secret``, a ``token`` (unless it is a number), or neither."""
    if name in ("PWD", "OLDPWD"):
        return None  # the working directory, in every environment
    if _SECRET_NAMES.search(_flat(name)):
        return "secret"
    words = [hump.lower() for hump in _HUMPS.findall(name)]
    if any(word.endswith(("token", "tokens")) for word in words) and not any(map(_NO_TOKEN.fullmatch, words)):
        return "token"
    return None


def _flat(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True
