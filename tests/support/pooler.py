"""A door to a server that, like a pooler, names another backend than the one that will answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import RawIOBase

from psycopg.conninfo import make_conninfo

from tests.databases import Database


@contextmanager
def pooler(database: Database) -> Generator[str]:
    """The connection string of the worker's role through the door, which lets one connection through at a time."""
    server = database.server
    with socket.create_server((server.host, 0)) as listener:
        door = threading.Thread(target=_accept, args=(listener, (server.host, server.port)))
        door.start()
        port = listener.getsockname()[1]
        yield make_conninfo(database.worker_dsn, port=port, sslmode="disable", gssencmode="disable")
        listener.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in accept
        door.join()


def _accept(listener: socket.socket, server: tuple[str, int]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, socket.create_connection(server) as backend:
            requests = threading.Thread(target=_hand_on, args=(client, backend))
            requests.start()
            _rename_the_backend(backend, client)
            _hand_on(backend, client)
            requests.join()


def _hand_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _rename_the_backend(backend: socket.socket, client: socket.socket) -> None:
    """Hand on message by message (PostgreSQL documentation, chapter "Message Formats") up to the one with the pid."""
    with backend.makefile("rb", buffering=0) as messages:
        kind = b""
        while kind != b"K":
            kind, length = _read(messages, 1), _read(messages, 4)
            body = _read(messages, int.from_bytes(length) - 4)
            if kind == b"K":
                body = (int.from_bytes(body[:4]) ^ 1).to_bytes(4) + body[4:]
            client.sendall(kind + length + body)


def _read(messages: RawIOBase, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += messages.read(count - len(data)) or b""
    return data
