"""Takes secrets out of text that is kept: traces, and the ends of logs.

A secret is known by the name of its key, by the shape of a well-known token, or because it is a value that the host
itself handed out, in any of the encodings that it may come back in. Too much is taken rather than too little; calls
and answers themselves are never touched.

Most texts hold nothing, so one search decides first whether a closer look is worth its time. JSON is then looked at
value by value, also where it stands inside a string; any other text, and JSON that was cut off, by patterns. Each of
these is linear in the text: its quantifiers are bounded, or what they match is consumed.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from ..hookspecs.errors import BasculeError

REDACTED = "[redacted]"

SHORTEST_SECRET = 6
"""Shorter values are not looked for: they would stand in innocent text too often."""

# Without looking back, so that the engine which needs a thirtieth of re's time can search for it; it may find too much.
_HINTS = (
    r"[kK][eE][yYnN]|[kK][iI][eE]|k-|k_live_|k_test_"  # key, token, cookie; sk-, sk_live_
    r"|[wW](?:[oO][rR])?[dD]|[pP][aA][sS][sS]|[cC][rR][eE][dDtT]|[uU][tT][hH]"  # password; secret, auth
    r"|A[KS]IA|gh[pousr]_|_pat_|bascule_|npm_|hf_|glpat-|xox|AIza|eyJ|[bB]ear|@"
)

# What must stand in a text for the pattern to be tried; a group 1 stays. In JSON that was cut off, a backslash and a
# letter are an escape, and what follows begins a word.
_SHAPES = {
    "PRIVATE KEY": r"()-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?s:.*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|.*)",
    "eyJ": r"()eyJ(?:(?<![\w-]eyJ)|(?<=\\[bfnrt]eyJ))[\w-]++(?:\.[\w-]*+)++",
    "IA": r"()A[KS]IA[A-Z0-9]{16,}",
    "_": r"()(?:gh[pousr]_|github_pat_|[rsp]k_live_|[rsp]k_test_|npm_|hf_|bascule_(?=[\w-]{43}))[\w-]{10,}",
    "glpat-": r"()glpat-[\w-]{16,}",
    "xox": r"()xox[a-z]-[\w-]{10,}",
    "sk-": r"()sk-(?:(?<![\w-]sk-)|(?<=\\[bfnrt]sk-))[\w-]{16,}",
    "AIza": r"()AIza[\w-]{30,}",
    "earer ": r"(earer {1,4})[\w.~+/=-]{8,}",
    "@": r"(://[^\s/:@\"\\]{0,128}:)[^\s/@\"\\]{1,256}(?=@)",
}

# PWD alone is the working directory, in every environment; a token of a page or of progress opens nothing.
_TELLING = (
    r"(?:pass(?:w|phrase|code)|pwd(?<!(?-i:\bPWD))(?<!(?-i:\bOLDPWD))|secret(?!ar)|credential|cookie|authori[sz]ation"
    r"|(?:api|access|private|signing|ssh|auth)[ _-]?key)"
)
_TELLING_LAST = r"(?:(?<![a-z])(?:pass|auth)|(?P<token>(?<!page)(?<!page[_-])(?<!progress)(?<!progress[_-])tokens?))"
_KEY = re.compile(rf"(?i){_TELLING}|{_TELLING_LAST}$")
_ASSIGNED = re.compile(
    rf"(?i)(?=[acpst])((?:{_TELLING}[\w.-]{{0,64}}+|{_TELLING_LAST})"
    r"(?:\\*[\"'])?+[ \t]{0,8}+(?:(?P<colon>:)|=)[ \t]{0,8}+(?P<quote>\\*[\"'])?+)(?!\[redacted\])"
    r"(?(quote)(?!(?P=quote))(?s:.+?)(?=(?<!\\)(?P=quote)|\Z)"  # up to the quote of the same depth in JSON
    r"|(?!(?:null|true|false|none|(?(token)-?[\d.]+|null))(?![\w.-]))"
    r"(?:[\[{](?:[^\r\n]|\r?\n[ \t\]}])*"  # an object, as far as its lines are indented
    r"|(?(colon)[^\r\n]+|(?:[a-z]{3,8} )?[^\s\"'\\&;,<>(){}\[\]]+)))"  # a header's line, or a word: TOKEN=Bearer x
)


class Redactor:
    """Redacts text, JSON or not. ``secrets`` are values to be found in it wherever they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = 0
        """How many values are known: what was redacted when there were fewer may hold one."""
        self._spellings: list[str] = []
        self._short: list[str] = []
        self._grams: set[int] = set()
        self.reach = 4_096  # the longest token of a known shape
        """How many bytes of a text a secret may take: so many at a cut end can't be judged."""
        self._label = lru_cache(maxsize=1_024)(lambda text: _encodable(self.redact(text)))
        for secret in secrets:
            self.add(secret)

    def add(self, value: str) -> None:
        """Look for ``value`` from now on, unless it is shorter than ``SHORTEST_SECRET``."""
        if len(value) < SHORTEST_SECRET or value in self._spellings:
            return
        for spelling in set(_spellings(value)):
            raw = spelling.encode("utf-8", "surrogatepass")
            self.reach = max(self.reach, len(raw))
            if len(raw) < 15:  # a longer one holds eight bytes that begin at a multiple of eight, wherever it stands
                self._short.append(spelling)
            else:
                self._grams.update(int.from_bytes(raw[at : at + 8], sys.byteorder) for at in range(len(raw) - 7))
            self._spellings.append(spelling)
        self.secrets += 1
        self._spellings.sort(key=len, reverse=True)  # a shorter one may be a part of a longer one
        self._label.cache_clear()

    def redact_error(self, error: BasculeError) -> None:
        """Take the secrets out of all that ``error`` says, before it is kept or told to anyone."""
        error.message = self.redact(error.message)
        error.args = (error.message,)
        for part in ("where", "hint", "diagnosis"):
            if (text := getattr(error, part)) is not None:
                setattr(error, part, self.redact(text))
        if problems := getattr(error, "problems", None):
            error.problems = tuple(json.loads(self.redact(json.dumps(problem))) for problem in problems)  # type: ignore[attr-defined]

    def redact(self, text: str) -> str:
        """Return ``text`` without its secrets; what was JSON is still JSON."""
        try:
            if not _search()(text) and not (self._spellings and self._may_hold_known(text)):
                return text
        except ValueError:
            pass  # not fit for UTF-8
        return self._as_json(text) or self._as_text(text)

    def label(self, text: str) -> str:
        """Redact a text that comes again and again, and make it fit for UTF-8."""
        return self._label(text) if len(text) < 1_024 else _encodable(self.redact(text))

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
        if self._may_hold_known(text):
            for spelling in self._spellings:
                text = text.replace(spelling, REDACTED)
        return text

    def _as_json(self, text: str) -> str | None:
        if not text.startswith(("{", "[", '"')):
            return None
        try:
            shown = self._value(json.loads(text))
        except (ValueError, RecursionError):
            return None  # cut off, or no JSON at all
        # Written anew in any case: of two members with one key, the first would not have been looked at.
        return _encodable(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact(self._without_known(value))  # a known value may be JSON itself
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if isinstance(value, dict):
            return {self.label(key): self._member(key, inner) for key, inner in value.items()}
        return REDACTED if self._may_hold_known(str(value)) else value

    def _member(self, key: str, value: Any) -> Any:
        name = telling(key[-128:])
        innocent = value is None or isinstance(value, bool) or (name == "token" and isinstance(value, int | float))
        return self._value(value) if name is None or innocent else REDACTED

    def _as_text(self, text: str) -> str:
        text = self._without_known(text)
        for needle, shape in _SHAPES.items():
            if needle in text:
                text = re.sub(shape, rf"\1{REDACTED}", text)
        return _ASSIGNED.sub(rf"\1{REDACTED}", text) if "=" in text or ":" in text else text


@cache
def _search() -> Callable[[str], bool]:
    """What says whether a closer look at a text is worth its time; raises ``ValueError`` where it is no UTF-8."""
    from .contracts.compiled import MAX_PROGRAM, matches  # loaded with the first text, not with the command line

    pattern = re.compile(_HINTS)
    return matches(_HINTS, MAX_PROGRAM) or (lambda text: pattern.search(text) is not None)


@lru_cache(maxsize=4_096)
def telling(key: str) -> str | None:
    """Say whether what stands under ``key`` is a ``secret``, a ``token`` (where it is no number), or neither."""
    found = _KEY.search(key)
    return found and ("token" if found["token"] else "secret")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _spellings(value: str) -> Iterator[str]:
    """Yield ``value`` as it may stand in a text: as it is, encoded, reversed, and each of these inside JSON."""
    raw = value.encode("utf-8", "surrogatepass")
    plain = [value, value[::-1], raw.hex(), raw.hex().upper(), *_base64_cores(raw)]
    plain += [quote(raw), quote(raw, safe=""), quote_plus(raw)]
    for spelling in plain:
        inside = [json.dumps(spelling, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)]
        yield from (spelling, *inside, *(json.dumps(each, ensure_ascii=False)[1:-1] for each in inside))


def _base64_cores(raw: bytes) -> Iterator[str]:
    """Yield what ``raw`` looks like inside a longer base64 text, for each of the three ways to be aligned there."""
    for offset, shared in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(bytes(offset) + raw).decode("ascii").rstrip("=")
        last = len(encoded) - 1 if (offset + len(raw)) % 3 else len(encoded)
        yield encoded[shared:last]
        yield encoded[shared:last].replace("+", "-").replace("/", "_")
