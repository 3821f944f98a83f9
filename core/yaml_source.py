"""Files that people write: YAML, read within bounds, with the line of every value.

What is read is YAML's part that JSON knows, by YAML 1.2's rules: ``no`` is text and ``010`` is ten. Tags, anchors,
aliases, merge keys, keys that are no text and second documents are refused: each makes a file that does not say what
it seems to say. So do characters that hide text or turn it round.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Any, cast

import yaml

from .documents import MAX_PROBLEMS, Document, DocumentInvalid, Keys, Problem, field_name, quoted

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32

HIDDEN = re.compile(
    "[\u0085\u2028\u2029\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\U000e0000-\U000e007f]|\ufeff|\r(?!\n)"
)
"""Line ends that editors don't show, marks that turn text round ("Trojan Source"), and text that no one sees."""

_NEVER_TEXT = re.compile("[\0\ud800-\udfff]")
_INT = re.compile(r"[-+]?[0-9]{1,64}|0o[0-7]{1,64}|0x[0-9a-fA-F]{1,64}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,64}|[0-9]{1,64}(?:\.[0-9]{0,64})?)(?:[eE][-+]?[0-9]{1,2})?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
}


def read(path: Path) -> Document:
    """Read the mapping in ``path``; an empty file is an empty one. Raises :class:`DocumentInvalid`."""
    raw = _bytes(path)
    text = _text(raw)
    hidden = HIDDEN.search(text)
    if hidden:
        problem = f"the character U+{ord(hidden[0][0]):04X} hides or reorders text"
        hint = 'remove it, or write it as an escape ("\\u….") in double quotes'
        raise DocumentInvalid(Problem(_line_at(text, hidden.start()), "", problem, hint))
    composer = _Composer(text)
    data = composer.compose()
    return Document(path, data, text, hashlib.sha256(raw).hexdigest(), composer.lines)


def _bytes(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DocumentInvalid(Problem(None, "", "this is no regular file", "put a file of YAML text there"))
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        problem = f"the file can't be read: {error.strerror}"
        raise DocumentInvalid(Problem(None, "", problem, "check the path, and that it is a readable file")) from error
    if len(raw) > MAX_BYTES:
        problem = f"the file is larger than {MAX_BYTES // 1024} KiB"
        raise DocumentInvalid(Problem(None, "", problem, "shorten it; data belongs in files of its own"))
    return raw


def _open_at_once(path: str, flags: int) -> int:
    # a named pipe would wait for its writer for ever
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problem = f"the byte 0x{raw[error.start]:02x} is not UTF-8"
        raise DocumentInvalid(Problem(line, "", problem, "save the file as UTF-8")) from error


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


class _Composer:
    """Builds values from YAML's events, and keeps where each begins.

    The events come from the parser in Python: libyaml's is faster, but C, and these are strangers' files.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._problems: list[Problem] = []
        self.lines: dict[Keys, int] = {}

    def compose(self) -> dict[str, Any]:
        try:
            self._loader: Any = yaml.SafeLoader(self._text)
            data = self._document()
        except yaml.YAMLError as error:
            self._problems.append(_syntax_problem(error, self._text))
        except (ValueError, OverflowError):  # PyYAML does not check the number in an escape or a directive
            problem = "an escape or a number is out of range"
            self._problems.append(Problem(self._loader.line + 1, "", problem, "write the character itself"))
        if self._problems:
            raise DocumentInvalid(*self._problems)
        return data

    def _next(self) -> yaml.Event:
        return cast("yaml.Event", self._loader.get_event())

    def _document(self) -> dict[str, Any]:
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            return {}
        root = self._next()
        data = self._value(root, (), 1)
        self._next()
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            self._report("a second document begins here", "keep one document in a file", after)
        if data is not None and not isinstance(data, dict):
            self._report("the file holds no mapping", "write `key: value` lines", root)
        return data or {}

    def _value(self, event: yaml.Event, keys: Keys, depth: int) -> Any:
        self.lines.setdefault(keys, _line_of(event))
        if getattr(event, "anchor", None):
            self._report("anchors (&name) and aliases (*name) are not used here", "write it out", event, keys)
        if getattr(event, "tag", None):
            self._report("tags (!name) are not used here", "remove it; text goes in quotes", event, keys)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, keys)
        if depth > MAX_DEPTH:
            self._report(f"this is nested deeper than {MAX_DEPTH}", "flatten it", event)
            raise DocumentInvalid(*self._problems)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(keys, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(keys, depth)
        return None

    def _list(self, keys: Keys, depth: int) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            values.append(self._value(event, (*keys, len(values)), depth + 1))
        return values

    def _mapping(self, keys: Keys, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, keys, depth)
            below = (*keys, key)
            if key in values:
                problem = f"stands here twice, first in line {self.lines[below]}"
                self._report(problem, "remove one of the two", event, below)
            self.lines.setdefault(below, _line_of(event))
            value = self._value(self._next(), below, depth + 1)
            if isinstance(key, str):
                values.setdefault(key, value)
        return values

    def _key(self, event: yaml.Event, keys: Keys, depth: int) -> str | int:
        """Read a key; ``0``, which no mapping has, where it is none."""
        key = self._value(event, (*keys, 0), depth + 1)
        if key == "<<" and not getattr(event, "style", None):
            self._report("merge keys (<<) are not used here", "write the keys out", event, keys)
        if isinstance(key, str):
            return key
        self._report("a key must be text", "write it in quotes", event, keys)
        return 0

    def _scalar(self, event: Any, keys: Keys) -> Any:
        if _NEVER_TEXT.search(event.value):
            self._report("holds a character that is no text", "remove the escape", event, keys)
        return event.value if event.style else _plain(event.value)

    def _report(self, problem: str, hint: str, event: yaml.Event, keys: Keys = ()) -> None:
        self._problems.append(Problem(_line_of(event), field_name(keys), problem, hint))
        if len(self._problems) >= MAX_PROBLEMS:
            raise DocumentInvalid(*self._problems)


def _plain(text: str) -> Any:
    """Read an unquoted scalar by YAML 1.2's core schema; what JSON has no number for stays text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _line_of(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:  # the reader knows a position instead
        line = _line_at(text, getattr(error, "position", 0))
        return Problem(line, "", "a control character stands here", "remove it")
    lines = text.splitlines()
    before = lines[mark.line][: mark.column + 1] if mark.line < len(lines) else ""
    if "\t" in before:
        return Problem(mark.line + 1, "", "a tab stands where YAML wants blanks", "indent with blanks")
    problem = f"this is not YAML: {quoted(getattr(error, 'problem', None) or 'it ends too early')[1:-1]}"
    hint = "check indentation, quotes and brackets here and above; text with ': ' or a sign in front needs quotes"
    return Problem(min(mark.line + 1, len(lines) or 1), "", problem, hint)
