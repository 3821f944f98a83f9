"""One line of a stranger's bytes: a message, or a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.core import jsonrpc
from bascule.core.jsonrpc import ErrorResponse, Notification, Request, Response, decode
from bascule.hookspecs.errors import McpProtocolError

LINES = Path(__file__).parent.parent / "fixtures" / "hostile-lines"
EXPECTED: dict[str, dict[str, Any]] = json.loads((LINES / "expected.json").read_bytes())

BEYOND_ONE_LINE = {
    "010-blank-line.bin": "blank lines are dropped before",
    "011-blank-crlf.bin": "blank lines are dropped before",
    "020-partial-eof.bin": "framing knows that the newline is missing",
    "061-pretty-printed.bin": "several lines",
    "083-id-unknown.bin": "the session knows which ids are open",
    "084-id-negative.bin": "the session knows which ids are open",
    "086-answer-twice.bin": "several lines",
}
EITHER_VERDICT = {"052-dup-key.bin", "053-dup-id.bin", "055-dup-key-nested.bin"}
STORED = sorted(name for name, case in EXPECTED.items() if not case.get("generated"))

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    # A lone surrogate is no text that could be written.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


def line_of(name: str) -> bytes:
    return (LINES / name).read_bytes().replace(b"@ID@", b"7").rstrip(b"\n")


def answer(result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"result":' + result + b"}"


# --- the corpus ---------------------------------------------------------------------------------------


@pytest.mark.req("N6.5")
@pytest.mark.parametrize(
    "name", [name for name in STORED if name not in BEYOND_ONE_LINE | dict.fromkeys(EITHER_VERDICT)]
)
def test_a_stored_line_is_a_message_or_a_fault(name: str) -> None:
    if EXPECTED[name]["verdict"] == "kill":
        with pytest.raises(McpProtocolError):
            decode(line_of(name))
    else:
        assert decode(line_of(name))


@pytest.mark.parametrize("name", sorted(EITHER_VERDICT))
def test_of_a_repeated_key_only_one_value_goes_on(name: str) -> None:
    message = decode(line_of(name))
    assert isinstance(message, Response)
    assert decode(jsonrpc.encode_result(message.id, message.result)) == message


def test_a_pretty_printed_message_is_refused_line_by_line() -> None:
    for line in line_of("061-pretty-printed.bin").split(b"\n"):
        with pytest.raises(McpProtocolError):
            decode(line)


@pytest.mark.req("N6.5")
@pytest.mark.parametrize(
    ("line", "what"),
    [
        pytest.param(answer(b"[" + b"[]," * 630_000 + b"0]"), "elements", id="empty-arrays"),
        pytest.param(
            answer(b"{" + b",".join(b'"k%05d":0' % n for n in range(190_000)) + b"}"), "names", id="distinct-keys"
        ),
        pytest.param(answer(b"[" * 100_000), "recursion", id="depth-100k"),
        pytest.param(answer(b"[" * 900 + b"]" * 900), "inside one another", id="depth-900"),
        pytest.param(answer(b"9" * 401), "digits", id="401-digits"),
        pytest.param(answer(b'["' + b"9" * 5000 + b'",-' + b"9" * 5000 + b"]"), "digits", id="5000-digits"),
    ],
)
def test_what_costs_more_than_it_shows_is_refused(line: bytes, what: str) -> None:
    with pytest.raises(McpProtocolError, match=what):
        decode(line)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(", [{:" * 400_000, id="commas and brackets"),
        pytest.param('\\"' * 100_000 + "," * 300_000, id="escaped quotes"),
        pytest.param("7" * 1_000_000, id="digits"),
    ],
)
def test_a_long_text_may_hold_anything(text: str) -> None:
    message = decode(answer(json.dumps(text).encode()))
    assert isinstance(message, Response)
    assert message.result == text


@pytest.mark.timeout(5)  # strings that are looked at again from every quote in them would take minutes
def test_a_text_that_never_ends_is_refused_at_once() -> None:
    with pytest.raises(McpProtocolError):
        decode(b'{"jsonrpc":"2.0","id":7,"result":"' + b'\\"' * 300_000 + b"," * 300_000)


def test_numbers_survive_exactly() -> None:
    exact = [10**399, -(10**30), 2**53 + 1, 0.1, 5e-324]
    message = decode(answer(json.dumps(exact).encode()))
    assert isinstance(message, Response)
    assert message.result == exact
    assert [type(each) for each in message.result] == [type(each) for each in exact]


# --- shapes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"jsonrpc":"2.0","id":"a","method":"m"}', Request("a", "m", None)),
        (b'{"jsonrpc":"2.0","id":0,"method":"m","params":{"x":null}}', Request(0, "m", {"x": None})),
        (b'{"jsonrpc":"2.0","method":"m","params":[1]}', Notification("m", [1])),
        (b'{"jsonrpc":"2.0","id":1,"result":null}', Response(1, None)),
        (b'{"jsonrpc":"2.0","id":1,"error":"boom"}', ErrorResponse(1, "boom")),
        (b' {"jsonrpc":"2.0","id":1,"result":{},"extra":[]} \r', Response(1, {})),
    ],
)
def test_each_kind_of_message_is_told_apart(line: bytes, message: jsonrpc.Message) -> None:
    assert decode(line) == message
    assert type(decode(line)) is type(message)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":null,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"m"}',
        b'{"jsonrpc":"2.0","id":true,"method":"m"}',
        b'{"jsonrpc":"2.0","id":[],"method":"m"}',
        b'{"jsonrpc":"2.0","method":null}',
        b'{"jsonrpc":"2.0","method":"m","error":{}}',
        b'{"jsonrpc":"2.1","id":1,"result":1}',
        b'{"jsonrpc":null,"id":1,"result":1}',
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":null}',
        b'{"jsonrpc":"2.0","id":"1","error":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":1,"skipped":1e999}',
        b'{"jsonrpc":"2.0","id":1,"result":1,"skipped":"\xff"}',
        b"",
    ],
)
def test_a_message_of_the_wrong_shape_is_a_fault(line: bytes) -> None:
    with pytest.raises(McpProtocolError, match="not a JSON-RPC message"):
        decode(line)


def test_the_error_code_tells_bad_json_from_a_bad_message() -> None:
    codes = []
    for line in (b"{", b"[]", b'{"jsonrpc":"2.0"}', answer(b"1" * 500)):
        with pytest.raises(McpProtocolError) as caught:
            decode(line)
        codes.append(jsonrpc.error_code(caught.value))
    assert codes == [jsonrpc.PARSE_ERROR, jsonrpc.INVALID_REQUEST, jsonrpc.INVALID_REQUEST, jsonrpc.INVALID_REQUEST]


# --- batches ------------------------------------------------------------------------------------------


def batch_of(count: int) -> bytes:
    return b"[" + b",".join([answer(b"1")] * count) + b"]"


def test_an_array_is_read_only_where_batches_are() -> None:
    assert decode(batch_of(2), batch=True) == [Response(7, 1)] * 2
    assert decode(answer(b"1"), batch=True) == Response(7, 1)
    with pytest.raises(McpProtocolError):
        decode(batch_of(2))


@pytest.mark.parametrize("line", [b"[]", batch_of(jsonrpc.MAX_BATCH + 1), b'"x"', b"[" + answer(b"1")])
def test_a_batch_holds_1_to_100_messages(line: bytes) -> None:
    assert len(decode(batch_of(jsonrpc.MAX_BATCH), batch=True)) == jsonrpc.MAX_BATCH  # type: ignore[arg-type]
    with pytest.raises(McpProtocolError):
        decode(line, batch=True)


@pytest.mark.parametrize("member", [b"1", b"[]", b"{}", b'{"jsonrpc":"2.0","id":null,"method":"ping"}'])
def test_a_member_that_is_no_message_is_a_fault_beside_the_others(member: bytes) -> None:
    first, fault, last = decode(b"[%b,%b,%b]" % (answer(b"1"), member, answer(b"2")), batch=True)  # type: ignore[misc]
    assert (first, last) == (Response(7, 1), Response(7, 2))
    assert isinstance(fault, McpProtocolError)
    assert jsonrpc.error_code(fault) == jsonrpc.INVALID_REQUEST


# --- any bytes, any value -----------------------------------------------------------------------------


@given(st.binary() | st.binary().map(answer) | json_values.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_is_a_message_or_a_fault(line: bytes) -> None:
    try:
        message = decode(line)
    except McpProtocolError:
        return
    assert isinstance(message, Request | Notification | Response | ErrorResponse)


@settings(deadline=None)
@given(json_values)
def test_what_is_written_is_one_line_and_is_read_again(value: Any) -> None:
    written = {
        jsonrpc.encode_result(3, value): Response(3, value),
        jsonrpc.encode_request("r", "m", {"value": value}): Request("r", "m", {"value": value}),
        jsonrpc.encode_notification("m", {"value": value}): Notification("m", {"value": value}),
        jsonrpc.encode_error(4, -32603, "text", value or 0): ErrorResponse(
            4, {"code": -32603, "message": "text", "data": value or 0}
        ),
    }
    for line, message in written.items():
        assert b"\n" not in line
        assert decode(line) == message


def test_an_explicit_null_stays_and_an_omitted_member_stays_out() -> None:
    assert jsonrpc.encode_request(1, "m", {"a": None}) == b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":null}}'
    assert jsonrpc.encode_request(1, "m") == b'{"jsonrpc":"2.0","id":1,"method":"m"}'
    assert jsonrpc.encode_notification("m") == b'{"jsonrpc":"2.0","method":"m"}'
    assert jsonrpc.encode_result(1, None) == b'{"jsonrpc":"2.0","id":1,"result":null}'
    assert jsonrpc.encode_error(None, jsonrpc.PARSE_ERROR, "no") == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'
    )


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    "value", [object(), "\ud800", _endless(), {object(): 1}], ids=["object", "surrogate", "endless", "key"]
)
def test_what_is_no_json_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        jsonrpc.encode_result(1, value)
