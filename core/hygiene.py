"""What a stranger's texts may hold: nothing that a person does not see and a model reads (OWASP MCP03, MCP06).

A tool's definition is read by models and by whoever approves it, and both must read the same. So a text with a
character that steers a terminal, changes the direction of reading or does not show at all is refused when the tool is
registered, as is one that hides its end behind padding or is longer than anyone reads. Characters that some language
or emoji needs pass where it needs them: joiners inside Persian or Hindi words, marks of direction beside Arabic or
Hebrew letters, selectors behind the sign that they select. Phrases that look like instructions to a model are only
flagged, since honest descriptions hold them as well. One pass over a text, whatever it holds.

Sources: Unicode 16.0, chapters 23.2-23.9 (layout controls, variation selectors, tags); UTS 39 (look-alikes);
UTS 51 (emoji sequences).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from ..hookspecs.errors import McpToolInvalid
from ..hookspecs.tools import ToolDefinition

DESCRIPTION_LENGTH = 8_192
TEXT_LENGTH = 4_096
"""In characters: a tool's description, and any other text of it (the longest honest one known has 2,800)."""

_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U0010ffff]"
)
"""Everything that might not show. All else of the category Cf came after Unicode 14 or is listed here."""

_VISIBLE_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
_FLAGS = re.compile("\U0001f3f4(?:" + "|".join(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) for region in ("gbeng", "gbsct", "gbwls")
) + ")\U000e007f")  # fmt: skip
_PADDING = re.compile(r"\s{200}|(?:[^\S\n]*\n){24}")
_MARKS = 8  # over one letter: the fullest honest ones (Hebrew with cantillation, Tibetan) have five
_BLOB = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_=-]{256}")
_IVS_AT_MOST = 8  # selectors of glyphs in one text: names have one or two, and each could carry a byte

_JOINING = re.compile(
    "ARABIC|SYRIAC|MANDAIC|NKO|MONGOLIAN|PHAGS-PA|DEVANAGARI|BENGALI|GURMUKHI|GUJARATI|ORIYA|TAMIL|TELUGU|KANNADA"
    "|MALAYALAM|SINHALA|KHMER|MYANMAR|TIBETAN|BALINESE|JAVANESE"
)
_WITHOUT_BLANKS = re.compile("THAI|LAO|KHMER|MYANMAR|TIBETAN|JAVANESE|BALINESE|CJK|HIRAGANA|KATAKANA")


def check(definition: Mapping[str, Any], tool: str) -> None:
    """Refuse a tool whose definition, as its server wrote it, holds a text that shows less than it says.

    Raises ``McpToolInvalid`` with the JSON pointer of the text.
    """
    for pointer, text, opaque in _texts(definition):
        fault = fault_of(text, TEXT_LENGTH if pointer != "/description" else DESCRIPTION_LENGTH, opaque=opaque)
        if fault is not None:
            raise McpToolInvalid(
                f"a text of this tool {fault}", where=f"{tool} {ascii(pointer)[1:-1]}", hint="have its author remove it"
            )


def fault_of(text: str, length: int = TEXT_LENGTH, *, opaque: bool = False) -> str | None:
    """Say what is wrong with ``text``; of one that is ``opaque`` (data, no prose) only what does not show counts."""
    for found in _SUSPECT.finditer(text):
        if not _belongs(text, found.start()):
            return f"holds {named(found[0])}, which {_conduct(found[0])}"
    if not text.isascii():
        if sum(map(text.count, _selectors(text))) > _IVS_AT_MOST:
            return f"holds more than {_IVS_AT_MOST} variation selectors, which do not show"
        if _piled_up(text):
            return f"piles up more than {_MARKS} marks on one letter"
    if opaque:
        return None
    if _PADDING.search(text):
        return "hides what follows behind a long stretch of blanks"
    if len(text) > length:
        return f"has {len(text):,} characters, more than {length:,}"
    blob = _BLOB.search(text)
    if blob is not None and len({_class(character) for character in blob[0]}) > 2:
        return "holds a long piece of encoded data that no person can read"
    return None


def escaped(text: str) -> str:
    """Return ``text`` for people's eyes: what does not show stands there as ``\\u{200b}``."""
    if _SUSPECT.search(text) is None:
        return text
    return _SUSPECT.sub(lambda found: found[0] if _belongs(text, found.start()) else f"\\u{{{ord(found[0]):x}}}", text)


def named(character: str) -> str:
    """Name a character that can't be shown."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


# --- what belongs where it stands -----------------------------------------------------------------------------


def _belongs(text: str, at: int) -> bool:
    """Whether the language or the sign around it needs the suspect character there."""
    character = text[at]
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    match character:
        case "\r":
            return after == "\n"
        case "\u200c":  # ZERO WIDTH NON-JOINER
            return _script(before, _JOINING) and _script(after, _JOINING)
        case "\u200d":  # ZERO WIDTH JOINER
            return (_script(before, _JOINING) and (_script(after, _JOINING) or not after.isalpha())) or (
                _pictographic(before) and _pictographic(after)
            )
        case "\u200b":  # ZERO WIDTH SPACE
            return _script(before, _WITHOUT_BLANKS) and _script(after, _WITHOUT_BLANKS)
        case "\u200e" | "\u200f" | "\u061c":  # marks of direction
            return not _SUSPECT.match(before) and not _SUSPECT.match(after) and _right_to_left(text, at)
        case "\ufe0e" | "\ufe0f":  # text or emoji: digits make keycaps
            return before != "" and (
                before in "0123456789#*" or unicodedata.category(before) in ("So", "Sm", "Po", "Pd")
            )
        case _ if "\ufe00" <= character <= "\ufe0d" or "\U000e0100" <= character <= "\U000e01ef":
            return _script(before, _IDEOGRAPHIC) or (
                character < "\ufe0e" and before != "" and unicodedata.category(before) == "Sm"
            )
        case _ if "\u180b" <= character <= "\u180f" and character != "\u180e":
            return _script(before, _MONGOLIAN)
        case _ if "\U000e0000" <= character <= "\U000e007f":
            begin = text.rfind("\U0001f3f4", max(0, at - 6), at)
            return begin >= 0 and (flag := _FLAGS.match(text, begin)) is not None and at < flag.end()
    return character in _VISIBLE_FORMATS


_IDEOGRAPHIC = re.compile("CJK")
_MONGOLIAN = re.compile("MONGOLIAN LETTER")


def _script(character: str, scripts: re.Pattern[str]) -> bool:
    return character != "" and scripts.match(unicodedata.name(character, "")) is not None


def _pictographic(character: str) -> bool:
    return character == "\ufe0f" or (character != "" and unicodedata.category(character) in ("So", "Sk", "Cn"))


def _right_to_left(text: str, at: int) -> bool:
    """Whether a letter that is read from the right stands near."""
    near = text[max(0, at - 24) : at + 24]
    return any(letter.isalpha() and unicodedata.bidirectional(letter) in ("R", "AL") for letter in near)


def _selectors(text: str) -> set[str]:
    return {c for c in set(text) if "\ufe00" <= c <= "\ufe0d" or "\U000e0100" <= c <= "\U000e01ef"}


def _piled_up(text: str) -> bool:
    height = 0
    for character in text:
        height = height + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if height > _MARKS:
            return True
    return False


def _class(character: str) -> str:
    return "a" if character.islower() else "A" if character.isupper() else "0" if character.isdigit() else "-"


def _conduct(character: str) -> str:
    if character in "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
        return "changes the direction of reading where no language needs it"
    return "steers terminals" if unicodedata.category(character) == "Cc" else "does not show"


# --- the texts of a definition --------------------------------------------------------------------------------

_OPAQUE = frozenset({"_meta", "icons"})


def _texts(definition: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield every string of a definition, keys too: its JSON pointer, itself, and whether it is data, no prose."""
    waiting: list[tuple[str, Any, bool]] = [("", definition, False)]
    while waiting:
        pointer, value, opaque = waiting.pop()
        if isinstance(value, str):
            yield pointer, value, opaque
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                below = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}" if len(pointer) < 1_000 else pointer
                yield below, key, opaque
                waiting.append((below, inner, opaque or (not pointer and key in _OPAQUE)))
        elif isinstance(value, list | tuple):
            waiting += [(f"{pointer}/{at}", inner, opaque) for at, inner in enumerate(value)]


# --- names that look like another ------------------------------------------------------------------------------

_ALIKE = str.maketrans({"I": "l", "1": "l", "|": "l", "0": "O"})


@lru_cache(maxsize=8_192)
def skeleton(name: str) -> str:
    """Return what two names share that eyes take for one: ``send_rnail`` and ``send_mail`` (UTS 39, section 4).

    Case and separators tell names apart: honest servers differ in nothing else.
    """
    if not name.isascii():
        apart = unicodedata.normalize("NFKD", name)
        name = "".join(character for character in apart if not unicodedata.combining(character))
    return name.translate(_ALIKE).replace("rn", "m").replace("vv", "w")


# --- what an approver should look at twice ----------------------------------------------------------------------

_PHRASES = {
    "tells the model to disregard something": (
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:previous|prior|above|earlier|other|all|any|system"
        r"|safety)\b.{0,40}\b(?:instruction|rule|prompt|guideline|message|polic|tool|direction)"
    ),
    "asks for secrecy towards the user": (
        r"\b(?:do not|don't|never|must not|without)\b.{0,30}\b(?:tell|mention|inform|reveal|notify|alert|ask)"
        r"(?:ing)?\b.{0,40}\b(?:user|human|person|anyone|this|them)\b"
    ),
    "orders calls of tools": (
        r"\b(?:before|prior to|after) (?:using|calling|invoking|you (?:use|call)) (?:any|all|every|each|other)\b"
        r"|\b(?:always|must|first) (?:call|use|run|invoke) this(?: tool)? (?:first|before|instead)"
        r"|\binstead of (?:the )?(?:other|any other|built-in|official)\b"
    ),
    "speaks as the system": (
        r"<\s*/?\s*(?:important|system|instructions?|secret|admin|critical)\s*>|\[/?(?:system|inst|important)\]"
        r"|\bsystem prompt\b|\byou are now\b|\bnew instructions?\s*:|<\|im_(?:start|end)\|>"
    ),
    "speaks of secrets": (
        r"(?:~|/home/\w{1,32}|/root)/\.(?:ssh|aws|gnupg|kube|config|cursor|netrc)\b|\bid_(?:rsa|ed25519)\b"
        r"|\.env\b.{0,40}\b(?:content|file|send|read|pass|include)|\b(?:read|send|include|attach|pass|copy|collect|upload)\b"
        r".{0,40}\b(?:passwords?|credentials|private keys?|api keys|access tokens|conversation history|chat history)\b"
    ),
    "asks to send something elsewhere": (
        r"\b(?:send|post|upload|forward|exfiltrate|bcc|email)\b.{0,60}\bto (?:https?://|\S{1,64}@)"
    ),
    "holds what rendered text does not show": (
        r"<!--|\[//\]: #|<[a-z]{1,10} [^>]{0,80}(?:display:\s*none|hidden\b|font-size:\s*0)"
    ),
}
_PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
_FLAGGED = 20


@cache
def _phrases() -> dict[str, re.Pattern[str]]:
    """Compiled when someone approves: every command imports this module."""
    return {what: re.compile(pattern, re.IGNORECASE | re.DOTALL) for what, pattern in _PHRASES.items()}


def flags_of(tool: ToolDefinition) -> list[str]:
    """Say what an approver should look at twice in a tool's definition; no flag means nothing, and refuses nothing."""
    if tool.origin is not None:
        return flags_in(tool.origin.value)
    return flags_in({"title": tool.title, "description": tool.description, "inputSchema": tool.parameters})


def flags_in(definition: Mapping[str, Any]) -> list[str]:
    """As :func:`flags_of`, for a definition as its server wrote it. At most twenty."""
    flags: list[str] = []
    for pointer, text, opaque in _texts(definition):
        if opaque or len(flags) >= _FLAGGED:
            continue
        where = escaped(pointer)[:200]
        plain = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text[:DESCRIPTION_LENGTH]))
        for what, pattern in _phrases().items():
            if found := pattern.search(plain):
                flags.append(f"{where} {what}: {escaped(found[0])[:120]!r}")
        if _PRIVATE_USE.search(text):
            flags.append(f"{where} holds characters whose look no standard says")
    return flags


def about_instructions(text: str | None) -> list[str]:
    """What an approver should know of a server's instructions; no client is given them."""
    if not text:
        return []
    fault = fault_of(text, DESCRIPTION_LENGTH)
    told = ([] if fault is None else [fault]) + flags_in({"instructions": text})
    return [f"what the server says of itself: {each}" for each in told]
