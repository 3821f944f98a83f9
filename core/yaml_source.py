"""Files that people write: YAML, read within bounds, with the line of every value.

What is read is YAML's part that JSON knows, and nothing is guessed: ``no`` is text and ``010`` is ten. Tags, anchors,
aliases, merge keys, keys that are no text and second documents are refused: each makes a file that does not say what
it seems to say. So do characters that hide text or turn it round.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from .documents import MAX_PROBLEMS, Document, Keys, Problem, field_name

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_NODES = 25_000
"""Keys and values: 2,000 tools with everything that may be said of one have 24,000. Each costs some 50 µs to read."""

_HIDDEN = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\ud800-\udfff\ufeff"
    "\ufffe\uffff\U000e0000-\U000e007f]|\r(?!\n)"
)
"""Control characters, line ends that editors don't show, marks that turn text round, and text that no one sees."""

_NUMBER = re.compile(r"[-+]?[0-9]{1,64}(\.[0-9]{1,64})?([eE][-+]?[0-9]{1,2})?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


class _Refused(Exception):
    """The file can't be read, for a problem: what, the cure and the line."""


def read(path: Path, *, most: int = MAX_BYTES, most_nodes: int = MAX_NODES) -> Document:
    """Read the mapping in ``path``; an empty file is an empty one. What is wrong stands in the document's problems.

    ``most`` bounds the file, in bytes, ``most_nodes`` its keys and values.
    """
    try:
        raw = _bytes(path, most)
        text = _text(raw)
        loader = _Loader(text, most_nodes)
        data = loader.mapping()
    except _Refused as refused:
        problem, hint, line = refused.args
        return Document(path, problems=[Problem(line, "", problem, hint)])
    return Document(path, data, text, hashlib.sha256(raw).hexdigest(), loader.lines, loader.problems[:MAX_PROBLEMS])


def _bytes(path: Path, most: int) -> bytes:
    """Read a regular file of bounded size."""
    try:
        # at once: a named pipe would wait for its writer for ever
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(0, "it is no regular file")
            raw = file.read(most + 1)
    except OSError as error:
        raise _Refused(f"the file can't be read: {error.strerror}", "check the path and the file", None) from error
    if len(raw) > most:
        raise _Refused(f"the file is larger than {most // 1024} KiB", "shorten it", None)
    return raw


def _text(raw: bytes) -> str:
    """Decode strictly, and refuse what would hide in an editor."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _Refused("this is not UTF-8", "save the file as UTF-8", raw.count(b"\n", 0, error.start) + 1) from error
    if found := _HIDDEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise _Refused(f"the character U+{ord(found[0]):04X} controls, hides or reorders text", "remove it", line)
    return text


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, which notes the line of every value, and collects what a file of ours may not hold.

    It is the one in Python: libyaml's is faster, but C, and these are strangers' files. It is also not in every PyYAML,
    and reads some texts otherwise: a file that was approved must say the same everywhere.
    """

    def __init__(self, text: str, most_nodes: int) -> None:
        super().__init__(text)
        self.lines: dict[Keys, int] = {}
        self.problems: list[Problem] = []
        self._depth = 0
        self._nodes = 0
        self._most_nodes = most_nodes

    def mapping(self) -> dict[str, Any]:
        """Return what the file says; nothing where there are problems."""
        try:
            root = self.get_single_node()
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # chr() raises the latter two, for an odd escape
            mark = getattr(error, "problem_mark", self.get_mark())
            line = min(mark.line, self.buffer.rstrip("\0\n").count("\n")) + 1
            problem = f"this is not YAML: {getattr(error, 'problem', 'an escape is out of range')}"
            hint = "check indentation (no tabs), quotes and brackets here and above; text with ': ' needs quotes"
            raise _Refused(problem, hint, line) from error
        data = None if root is None or self.problems else self._value(root, ())
        if data is not None and not isinstance(data, dict):
            raise _Refused("the file holds no mapping", "write `key: value` lines", self.lines[()])
        return data if data and not self.problems else {}

    def get_event(self) -> Any:
        """Look at an event before the composer gets it; the scanner is never far ahead of it."""
        event = super().get_event()  # type: ignore[no-untyped-call]
        self._nodes += isinstance(event, yaml.NodeEvent)
        if self._nodes > self._most_nodes:
            problem = f"this holds more than {self._most_nodes:,} keys and values"
            raise _Refused(problem, "shorten it", event.start_mark.line + 1)
        self._depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if self._depth > MAX_DEPTH:
            raise _Refused(f"this is nested deeper than {MAX_DEPTH}", "flatten it", event.start_mark.line + 1)
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            self._report(event, "anchors (&), aliases (*) and tags (!) are not used here", "write the value out")
        return event

    def _value(self, node: Any, keys: Keys) -> Any:
        """Build what ``node`` says, and note where it begins."""
        self.lines.setdefault(keys, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return {key: self._value(value, (*keys, key)) for key, value in self._entries(node, keys)}
        if isinstance(node, yaml.SequenceNode):
            return [self._value(value, (*keys, index)) for index, value in enumerate(node.value)]
        if _HIDDEN.search(node.value):
            self._report(node, "holds an escape that controls, hides or reorders text", "remove it", keys)
        return node.value if node.style else _plain(node.value)

    def _entries(self, node: yaml.MappingNode, keys: Keys) -> Iterator[tuple[str, Any]]:
        """Yield keys and nodes of values; note the lines of the keys."""
        for key_node, value in node.value:
            key = self._value(key_node, keys) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str) or key == "<<":
                self._report(key_node, "a key must be text, and no merge (<<)", "write it in quotes", keys)
            elif (below := (*keys, key)) in self.lines:
                self._report(key_node, f"stands here twice, first in line {self.lines[below]}", "remove one", below)
            else:
                self.lines[below] = key_node.start_mark.line + 1
                yield key, value

    def _report(self, place: Any, problem: str, hint: str, keys: Keys = ()) -> None:
        self.problems.append(Problem(place.start_mark.line + 1, field_name(keys), problem, hint))


def _plain(text: str) -> Any:
    """Read text without quotes: what JSON has for it, else itself."""
    if number := _NUMBER.fullmatch(text):
        return float(text) if any(number.groups()) else int(text)
    return _WORDS.get(text.lower(), text)
