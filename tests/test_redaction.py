"""What is kept of calls holds no secrets, stays JSON, and costs little to make so."""

import base64
import json
import time
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.core import redaction
from bascule.core.contracts import compiled
from bascule.core.redaction import REDACTED, Redactor

KNOWN = "s3cr3t/v+lue of Ann"

# Put together here, so that no scanner takes this file for a leak.
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc+/=\n-----END RSA PRIVATE KEY-----"


def dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def redact(value: object, *secrets: str) -> object:
    return json.loads(Redactor(secrets).redact(dumps(value)))


def test_without_the_fast_engine_the_same_is_found(monkeypatch):
    """On a platform that lacks it, Python's own search decides which texts are looked at."""
    texts = [dumps({"a": each}) for each in ("nothing", f"Bearer {JWT}", AWS, PEM, "x@y", "ghp_" + "a" * 36)]
    texts.append(dumps({"password": "x"}))
    quick = [Redactor().redact(text) for text in texts]
    monkeypatch.setattr(compiled, "engine", lambda: None)
    redaction._search.cache_clear()
    try:
        assert [Redactor().redact(text) for text in texts] == quick
    finally:
        redaction._search.cache_clear()


# --- by name ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        "password PASSWORD db_password dbPassword DB-PASSWORD pAsSwOrD passwd pwd MYSQL_PWD passphrase pass SMTP_PASS",
        "secret clientSecret client_secret SECRET_KEY credential credentials awsCredentials cookie Set-Cookie",
        "token TOKEN accessToken access_token ACCESS_TOKEN refresh-token x-auth-token authtoken",
        "api_key apiKey apikey API-KEY x-api-key OPENAI_API_KEY private_key privateKey PRIVATE-KEY sshKey",
        "authorization Authorization proxy-authorization authorisation auth",
    ],
)
def test_the_value_under_a_telling_name_is_taken(names):
    for name in names.split():
        assert redact({name: "hunter2", "user": "ann"}) == {name: REDACTED, "user": "ann"}


@pytest.mark.parametrize(
    "names",
    [
        "tokens_used token_count next_page_token nextPageToken progressToken tokenType",
        "tokenizer secretary author key keyboard monkey compass encrypted PWD OLDPWD nextCursor path",
    ],
)
def test_the_value_under_an_innocent_name_stays(names):
    for name in names.split():
        assert redact({name: "hunter2"}) == {name: "hunter2"}


def test_numbers_of_tokens_stay_and_numbers_that_are_passwords_go():
    value = {
        "tokens": 512,
        "max_tokens": 9,
        "promptTokens": 1.5,
        "token": 7,
        "password": 1234,
        "secret": None,
        "has_password": True,
        "cookie": False,
    }
    assert redact(value) == {**value, "password": REDACTED}


def test_objects_and_arrays_under_a_telling_name_go_as_a_whole():
    value = {"credentials": {"user": "ann", "x": ["}", {"y": '"]'}]}, "cookies": [["a", "b"], {}], "rest": [1]}
    assert redact(value) == {"credentials": REDACTED, "cookies": REDACTED, "rest": [1]}


def test_values_with_quotes_and_backslashes_go_whole():
    value = {"password": 'a"b\\"c\\', "next": "stays", "token": "\\\\", "last": '\\"'}
    assert redact(value) == {"password": REDACTED, "next": "stays", "token": REDACTED, "last": '\\"'}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_json_inside_a_string_is_looked_into(depth):
    inner: object = {"password": 'hunter2 "quoted\\', "list": {"token": ["hunter2", {"a": "]"}]}, "user": "ann"}
    value = inner
    for _ in range(depth):
        value = {"text": dumps(value)}
    shown = redact(value)
    for _ in range(depth):
        shown = json.loads(shown["text"])
    assert shown == {"password": REDACTED, "list": {"token": REDACTED}, "user": "ann"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("PATH=/bin\nDB_PASSWORD=hunter2\nPWD=/plugins/x", f"PATH=/bin\nDB_PASSWORD={REDACTED}\nPWD=/plugins/x"),
        ("Authorization: Basic YW5uOmh1bnRlcjI=\nAccept: */*", f"Authorization: {REDACTED}\nAccept: */*"),
        ("Cookie: a=b; c=d\r\nHost: x", f"Cookie: {REDACTED}\r\nHost: x"),
        ("{'password': 'hunter 2', 'x': 1}", f"{{'password': '{REDACTED}', 'x': 1}}"),
        ("https://x/y?api_key=hunter2&z=1", f"https://x/y?api_key={REDACTED}&z=1"),
        ("password\t = hunter2 x", f"password\t = {REDACTED} x"),
        ("AUTHORIZATION=Basic YW5uOmh1bnRlcjI= x", f"AUTHORIZATION={REDACTED} x"),
        ('got {"token": {"a": "hunter2",\n  "b": "hunter2"\n}\nstays', f'got {{"token": {REDACTED}\nstays'),
        ("Enter password: ", "Enter password: "),
        ("max_tokens=100 tokens: 7", "max_tokens=100 tokens: 7"),
    ],
)
def test_names_are_known_in_plain_text_inside_a_string(text, shown):
    assert redact({"text": text, "user": "ann"}) == {"text": shown, "user": "ann"}


def test_plain_text_that_is_no_json_is_redacted_too():
    text = 'connecting, api_key="abc def" user=ann\npassword: hunter2\nBearer abcdefgh12345 done'
    assert Redactor().redact(text) == (
        f'connecting, api_key="{REDACTED}" user=ann\npassword: {REDACTED}\nBearer {REDACTED} done'
    )


# --- by shape ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        (AWS, REDACTED),
        ("ghp_" + "a1B2" * 9, REDACTED),
        ("github_pat_" + "11ABC_" * 6, REDACTED),
        ("xoxb" + "-123456789012-abcdefABCDEF", REDACTED),
        ("sk-" + "ant-api03-" + "aB3_" * 8, REDACTED),
        ("sk-" + "proj-" + "aB3-" * 8, REDACTED),
        ("AIza" + "SyA-1234567890_abcdefghijklmnopqrs", REDACTED),
        (JWT, REDACTED),
        (PEM, REDACTED),
        ("Bearer " + "mF_9.B5f-4.1JqM=", f"Bearer {REDACTED}"),
        ("sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc", REDACTED),
        ("postgres://ann:hunter2@db/x", f"postgres://ann:{REDACTED}@db/x"),
    ],
)
def test_tokens_of_a_known_shape_are_taken_from_any_text(secret, shown):
    for before, after in (("see ", " there"), ("line\n", "\nline"), ('"', '"'), ("", "")):
        assert redact({"note": f"{before}{secret}{after}"}) == {"note": f"{before}{shown}{after}"}
    assert secret not in Redactor().redact(f"stderr: {secret}\n")


@pytest.mark.parametrize(
    "text",
    [
        "risk-assessment-of-a-very-long-name and a task-list-with-many-words",
        "eyJvZmZzZXQiOjEwMCwibGltaXQiOjUwfQ",
        "bearer of good news",
        "ann@example.org wrote to https://example.org/a:b",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "AKIA and ghp_short and sk-short",
    ],
)
def test_what_only_looks_a_little_like_a_token_stays(text):
    assert redact({"note": text}) == {"note": text}


# --- by value ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [6, 7, 8, 15, 40])
@pytest.mark.parametrize(
    "encode",
    {
        "as it is": str,
        "reversed": lambda value: value[::-1],
        "hex": lambda value: value.encode().hex(),
        "HEX": lambda value: value.encode().hex().upper(),
        "url": lambda value: urllib.parse.quote(value, safe=""),
        "form": urllib.parse.quote_plus,
        "base64": lambda value: base64.b64encode(value.encode()).decode(),
        "base64url, one in": lambda value: base64.urlsafe_b64encode(b"u" + value.encode() + b"xyz").decode(),
        "base64, two in": lambda value: base64.b64encode(b"u:" + value.encode() + b"x").decode(),
    }.values(),
)
def test_a_value_that_was_handed_out_is_found_in_any_encoding(length, encode):
    secret = ('p+~é"/\\ kZ' * 4)[:length]
    shown = Redactor([secret]).redact(dumps({"note": f"<{encode(secret)}>", "text": dumps([encode(secret)])}))
    json.loads(shown)
    plain = shown.replace("\\\\", "\\").replace('\\"', '"').replace("\\\\", "\\")
    core = encode(secret).strip("=")[4:-4] or encode(secret)
    assert core not in plain
    assert REDACTED in shown


def test_short_values_are_not_looked_for_and_others_may_be_added_later():
    redactor = Redactor(["abc"])
    text = dumps({"note": f"abc {KNOWN}"})
    assert redactor.redact(text) == text
    redactor.add(KNOWN)
    assert redactor.redact(text) == dumps({"note": f"abc {REDACTED}"})


def test_one_of_a_hundred_values_is_found_wherever_it_stands():
    secrets = [f"value-{number:03}-{number * 7919:x}-of-the-vault" for number in range(100)]
    redactor = Redactor(secrets)
    for offset in range(20):
        text = dumps({"note": "x" * offset + secrets[offset * 5] + "y"})
        assert redactor.redact(text) == dumps({"note": "x" * offset + REDACTED + "y"})


def test_a_value_that_is_a_number_is_taken_and_json_stays_json():
    assert redact({"pin": 123456}, "123456") == {"pin": REDACTED}
    assert redact({"pin": "123456"}, "123456") == {"pin": REDACTED}


def test_of_members_with_the_same_key_none_stays_unseen():
    assert redact({"text": f'{{"a":"{KNOWN}","password":"hunter2","a":1,"password":null}}'}, KNOWN) == {
        "text": '{"a":1,"password":null}'
    }


def test_a_value_that_is_json_itself_goes_whole():
    account = dumps({"type": "service", "id": "0123456789"})
    assert redact({"text": f"it is {account}", "all": account}, account) == {
        "text": f"it is {REDACTED}",
        "all": REDACTED,
    }


# --- what holds for all -----------------------------------------------------------------------------------------

texts = st.text(max_size=20) | st.sampled_from(['"', "\\", '\\"', "password=", "token: ", "Bearer ", "://a:b@", "eyJ"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["password", "token", "text", "k"]) | texts, inner, max_size=4)
        | inner.map(dumps)
    ),
    max_leaves=12,
)


@given(values)
def test_json_stays_json_and_known_values_never_stay(value):
    text = dumps({"a": value, "text": dumps([KNOWN, value]), "password": KNOWN, "b": f"x{KNOWN}"})
    shown = Redactor([KNOWN]).redact(text)
    json.loads(shown)
    assert KNOWN not in shown


@given(values)
def test_redacting_twice_changes_nothing_more(value):
    once = Redactor([KNOWN]).redact(dumps(value))
    assert Redactor([KNOWN]).redact(once) == once


@given(values, st.integers(min_value=0, max_value=200))
def test_a_text_that_is_cut_off_anywhere_gives_no_telling_value_away(value, cut):
    text = dumps({"k": {"password": "hunter2hunter2"}, "text": dumps({"token": "hunter2hunter2"}), "v": value})[:cut]
    assert "hunter2" not in Redactor().redact(text)


HOSTILE = [
    *("eyJ", "eyJaaaaaaaa.", "sk-", "AKIA", "xoxb-", "ghp_", "bearer ", "://", "://a:", "@", "k", "é"),
    *("-----BEGIN ", "-----BEGIN PRIVATE KEY-----", '"', "\\", '\\"', "key\\\\", "\\u0041", '"a" '),
    *('"token":', '"token":"\\', '"token":[', "[{", "token", "token=", "=", ":", "=' ", "a'"),
    *("password", "passwordpassword: ", "cookie: ", 'token=\\"1', "token={\n ", "secret\\", "api_key "),
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("prefix", ["", '"token":"', '"token":[', '{"key', "Cookie: "])
def test_hostile_texts_take_time_in_proportion_to_their_length(piece, prefix):
    text = prefix + piece * (256 * 1024 // len(piece))
    assert_quick(text)


def test_quotes_of_many_depths_take_time_in_proportion_too():
    assert_quick("".join("token=" + "\\" * depth + '"1' for depth in range(700)))


def assert_quick(text: str) -> None:
    # Three times more than any of them takes; what was quadratic in a quarter of this took longer. The best of three
    # counts, since a busy machine can make any one slow.
    spent = []
    for _ in range(3):
        began = time.process_time()
        Redactor([KNOWN, "aaaaaaaab", "\\\\\\\\\\\\x"]).redact(text)
        spent.append(time.process_time() - began)
        if spent[-1] < 1.5:
            return
    raise AssertionError(spent)
