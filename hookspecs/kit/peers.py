"""The other end of a client transport: a server that says and hears exactly what a check wants.

Three are ready for transports that send a line a message. One whose framing is another brings its own: a class that
is entered with a folder and yields itself, with ``backend`` and ``accept`` as :class:`Peer` has them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

_CHUNK = 64 * 1024
_RST = struct.pack("ii", 1, 0)


class PeerEnd(Protocol):
    """The server's end of one connection. It reads only while :meth:`receive` is awaited."""

    async def send(self, message: bytes) -> None:
        """Send one whole message; waits while the transport does not read."""

    async def receive(self) -> bytes:
        """The next whole message from the transport; ``b""`` once it has closed."""

    async def close(self) -> None:
        """Close in order, or do nothing where that was done."""


class RawEnd(PeerEnd, Protocol):
    """An end whose framing can be taken apart. Further checks are made where it has these."""

    async def write(self, data: bytes) -> None:
        """Send bytes as they are."""

    def framed(self, message: bytes) -> bytes:
        """How ``message`` looks on the wire."""

    async def abort(self) -> None:
        """Break off, so that the transport can tell it from an end in order."""


class Peer(Protocol):
    """A server. ``backend`` are the manifest's keys by which the transport reaches it."""

    @property
    def backend(self) -> Mapping[str, Any]: ...

    async def accept(self) -> PeerEnd:
        """The next connection, in the order in which they came."""

    async def __aenter__(self) -> Peer: ...
    async def __aexit__(self, *error: object) -> None: ...


class LineEnd:
    """A stream with a message a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""

    def framed(self, message: bytes) -> bytes:
        return message + b"\n"

    async def send(self, message: bytes) -> None:
        await self.write(self.framed(message))

    async def write(self, data: bytes) -> None:
        with suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    async def receive(self) -> bytes:
        start = 0
        while (cut := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            try:
                chunk = await self._reader.read(_CHUNK)
            except OSError:
                chunk = b""
            if not chunk:
                rest, self._buffer = self._buffer, b""
                return rest
            self._buffer += chunk
        line, self._buffer = self._buffer[:cut], self._buffer[cut + 1 :]
        return line

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class TcpEnd(LineEnd):
    """One that can break off with a reset."""

    async def abort(self) -> None:
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        self._writer.transport.abort()


class _Listener:
    """Accepts connections and keeps them until they are asked for."""

    end: type[LineEnd] = LineEnd

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting: asyncio.Queue[LineEnd] = asyncio.Queue()
        self._ends: list[LineEnd] = []
        self._server: asyncio.Server | None = None

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(_CHUNK)
        end = self.end(reader, writer)
        self._ends.append(end)
        self._waiting.put_nowait(end)

    async def accept(self) -> LineEnd:
        return await self._waiting.get()

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()
        for end in self._ends:
            end._writer.transport.abort()
        await asyncio.sleep(0)


class LinesOverTcp(_Listener):
    """A server on a port, one JSON-RPC message a line. Its ``backend``: ``host`` and ``port``."""

    end = TcpEnd
    backend: Mapping[str, Any]

    async def __aenter__(self) -> LinesOverTcp:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_CHUNK)
        host, port = self._server.sockets[0].getsockname()
        self.backend = {"host": host, "port": port}
        return self


class LinesOverUnix(_Listener):
    """A server on a Unix socket, one JSON-RPC message a line. Its ``backend``: ``path``."""

    backend: Mapping[str, Any]

    async def __aenter__(self) -> LinesOverUnix:
        path = self.folder / "s"
        self._server = await asyncio.start_unix_server(self._connected, path, limit=_CHUNK)
        self.backend = {"path": str(path)}
        return self

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        with suppress(OSError):
            (self.folder / "s").unlink()


# --- a child process --------------------------------------------------------------------------------------


class ChildEnd:
    """The pipes of a child process, worked from here over a socket; see ``puppet``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._lock = asyncio.Lock()

    def framed(self, message: bytes) -> bytes:
        return message + b"\n"

    async def _tell(self, word: bytes, data: bytes = b"") -> None:
        with suppress(OSError):
            self._writer.write(word + struct.pack(">I", len(data)) + data)
            await self._writer.drain()

    async def send(self, message: bytes) -> None:
        await self.write(self.framed(message))

    async def write(self, data: bytes) -> None:
        await self._tell(b"W", data)

    async def complain(self, data: bytes) -> None:
        """Write to the child's stderr."""
        await self._tell(b"E", data)

    async def receive(self) -> bytes:
        async with self._lock:
            while (cut := self._buffer.find(b"\n")) < 0:
                await self._tell(b"G")
                try:
                    size = struct.unpack(">I", await self._reader.readexactly(4))[0]
                    chunk = await self._reader.readexactly(size)
                except (OSError, asyncio.IncompleteReadError):
                    chunk = b""
                if not chunk:
                    rest, self._buffer = self._buffer, b""
                    return rest
                self._buffer += chunk
            line, self._buffer = self._buffer[:cut], self._buffer[cut + 1 :]
            return line

    async def close(self) -> None:
        await self._tell(b"C")

    async def abort(self) -> None:
        await self._tell(b"A")


class LinesOfChild:
    """A child process that speaks a line a message over its pipes. Its ``backend``: ``command`` and ``args``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "s"
        self._waiting: asyncio.Queue[ChildEnd] = asyncio.Queue()
        self._ends: list[ChildEnd] = []
        self._server: asyncio.Server | None = None
        program = Path(__file__).with_name("puppet.py")
        self.backend: Mapping[str, Any] = {"command": "python3", "args": ["-I", str(program), str(self._path)]}

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(_CHUNK)
        end = ChildEnd(reader, writer)
        self._ends.append(end)
        self._waiting.put_nowait(end)

    async def accept(self) -> ChildEnd:
        return await self._waiting.get()

    async def __aenter__(self) -> LinesOfChild:
        self._server = await asyncio.start_unix_server(self._connected, self._path, limit=_CHUNK)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()
        for end in self._ends:
            end._writer.transport.abort()
        await asyncio.sleep(0)
        with suppress(OSError):
            self._path.unlink()
