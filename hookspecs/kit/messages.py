"""Messages that can be told apart, and what became of them on the way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from .faults import Fault

_BLANK = b" \t\r\n"  # JSON's white space around a message may be lost; nothing else may


def numbered(count: int, *, size: int = 0, word: str = "kit") -> list[bytes]:
    """``count`` different messages of at least ``size`` bytes each; sizes vary where ``size`` is 0."""
    return [_message(number, word, size or (number * 37) % 700) for number in range(count)]


def _message(number: int, word: str, size: int) -> bytes:
    head = f'{{"jsonrpc":"2.0","method":"{word}","params":{{"number":{number},"pad":"'
    return f'{head}{"x" * max(0, size - len(head) - 3)}"}}}}'.encode()


def awkward() -> list[bytes]:
    """Messages that are plain JSON and that careless framing or decoding breaks."""
    texts = [
        "umlauts äöü, 漢字, עברית, 🙂",
        "line\u2028separator\u2029paragraph\u0085next\x7fdelete\ufeffmark",
        "vertical\u000btab".replace("\u000b", "\\u000b"),
    ]
    plain = [
        json.dumps({"jsonrpc": "2.0", "method": "kit", "params": {"text": text}}, ensure_ascii=False) for text in texts
    ]
    written = [
        r'{"jsonrpc":"2.0","method":"kit","params":{"text":"\u0000 \n \r \u2028 \ud83d\ude42"}}',
        '{"jsonrpc": "2.0",\r "method" :\t"kit"  ,"params":{"a": 1.0, "b": 1e2, "c": -0.0}}',
        '{"params":{"z":1,"a":{"z":1,"a":2}},"method":"kit","jsonrpc":"2.0"}',
        '{"jsonrpc":"2.0","method":"kit","params":{"big":12345678901234567890123,"text":"a/b\\/c"}}',
        '{"jsonrpc":"2.0","id":"7","result":{}}',
        "[" * 40 + "]" * 40,
        '{"jsonrpc":"2.0","method":"kit","params":{"text":"data: x\\n\\nevent: y Content-Length: 5"}}',
    ]
    return [text.encode() for text in plain + written]


def compare(sent: Sequence[bytes], got: Sequence[object]) -> None:
    """Raise ``Fault`` that names what became of the messages, where it is not what was sent."""
    for message in got:
        if type(message) is not bytes:
            raise Fault(f"it hands over a {type(message).__name__} as a message, not bytes")
    wanted = [message.strip(_BLANK) for message in sent]
    came = [bytes(message).strip(_BLANK) for message in got if isinstance(message, bytes)]
    if came == wanted:
        return
    foreign = [message for message in came if message not in set(wanted)]
    if foreign:
        raise Fault(_foreign(foreign, wanted, came))
    counts = Counter(came)
    if twice := [message for message in counts if counts[message] > wanted.count(message)]:
        raise Fault(f"it delivers twice (duplicates) a message that was sent once: {_short(twice[0])}")
    missing = [number for number, message in enumerate(wanted) if message not in counts]
    if missing:
        raise Fault(
            f"it drops a message, or holds it back: {len(wanted)} were sent, {len(came)} arrived; "
            f"the first that is missing is number {missing[0] + 1}"
        )
    place = next(number for number, (one, other) in enumerate(zip(came, wanted, strict=True)) if one != other)
    raise Fault(f"it reorders messages: number {place + 1} is not the one that was sent as number {place + 1}")


def _foreign(foreign: list[bytes], wanted: list[bytes], came: list[bytes]) -> str:
    odd = foreign[0]
    if not odd:
        return "it delivers an empty message, which nobody sent"
    if any(message and message in odd and message != odd for message in wanted):
        return f"it merges messages, or adds to one: {_short(odd)}"
    parents = [message for message in wanted if message.startswith(odd)]
    if parents:
        rest = came[came.index(odd) + 1 :]
        if rest and rest[0] not in wanted and any(rest[0] in message for message in parents):
            return f"it splits a message into several: {_short(odd)} and {_short(rest[0])}"
        return f"it truncates a message: of {len(parents[0]):,} bytes {len(odd):,} arrived"
    if any(odd in message for message in wanted):
        return f"it delivers a part of a message (splits or truncates it): {_short(odd)}"
    if any(_same(odd, message) for message in wanted):
        return f"it re-encodes a message: the JSON is the same, the bytes are not: {_short(odd)}"
    return f"it alters a message: {_short(odd)} is nothing that was sent"


def _same(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _short(message: bytes) -> str:
    return repr(message[:60]) + ("…" if len(message) > 60 else "")
