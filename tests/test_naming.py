"""Tool names: ids are stable and injective, aliases are short and don't collide, and no name passes for another."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bascule.core.naming import PLUGIN_ID, alias, check_remote_name, escape, tool_id, unescape
from bascule.hookspecs import McpToolInvalid

LOOK_LIKE_ASCII = "аеорсухіјѕһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧοɡıԌՍօᎪᏟꓐⲟ–’′⁄−０०۱"
ANY_TEXT = st.text(st.characters(), max_size=140)  # surrogates and control characters, too
PLUGIN_IDS = st.from_regex(PLUGIN_ID, fullmatch=True)
PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


@pytest.mark.req("N5.1")
@pytest.mark.parametrize("name", ["search", "read.file", "read_file", "Read-File", "a", "9", "...", "-_."])
def test_a_plain_name_stands_as_it_is(name: str) -> None:
    assert tool_id("fx", name) == f"fx.{name}"


@pytest.mark.req("N5.1")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("weird/name with space", "fx.weird%2Fname%20with%20space"),
        ("100%", "fx.100%25"),
        ("a%20b", "fx.a%2520b"),
        ("~home", "fx.%7Ehome"),
        ("поиск", "fx.%D0%BF%D0%BE%D0%B8%D1%81%D0%BA"),
        ("a+b&c=d", "fx.a%2Bb%26c%3Dd"),
    ],
)
def test_any_other_name_is_percent_escaped(name: str, expected: str) -> None:
    assert tool_id("fx", name) == expected


@pytest.mark.req("N5.1")
@given(ANY_TEXT)
@example("\ud83d\ude00")  # two halves, which are not the character that they would make
@example("%41")
def test_escaping_loses_nothing_and_uses_plain_characters_alone(name: str) -> None:
    escaped = escape(name)
    assert unescape(escaped) == name
    assert re.fullmatch(r"([A-Za-z0-9_.-]|%[0-9A-F]{2})*", escaped)
    assert escape(unescape(escaped)) == escaped


@pytest.mark.req("N5.1")
@given(PLUGIN_IDS, ANY_TEXT)
def test_the_first_dot_ends_the_plugins_part(plugin_id: str, name: str) -> None:
    plugin, _, remote = tool_id(plugin_id, name).partition(".")
    assert (plugin, unescape(remote)) == (plugin_id, name)


def test_an_escape_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        unescape("%FF")


@pytest.mark.req("N5.1")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fx.search", "fx__search"),
        ("fx._x", "fx___x"),
        ("a-b.c-d", "a-b__c-d"),
        ("fx.read.file", "fx_read_file_rtlnrsygqyuaznbb"),
        ("fx.weird%2Fname%20with%20space", "fx_weird_name_with_space_ikkkgntxwbj446be"),
        ("fx.%D0%BF%D0%BE%D0%B8%D1%81%D0%BA", "fx_gc37vy7esa62q6lz"),
    ],
)
def test_an_alias_never_changes(name: str, expected: str) -> None:
    assert alias(name) == expected


@pytest.mark.req("N5.1")
@given(st.one_of(ANY_TEXT, st.builds(tool_id, PLUGIN_IDS, ANY_TEXT)))
def test_an_alias_fits_the_narrowest_consumer(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", alias(name))


@pytest.mark.req("N5.1")
@given(st.one_of(ANY_TEXT, st.text("ab_-.", max_size=80), st.builds(tool_id, PLUGIN_IDS, st.text("ab_-", max_size=60))))
def test_a_readable_alias_gives_its_id_back_and_a_hashed_one_looks_like_none(name: str) -> None:
    short = alias(name)
    plugin, separator, tool = short.partition("__")
    if separator:
        assert f"{plugin}.{tool}" == name
    else:
        assert re.search(r"(^|_)[a-z2-7]{16}$", short)


@pytest.mark.req("N5.1")
def test_ids_that_are_easily_confused_have_different_aliases() -> None:
    ids = ["".join(letters) for n in range(8) for letters in itertools.product("a_.-", repeat=n)]
    assert len({alias(name) for name in ids}) == len(ids) == sum(4**n for n in range(8))


@pytest.mark.req("N5.1")
def test_an_alias_is_readable_up_to_64_characters() -> None:
    fits, too_long = "fx." + "x" * 60, "fx." + "x" * 61
    assert alias(fits) == "fx__" + "x" * 60
    assert len(alias(too_long)) == 64
    assert alias(too_long).startswith("fx_xxx")
    assert "__" not in alias(too_long)


@pytest.mark.req("N5.1")
@pytest.mark.parametrize("length", range(30, 60))
def test_a_hashed_alias_looks_hashed_wherever_it_is_cut(length: int) -> None:
    for sign in "._-":
        assert "__" not in alias(f"fx..{'a' * length}{sign}{'b' * 40}")


@pytest.mark.req("N5.1")
@pytest.mark.parametrize(
    "name",
    [
        "search",
        "weird/name with space",
        "a",
        "x" * 128,
        "get_résumé",
        "поиск_файлов",
        "αναζήτηση",
        "搜索",
        "検索ツール",
        "검색",
        "search_搜索",
        "खोज_api",
        "بحث",
        "100%",
        "a~b",
        "send ✉",
        "'\"\\",
    ],
)
def test_an_honest_name_passes(name: str) -> None:
    check_remote_name(name)


@pytest.mark.req("N5.1")
@pytest.mark.parametrize(
    ("name", "problem", "cure"),
    [
        ("", "has 0 characters", "1 to 128"),
        ("x" * 129, "has 129 characters", "1 to 128"),
        (" add", "begins or ends with a blank", "without blanks"),
        ("add ", "begins or ends with a blank", "without blanks"),
        ("a\nb", "U+000A", "printable"),
        ("a\x00b", "U+0000", "printable"),
        ("a\x1b[31mb", "U+001B", "printable"),
        ("add\u200b", "ZERO WIDTH SPACE", "printable"),
        ("a\u00addd", "SOFT HYPHEN", "printable"),
        ("add\u202e", "RIGHT-TO-LEFT OVERRIDE", "printable"),
        ("add\ufe0f", "VARIATION SELECTOR-16", "printable"),
        ("add\U000e0041", "TAG LATIN CAPITAL LETTER A", "printable"),
        ("a\u115fdd", "HANGUL CHOSEONG FILLER", "printable"),
        ("a\u00a0b", "NO-BREAK SPACE", "printable"),
        ("a\u2028b", "LINE SEPARATOR", "printable"),
        ("a\ud800b", "U+D800", "printable"),
        ("a\ue000b", "U+E000", "printable"),
        ("ﬁle", "compatibility", "'file'"),
        ("ａｄｄ", "compatibility", "'add'"),
        ("cafe\u0301", "compatibility", r"'caf\xe9'"),
        ("аdd", "mixes Cyrillic and Latin", "one script"),
        ("αdd", "mixes Greek and Latin", "one script"),
        ("Ꭺdd", "mixes Cherokee and Latin", "one script"),
        ("օdd", "mixes Armenian and Latin", "one script"),
        ("поискα", "mixes Cyrillic and Greek", "one script"),
        ("сору", "looks like ASCII", "in ASCII"),
        ("сору_2", "looks like ASCII", "in ASCII"),
        ("ᏟᎪᏞᏞ", "looks like ASCII", "in ASCII"),
        ("ΑΒΕ", "looks like ASCII", "in ASCII"),
        ("ɡet", "looks like ASCII", "in ASCII"),
        ("list‐files", "looks like ASCII", "in ASCII"),
    ],
)
def test_a_name_that_deceives_is_refused_with_its_cure(name: str, problem: str, cure: str) -> None:
    with pytest.raises(McpToolInvalid) as caught:
        check_remote_name(name)
    assert caught.value.code == "MCP_TOOL_INVALID"
    assert problem in caught.value.message
    assert cure in str(caught.value.hint)
    assert str(caught.value).isascii() or len(name) > 128  # what deceives is shown by its codes


@pytest.mark.req("N5.1")
@given(st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzABC0123456789_-./ "), min_size=1, max_size=128))
def test_ascii_names_without_blanks_at_the_ends_all_pass(name: str) -> None:
    if name == name.strip():
        check_remote_name(name)
    else:
        with pytest.raises(McpToolInvalid):
            check_remote_name(name)


@pytest.mark.req("N5.1")
@given(st.text(st.sampled_from(LOOK_LIKE_ASCII), min_size=1, max_size=20))
def test_nothing_made_of_look_alikes_passes(name: str) -> None:
    with pytest.raises(McpToolInvalid):
        check_remote_name(name)
