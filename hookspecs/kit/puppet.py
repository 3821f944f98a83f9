"""The program behind ``LinesOfChild``: it does with its pipes what it is told over a Unix socket.

``W`` write to stdout, ``E`` write to stderr, ``G`` send on what comes from stdin, ``C`` close and leave in order,
``A`` leave at once; each with a length of four bytes and so much data.
"""

from __future__ import annotations

import fcntl
import os
import queue
import select
import socket
import struct
import sys
import termios
import threading


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = sock.recv(min(size, 65_536))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _read(sock: socket.socket, wanted: queue.SimpleQueue[None], reading: threading.Lock) -> None:
    while True:
        wanted.get()
        with reading:
            data = os.read(0, 65_536)
            sock.sendall(struct.pack(">I", len(data)) + data)
            if not data:
                os._exit(0)


def _leave_if_nothing_waits(reading: threading.Lock) -> None:
    """stdin was closed: a server leaves then, once it has read what is there."""
    if reading.acquire(blocking=False):
        if not select.select([0], [], [], 0)[0] or not _available(0):
            os._exit(0)
        reading.release()


def _available(descriptor: int) -> int:
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def main() -> None:
    """Serve until told to leave, or until whoever tells is gone."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])
    wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
    reading = threading.Lock()
    threading.Thread(target=_read, args=(sock, wanted, reading), daemon=True).start()
    news = select.poll()
    news.register(sock, select.POLLIN)
    news.register(0, select.POLLHUP)
    while True:
        if 0 in (descriptor for descriptor, _ in news.poll()):
            news.unregister(0)
            _leave_if_nothing_waits(reading)
            continue
        word = _exactly(sock, 1)
        (size,) = struct.unpack(">I", _exactly(sock, 4))
        data = _exactly(sock, size)
        if word == b"W":
            _write(1, data)
        elif word == b"E":
            _write(2, data)
        elif word == b"G":
            wanted.put(None)
        else:
            os._exit(0 if word == b"C" else 3)


if __name__ == "__main__":
    main()
