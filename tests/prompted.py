"""An app that answers on the spot what is posted to ``/now``, and a wire to ask it over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bascule.hookspecs import Identity, Prompt, PromptAnswer

KIND = "Content-Type: application/json"
SMALL = "Content-Length: 2"


class Prompted:
    """The app; a body ``no`` is none that it answers on the spot. The words of an answer say which road it came."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.who: list[Identity | None] = []
        self.heads = 0

    def prompt(self, scope) -> Prompt | None:
        self.heads += 1
        if scope["path"] == "/fails-soon":
            raise ValueError("the app's own fault")
        identity, query = scope["bascule.identity"], scope["query_string"]

        def answer(body: bytes) -> PromptAnswer | None:
            if scope["path"] == "/fails" or body == b"fail":
                raise ValueError("the app's own fault")
            if body == b"no":
                return None
            self.seen.append(("now", body))
            self.who.append(identity)
            return PromptAnswer(202, b"now " + body + b"?" + query)

        return answer if scope["path"] in ("/now", "/fails") else None

    async def __call__(self, scope, receive, send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.seen.append(("later", body))
        self.headers.append(list(scope["headers"]))
        self.who.append(scope["bascule.identity"])
        text = b"later " + body
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


def post(port: int, *lines: str, target: str = "/now", body: bytes = b"{}") -> bytes:
    head = [f"POST {target} HTTP/1.1", f"Host: 127.0.0.1:{port}", *lines]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


class Wire:
    """A connection, and answers read off it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, str]:
        """The status and the text of the next answer."""
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length: ")[2].split()[0])
            return int(head.split()[1]), (await self.reader.readexactly(length)).decode()

    async def ask(self, *pieces: bytes) -> tuple[int, str]:
        for piece in pieces:
            self.writer.write(piece)
        return await self.answer()

    async def rest(self) -> bytes:
        async with asyncio.timeout(60):
            return await self.reader.read()


@asynccontextmanager
async def wire(port: int) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
