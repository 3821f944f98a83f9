"""What a connection of uvicorn is bounded by here, and requests that are answered without a task of their own.

A request that is whole, alone on its connection and plain (HTTP/1.1, a body of known length, nothing to negotiate) is
shown to the app's ``prompt`` from the parser itself: a task, a cycle of messages and two writes for the word
"Accepted" cost more than all that Bascule does with a message. Whatever is not answered so goes uvicorn's own way,
as if it had just come. The next one with the same head is known by its bytes, and needs no parser.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from ...hookspecs import KnownHead, Prompt, answer_body, show_head

_HEAD_BYTES = 64 * 1024  # h11 has a bound of its own, httptools has none
_BITE = 4 * 1024
_REST_BYTES = 1024 * 1024  # more than one read brings
_PROMPT_BYTES = 64 * 1024  # of a body that is held until it is whole

_HIDDEN = b"x-grade"  # as long as the word that it stands for
_OFFER = re.compile(rb"(\r\n)upgrade:", re.IGNORECASE)


_Base: Any = object  # one of uvicorn's protocols, which come with an extra


class Bounded(_Base):  # type: ignore[misc]
    """What uvicorn leaves unbounded: the time until a request's head is there and, with httptools, how much it holds.

    What comes is parsed in bites, and not at all while requests wait for their turn: one read can hold thousands, each
    a hundred times as large in memory. Heads are bounded, and so is what stands around a body (sizes, trailers), which
    httptools would collect without end; trailers are no headers. It also refuses, as RFC 9112, 3.2.2 lets it, a target
    that is no path: httptools would drop its authority unseen.
    """

    idle_seconds: float
    on_httptools: bool
    _alarm: asyncio.TimerHandle | None = None
    _quiet_since = 0.0
    _in_head = False
    _in_message = False
    _message_bytes = 0
    _body_bytes = 0
    _rest = b""  # what was read and waits to be parsed
    _offered = False  # another protocol
    _upgraded = False  # httptools stops at a request that asks for another protocol
    pipeline: Any = ()  # h11 holds back by itself

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait_no_more()

    def data_received(self, data: bytes) -> None:
        if self._rest:  # reading was stopped, and this was on its way
            self._hold_back(data)
            return
        for at in range(0, len(data), _BITE):
            if self._upgraded or self.transport.is_closing():
                return
            if self.pipeline:
                self._hold_back(data[at:])
                return
            self._take(data[at : at + _BITE] if at or len(data) > _BITE else data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_no_more()
            return
        if self._alarm is None and not self.transport.is_closing():
            self._wait()

    def _take(self, bite: bytes) -> None:
        if self.on_httptools and not self._in_message and b"pgrade:" in bite:
            bite = _without_offer(bite)
        super().data_received(bite)
        if self._in_message:
            self._message_bytes += len(bite)
            around = self._message_bytes - self._body_bytes
            if (self._in_head and around > _HEAD_BYTES) or around > 2 * _HEAD_BYTES + 8 * self._body_bytes:
                self.transport.abort()

    def _hold_back(self, data: bytes) -> None:
        self._rest += data
        self.flow.pause_reading()
        if len(self._rest) > _REST_BYTES:
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()  # uvicorn goes on reading with every answer
        elif self._rest:
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        rest, self._rest = self._rest, b""
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self.data_received(rest)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._offered = False
        self._message_bytes = self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # what follows a body is no header, and nobody asks for it
            return
        name = name.lower()
        if name == _HIDDEN:
            name, self._offered = b"upgrade", True
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message = False
        self._upgraded = self.parser.should_upgrade()
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if not self.url.startswith(b"/"):
            raise ValueError("the request's target is no path")
        super().on_headers_complete()

    def _wait(self) -> None:
        self._quiet_since = self.loop.time()
        self._alarm = self.loop.call_later(self.idle_seconds, self._ring)

    def _wait_no_more(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        """Leave who was silent for too long; a prompt answer begins the time anew without moving the timer."""
        due = self._quiet_since + self.idle_seconds
        if self.loop.time() < due:
            self._alarm = self.loop.call_at(due, self._ring)
        else:
            self._alarm = None
            self.transport.abort()


class Prompting(Bounded):
    """On httptools: requests that are answered from the parser. ``held`` is the body of the one that may be.

    ``known`` is the head of the last one, while nothing else was read since.
    """

    _prompt: Prompt
    _held: bytes | None = None
    _known: KnownHead | None = None
    _answered = 0  # promptly, by what was read last

    def data_received(self, data: bytes) -> None:
        if self._known is not None:
            if not self.flow.write_paused and not self.transport.is_closing():
                answer = self._known.answer(data)
                if answer is not None:
                    self._write(answer)
                    return
            self._known = None
        alone = not self._in_message and not self._rest
        self._answered = 0
        super().data_received(data)
        if self._held is not None:  # its body is still to come: the app waits for it, not we
            self._hand_over()
            self._wait_no_more()
        elif alone and self._answered == 1 and not self._in_message:
            self._known = KnownHead.of(data, self._prompt)

    def on_headers_complete(self) -> None:
        if self._is_plain() and self._show_head():
            self._in_head = False
            self._held = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._held is None:
            super().on_body(body)
            return
        self._held += body
        self._body_bytes += len(body)
        if len(self._held) > _PROMPT_BYTES:
            self._hand_over()

    def on_message_complete(self) -> None:
        if self._held is not None:
            answer = answer_body(self._prompt, self._held)
            if answer is not None:
                self._held = None
                self._in_message = False
                self._write(answer)
                return
            self._hand_over()
        super().on_message_complete()

    def _is_plain(self) -> bool:
        """Whether the request is one to be held; none while the connection owes an answer or does not take it."""
        parser, cycle = self.parser, self.cycle
        return (
            (cycle is None or cycle.response_complete)
            and not self.pipeline
            and not self.flow.write_paused
            and not self.expect_100_continue
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self._offered
            and self.url.startswith(b"/")
            and b"%" not in self.url
            and b"#" not in self.url
            and not self.transport.is_closing()
        )

    def _show_head(self) -> bool:
        """Whether the app may answer on the spot."""
        path, _, query = self.url.partition(b"?")
        self.scope.update(method="POST", path=path.decode("ascii"), raw_path=path, query_string=query)
        prompt = show_head(self.app, self.scope)
        if prompt is not None:
            self._prompt = prompt
        return prompt is not None

    def _write(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.server_state.total_requests += 1
        self._quiet_since = self.loop.time()
        self._answered += 1

    def _hand_over(self) -> None:
        """Let uvicorn go on as if the head and what is there of the body had just come."""
        held, self._held = self._held, None
        if not self.transport.is_closing():
            super().on_headers_complete()
            if held:
                self._body_bytes -= len(held)  # counted anew
                super().on_body(held)


def _without_offer(start: bytes) -> bytes:
    """Hide the offer of another protocol from httptools, which would take the body for another message.

    Whoever does not want it goes on as if there were none (RFC 9110, 7.8); the guard sees it.
    """
    head, end, rest = start.partition(b"\r\n\r\n")
    return _OFFER.sub(rb"\1" + _HIDDEN + b":", head) + end + rest


def protocol(app: Any, idle_seconds: float) -> type[asyncio.Protocol]:
    """The protocol of a server that runs ``app``."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol
    from uvicorn.protocols.http.h11_impl import H11Protocol

    on_httptools = AutoHTTPProtocol is not H11Protocol
    members: dict[str, Any] = {"idle_seconds": idle_seconds, "on_httptools": on_httptools}
    kind = Prompting if on_httptools and hasattr(app, "prompt") else Bounded
    return type("Protocol", (kind, AutoHTTPProtocol), members)
