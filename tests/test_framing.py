"""Chunks become lines, wherever they were cut (N6.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.builtin_plugins.stdio_client.framing import LineFramer
from bascule.hookspecs import ChannelFault

LINE = st.one_of(
    st.binary(max_size=20),
    st.tuples(st.binary(max_size=3), st.integers(0, 9_000)).map(lambda made: made[0] * made[1]),
).map(lambda line: line.replace(b"\n", b"\r"))


@pytest.mark.req("N6.5")
@given(lines=st.lists(LINE, max_size=80), cuts=st.lists(st.integers(1, 70_000), max_size=8))
def test_lines_come_out_as_they_went_in_wherever_they_were_cut(lines: list[bytes], cuts: list[int]) -> None:
    sent = b"".join(line + b"\n" for line in lines)
    framer = LineFramer(1_000_000)
    found: list[bytes] = []
    for cut in cuts:
        found += framer.feed(sent[:cut])
        sent = sent[cut:]
    found += framer.feed(sent)
    framer.finish()
    assert found == lines


@pytest.mark.req("N6.5")
@pytest.mark.parametrize("before", [0, 1, 50], ids="{} lines before".format)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "without an end"])
def test_a_line_that_is_too_long_is_refused(before: int, whole: bool) -> None:
    framer = LineFramer(10_000)
    assert framer.feed(b"x" * 10_000 + b"\n") == [b"x" * 10_000]
    with pytest.raises(ChannelFault, match="more than 10,000 bytes"):
        framer.feed(b"a\n" * before + b"x" * 10_001 + b"\n" * whole)
