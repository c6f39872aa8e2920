"""Stands for a pooler in transaction mode: its server connections outlive its clients, and no two transactions in a
row need be on the same one.

It speaks as much of the protocol as a run needs (PostgreSQL documentation, chapter 53) and asks for no password.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader

from psycopg.conninfo import make_conninfo
from psycopg.pq import ConnStatus, PGconn

from tests.databases import Database

_NO_SUCH_BACKEND = 0x7FFFFFFF
_CLOSE, _SYNC, _QUERY = b"X", b"S", b"Q"
_REPORTED = ("server_version", "client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings")


class _Backend:
    """One server connection, logged in by libpq and from then on used byte by byte."""

    def __init__(self, dsn: str) -> None:
        self._connection = PGconn.connect(dsn.encode())
        assert self._connection.status == ConnStatus.OK, self._connection.error_message
        self.pid = self._connection.backend_pid
        self._socket = socket.socket(fileno=socket.dup(self._connection.socket))
        self._socket.settimeout(None)
        self._answers = self._socket.makefile("rb")

    def parameters(self) -> Iterator[bytes]:
        for name in _REPORTED:
            value = self._connection.parameter_status(name.encode()) or b""
            yield _message(b"S", name.encode() + b"\0" + value + b"\0")

    def ask(self, request: bytes) -> tuple[bytes, bool]:
        """All that the server says, and whether it is outside of any transaction now."""
        self._socket.sendall(request)
        said = b""
        while True:
            kind, message = _read(self._answers)
            said += message
            if kind == b"Z":
                return said, message.endswith(b"I")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
        self._connection.finish()


class TransactionPooler:
    """Listens at `dsn`; `pids` are those of the backends that it hands out in turn, a transaction each."""

    def __init__(self, database: Database, backends: int) -> None:
        dsn = make_conninfo(database.worker_dsn, sslmode="disable", gssencmode="disable", application_name="pool")
        self._backends = [_Backend(dsn) for _ in range(backends)]
        self._free: queue.Queue[_Backend] = queue.Queue()
        for backend in self._backends:
            self._free.put(backend)
        self._listener = socket.create_server((database.server.host, 0))
        self.dsn = make_conninfo(dsn, port=self._listener.getsockname()[1], password="", application_name="")
        self.used: list[int] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def pids(self) -> list[int]:
        return [backend.pid for backend in self._backends]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()
        for backend in self._backends:
            backend.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is shut down
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as requests:
            (length,) = struct.unpack("!i", requests.read(4))
            requests.read(length - 4)  # who and what for; it is always the same here
            client.sendall(_message(b"R", bytes(4)) + b"".join(self._backends[0].parameters()))
            client.sendall(_message(b"K", struct.pack("!ii", _NO_SUCH_BACKEND, 0)) + _message(b"Z", b"I"))
            while request := _request(requests):
                backend = self._free.get()
                self.used.append(backend.pid)
                idle = False
                while request and not idle:
                    answer, idle = backend.ask(request)
                    client.sendall(answer)
                    request = b"" if idle else _request(requests)
                self._free.put(backend)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _read(stream: BufferedReader) -> tuple[bytes, bytes]:
    """The kind of the next message, and the whole of it."""
    head = stream.read(5)
    if not head:
        return _CLOSE, b""
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + stream.read(length - 4)


def _request(stream: BufferedReader) -> bytes:
    """Messages up to the one that the server will answer to; none when the client takes its leave."""
    asked = b""
    while True:
        kind, message = _read(stream)
        if kind == _CLOSE:
            return b""
        asked += message
        if kind in {_SYNC, _QUERY}:
            return asked


@contextmanager
def transaction_pooler(database: Database, backends: int) -> Generator[TransactionPooler]:
    pooler = TransactionPooler(database, backends)
    try:
        yield pooler
    finally:
        pooler.close()
