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
from collections.abc import Iterator
from urllib.parse import quote, unquote

from ..hookspecs.errors import McpToolInvalid

PLUGIN_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""Use ``fullmatch``. No dot: the first dot of a tool's id ends the plugin's part."""

REMOTE_NAME_LENGTH = 128
ALIAS_LENGTH = 64

_READABLE = re.compile(r"(?:_?[A-Za-z0-9-])+\.[A-Za-z0-9_-]+")
_NOT_ALIAS = re.compile(r"(?:%[0-9A-F]{2}|[^A-Za-z0-9-])+")

_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""What Unicode counts as letter, mark or symbol and no one sees: fillers, variation selectors, the blank of Braille."""

_LOOKS_LIKE_ASCII = frozenset(
    "×ıƄƍƖƦƧƷƼƽǀǃȜȢȣɁɑɡɣɩɪɯʋʏʔʹʻʼʽʾ˂˃˄ˆˈˊˋː˗˴˸ͿΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγινορσυϜϨϳϺЅІЈАВЕЗКМНОРСТУХЬабгеорсухѕіјѡѴѵҮүһҽӀӏӠԁ"
    "ԌԛԜԝՍՏՕ՚՝ագզհոռսցքօ։۰۱۵۷०ॽ০৪৭੦੧੪૦ଠ୦୨௦౦೦ഠ൦൭๐໐ဝ၀ყჿሀዐᎠᎡᎢᎥᎩᎪᎫᎬᎮᎳᎷᎻᎽᏀᏂᏃᏎᏏᏒᏔᏕᏙᏚᏞᏟᏢᏦᏧᏮᏳᏴ᐀ᐯᐳᐸᑊᑌᑭᑯᑲᒍᒪᒿᕁᕼᕽᖇᖯᖴᗅᗞᗪᗰᗷ᙭᙮ᚲᚷ"
    "ᛁᛌᛕᛖ᛬᛭᜵᠃᠉ᴄᴏᴑᴜᴠᴡᴢᴦᶃᶌẝỿ‐‒–‘’‚‛′‵‹›⁁⁃⁄⁎⁓⁚℮−∕∖∗∣∨∪∶∼⊤⋁⋃⋿⍳⍴⍺⏽╱╳❨❩❮❯❲❳❴❵➕➖⟋⟍⟙⤫⤬⧵⧸⧹⨯ⲅⲎⲒⲔⲘⲚⲞⲟⲢⲣⲤⲥⲦⲨⲬⲺⳆⳊⳌⳐⳒⴸⴹⵏⵑⵔⵕⵝ⹀〇〔"
    "〕〳゠ノ㇓㇔丶丿ꓐꓑꓒꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴꓸꓹꓽ꓿꘎ꙄꙇꛟꛫꛯꜱꝚꝪꝮꝸ꞉ꞌꞘꞙꞟꞫꞲꞳꞴꬲꬵꬽꭇꭈꭎꭒꭚꭵꮁꮃꮓꮩꮪꮯ"
)
"""From ``confusables.txt`` of Unicode Technical Standard 39 (Unicode License v3): the single characters of the Basic
Multilingual Plane that look like one of ASCII. Those that NFKC changes or that do not show are refused anyway."""

_APART = re.compile(
    "ARABIC|BENGALI|BOPOMOFO|CJK|DEVANAGARI|ETHIOPIC|GEORGIAN|GUJARATI|GURMUKHI|HANGUL|HEBREW|HIRAGANA|IDEOGRAPHIC"
    "|KANNADA|KATAKANA.*|KHMER|LAO|MALAYALAM|MYANMAR|ORIYA|SINHALA|TAMIL|TELUGU|THAANA|THAI|TIBETAN"
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
    if _READABLE.fullmatch(tool_id) and len(tool_id) < ALIAS_LENGTH:
        return tool_id.replace(".", "__")
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).digest()
    # 80 bits, 16 characters: a second id with the same hash is out of anyone's reach
    suffix = base64.b32encode(digest[:10]).decode("ascii").lower()
    start = _NOT_ALIAS.sub("_", tool_id).strip("_-")[: ALIAS_LENGTH - len(suffix) - 1].rstrip("_-")
    return f"{start}_{suffix}" if start else suffix


def check_remote_name(name: str) -> None:
    """Refuse a tool name that a person can't read for what it is.

    Raises ``McpToolInvalid``: names are 1–128 printable characters, without blanks at the ends, and look like no
    other name (UTS 39).
    """
    if fault := next(_faults(name), None):
        shown = ascii(name if len(name) <= REMOTE_NAME_LENGTH else name[:20] + "…")
        raise McpToolInvalid(f"the tool name {shown} {fault[0]}", hint=fault[1])


def _faults(name: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with ``name``, and the cure; the first fault explains the others."""
    if not 1 <= len(name) <= REMOTE_NAME_LENGTH:
        yield f"has {len(name)} characters", f"name the tool with 1 to {REMOTE_NAME_LENGTH} characters"
    for character in name:
        if _UNSEEN.match(character) or not character.isprintable():
            code = f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
            yield f"holds {code}, which does not show", "name the tool with printable characters"
    if name != name.strip():
        yield "begins or ends with a blank", "name the tool without blanks at its ends"
    if (folded := unicodedata.normalize("NFKC", name)) != name:
        yield "is written with compatibility characters (NFKC changes it)", f"name the tool {folded!a}"
    # Python has no table of scripts, but the names of letters begin with theirs
    scripts = {unicodedata.name(letter, "UNKNOWN").split(" ", 1)[0] for letter in name if letter.isalpha()}
    mixed = sorted(script.capitalize() for script in scripts if not _APART.fullmatch(script))
    if len(mixed) > 1:
        yield f"mixes {' and '.join(mixed)} letters", "name the tool in letters of one script"
    foreign = [character for character in name if not character.isascii()]
    if foreign and _LOOKS_LIKE_ASCII.issuperset(foreign):
        yield "looks like ASCII and is not", "name the tool in ASCII"
