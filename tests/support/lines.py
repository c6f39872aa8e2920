"""A TCP line between the command and a server, which a test can cut or make lose a message at a chosen moment."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from enum import Enum, auto

from psycopg.conninfo import make_conninfo

from tests.databases import Database


class Loses(Enum):
    """What becomes of the COMMIT of a batch."""

    NOTHING = auto()
    QUESTION = auto()
    ANSWER = auto()


class Line:
    """Hands on every byte both ways, until it is cut.

    It stalls, once, at a request that holds the bytes `stalls_at`, or with none of them as soon as somebody calls, and
    not before one that held `stalls_after`. It
    loses the COMMIT of the batch numbered `at_batch`, from 1, or the server's answer to it, and is cut then.
    """

    def __init__(
        self, database: Database, loses: Loses, at_batch: int, stalls_at: bytes | None, stalls_after: bytes
    ) -> None:
        server = database.server
        self._server = (server.host, server.port)
        self._loses = loses
        self._at_batch = at_batch
        self._listener = socket.create_server((server.host, 0))
        self._wake, self._alarm = socket.socketpair()
        self._stalls_at, self._stalls_after = stalls_at, stalls_after
        self._stalled, self._goes_on = threading.Event(), threading.Event()
        self._door = threading.Thread(target=self._accept, name="line")
        port = self._listener.getsockname()[1]
        self.dsn = make_conninfo(database.worker_dsn, port=port, sslmode="disable", gssencmode="disable")
        self._door.start()

    def wait_for_stall(self) -> None:
        self._stalled.wait()

    def go_on(self) -> None:
        """Hand on what was held back, and from now on everything."""
        self._goes_on.set()

    def cut(self) -> None:
        """Close both ends now, without a word to either."""
        self._wake.send(b"!")
        self._goes_on.set()
        self._door.join()

    def close(self) -> None:
        if self._door.is_alive():
            self.cut()
        for each in self._listener, self._wake, self._alarm:
            each.close()

    def _accept(self) -> None:
        ready, _, _ = select.select([self._listener, self._alarm], [], [])
        if self._alarm in ready:
            return
        client, _ = self._listener.accept()
        if self._stalls_at == b"":
            self._stall()
        with client, socket.create_connection(self._server) as server, suppress(ConnectionError):  # an end may be gone
            self._hand_on(client, server)
        self._listener.close()  # whoever calls again is refused

    def _stall(self) -> None:
        self._stalled.set()
        self._goes_on.wait()

    def _hand_on(self, client: socket.socket, server: socket.socket) -> None:
        batches, lost, armed = 0, False, False
        while True:
            ready, _, _ = select.select([client, server, self._alarm], [], [])
            if self._alarm in ready:
                return
            if client in ready:
                asked = client.recv(65536)
                armed = armed or self._stalls_after in asked
                if self._stalls_at and armed and self._stalls_at in asked:
                    self._stall()
                batches += b"DELETE FROM" in asked
                lost = batches == self._at_batch and b"COMMIT\0" in asked
                if not asked or (lost and self._loses is Loses.QUESTION):
                    return
                server.sendall(asked)
            if server in ready:
                answer = server.recv(65536)
                if not answer or (lost and self._loses is Loses.ANSWER):
                    return
                client.sendall(answer)


@contextmanager
def line(
    database: Database,
    loses: Loses = Loses.NOTHING,
    at_batch: int = 0,
    stalls_at: bytes | None = None,
    stalls_after: bytes = b"",
) -> Generator[Line]:
    """A line for one connection as the worker's role."""
    drawn = Line(database, loses, at_batch, stalls_at, stalls_after)
    try:
        yield drawn
    finally:
        drawn.close()
