"""Names of tools: what a server may call one, its id with us, and its alias for narrower consumers (N5.1).

=========================== =================================== =======================================
the server's name           the tool's id                       its alias
=========================== =================================== =======================================
``search``                  ``fx.search``                       ``fx__search``
``read.file``               ``fx.read.file``                    ``fx_read_file_`` and a hash
``weird/name with space``   ``fx.weird%2Fname%20with%20space``  ``fx_weird_name_with_space_`` and a hash
=========================== =================================== =======================================
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from urllib.parse import quote, unquote

from ..hookspecs.errors import McpToolInvalid
from .lookalikes import lookalikes

PLUGIN_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""Use ``fullmatch``. No dot: the first dot of a tool's id ends the plugin's part."""

REMOTE_NAME_LENGTH = 128
ALIAS_LENGTH = 64

_WORD = re.compile(r"[A-Za-z0-9_-]+")
_NOT_ALIAS = re.compile(r"(?:%[0-9A-F]{2}|[^A-Za-z0-9-])+")
_DIGEST_BYTES = 10  # 80 bits, 16 characters: a second id with the same digest is out of anyone's reach

_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)
"""What Unicode counts as letter, mark or symbol and no one sees: fillers, variation selectors, the blank of Braille."""

_EAST_ASIAN = re.compile("BOPOMOFO|CJK|HANGUL|HIRAGANA|IDEOGRAPHIC|KATAKANA|KATAKANA-HIRAGANA")
_BESIDE_LATIN = re.compile(
    "ARABIC|BENGALI|DEVANAGARI|EAST-ASIAN|ETHIOPIC|GEORGIAN|GUJARATI|GURMUKHI|HEBREW|KANNADA|KHMER|LAO|MALAYALAM"
    "|MYANMAR|ORIYA|SINHALA|TAMIL|TELUGU|THAANA|THAI|TIBETAN"
)
"""Scripts that UTS 39 lets stand beside Latin ("moderately restrictive"): no letter of theirs is taken for Latin."""


def tool_id(plugin_id: str, remote_name: str) -> str:
    """Return the id of the tool that the plugin's server calls ``remote_name``."""
    return f"{plugin_id}.{escape(remote_name)}"


def escape(remote_name: str) -> str:
    """Percent-escape everything outside ``[A-Za-z0-9_.-]``, as UTF-8. Two names never give one result."""
    # quote() lets "~" stand; surrogates are refused elsewhere, but must not break a mere conversion
    return quote(remote_name, safe="", errors="surrogatepass").replace("~", "%7E")


def unescape(escaped: str) -> str:
    """Undo :func:`escape`; what is no ``%XX`` stands for itself, so that a raw name comes back as it is.

    Raises ``ValueError`` where the escaped bytes are not UTF-8.
    """
    return unquote(escaped, errors="surrogatepass")


def alias(tool_id: str) -> str:
    """Return the tool's name for consumers that take only ``[A-Za-z0-9_-]{1,64}``.

    ``plugin__tool`` where its first ``__`` gives the id back; else a readable beginning and a hash, which never
    holds ``__``. So two ids share an alias only where their hashes do.
    """
    plugin, _, tool = tool_id.partition(".")
    readable = f"{plugin}__{tool}"
    ambiguous = "__" in plugin or plugin.endswith("_")
    if _WORD.fullmatch(plugin) and _WORD.fullmatch(tool) and not ambiguous and len(readable) <= ALIAS_LENGTH:
        return readable
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]
    suffix = base64.b32encode(digest).decode("ascii").lower()
    start = _NOT_ALIAS.sub("_", tool_id).strip("_-")[: ALIAS_LENGTH - len(suffix) - 1].rstrip("_-")
    return f"{start}_{suffix}" if start else suffix


def check_remote_name(name: str) -> None:
    """Refuse a tool name that a person can't read for what it is.

    Raises ``McpToolInvalid``: names are 1–128 printable characters, without blanks at the ends, and look like no
    other name (UTS 39).
    """
    fault = _shape_fault(name) or _script_fault(name)
    if fault:
        problem, hint = fault
        shown = ascii(name if len(name) <= REMOTE_NAME_LENGTH else name[:20] + "…")
        raise McpToolInvalid(f"the tool name {shown} {problem}", hint=hint)


def _shape_fault(name: str) -> tuple[str, str] | None:
    if not 1 <= len(name) <= REMOTE_NAME_LENGTH:
        return f"has {len(name)} characters", f"name the tool with 1 to {REMOTE_NAME_LENGTH} characters"
    hidden = next((character for character in name if not _shows(character)), None)
    if hidden is not None:
        return f"holds {_described(hidden)}, which does not show", "name the tool with printable characters"
    if name != name.strip():
        return "begins or ends with a blank", "name the tool without blanks at its ends"
    folded = unicodedata.normalize("NFKC", name)
    if folded != name:
        return "is written with compatibility characters (NFKC changes it)", f"name the tool {folded!a}"
    return None


def _script_fault(name: str) -> tuple[str, str] | None:
    scripts = {_script(character) for character in name if character.isalpha()}
    others = scripts - {"LATIN"}
    apart = [script for script in others if not _BESIDE_LATIN.fullmatch(script)]
    if len(others) > 1 or (apart and "LATIN" in scripts):
        mixed = " and ".join(sorted(script.capitalize() for script in scripts))
        return f"mixes {mixed} letters", "name the tool in letters of one script"
    foreign = [character for character in name if not character.isascii()]
    if foreign and lookalikes().issuperset(foreign):
        return "looks like ASCII and is not", "name the tool in ASCII"
    return None


def _shows(character: str) -> bool:
    return character.isprintable() and character not in _INVISIBLE


def _script(letter: str) -> str:
    """Name the script of ``letter``: Python has no table of scripts, but names begin with them."""
    script = unicodedata.name(letter, "UNKNOWN").split(" ", 1)[0]
    return "EAST-ASIAN" if _EAST_ASIAN.fullmatch(script) else script


def _described(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
