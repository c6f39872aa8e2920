"""A TCP line for any number of connections to a server, which can be cut, held up, or lose the answer to a COMMIT."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from enum import StrEnum

from psycopg.conninfo import make_conninfo

from tests.databases import Database

_DELETES_SESSIONS = b'DELETE FROM ONLY "user_activity"."sessions"'


class Loses(StrEnum):
    """What becomes of the next COMMIT of a batch."""

    NOTHING = "nothing"
    QUESTION = "question"
    ANSWER = "answer"


class Wires:
    """Hands on every byte of every connection both ways until it is told otherwise."""

    def __init__(self, database: Database) -> None:
        server = database.server
        self._server = (server.host, server.port)
        self._listener = socket.create_server((server.host, 0))
        self._pairs: set[_Pair] = set()
        self._changing = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._loses = Loses.NOTHING
        self._late = 0.0
        port = self._listener.getsockname()[1]
        self.dsn = make_conninfo(database.worker_dsn, port=port, sslmode="disable", gssencmode="disable")
        self._door = threading.Thread(target=self._accept, name="wires", daemon=True)
        self._door.start()

    def cut(self) -> int:
        """Close both ends of every connection now, without a word to either; how many there were."""
        with self._changing:
            pairs = tuple(self._pairs)
        for pair in pairs:
            pair.cut()
        return len(pairs)

    def lose_next_commit(self, loses: Loses) -> None:
        """Cut the connection on which a batch is committed next, before COMMIT goes on or before the answer does."""
        self._loses = loses

    def hold_next_batch(self, seconds: float) -> None:
        """Hold up the batch of sessions that is claimed next before it deletes; other connections go on."""
        self._late = seconds

    def hold_up(self) -> None:
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._door.join()
        self._flows.set()
        self.cut()

    def wait_to_flow(self) -> None:
        self._flows.wait()

    def wait_before_deleting(self) -> None:
        with self._changing:
            late, self._late = self._late, 0.0
        time.sleep(late)

    def lost(self) -> Loses:
        """What becomes of this COMMIT; the ones after it are safe again."""
        with self._changing:
            loses, self._loses = self._loses, Loses.NOTHING
        return loses

    def forget(self, pair: _Pair) -> None:
        with self._changing:
            self._pairs.discard(pair)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:  # it is being restarted
                client.close()
                continue
            pair = _Pair(self, client, server)
            with self._changing:
                self._pairs.add(pair)
            pair.start()


class _Pair:
    """One connection: a client, a server, and a thread for each direction."""

    # A statement that is prepared goes by its name: one DELETE seen stands for all that follow.

    def __init__(self, wires: Wires, client: socket.socket, server: socket.socket) -> None:
        self._wires = wires
        self._client, self._server = client, server
        self._deletes, self._mute = False, False

    def start(self) -> None:
        threading.Thread(target=self._hand_on, name="wire", daemon=True).start()

    def cut(self) -> None:
        for end in self._client, self._server:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._wires.forget(self)

    def _hand_on(self) -> None:
        asking = threading.Thread(target=self._ask, name="wire", daemon=True)
        asking.start()
        self._answer()
        self.cut()
        asking.join()
        self._client.close()
        self._server.close()

    def _ask(self) -> None:
        with suppress(OSError):
            while asked := self._client.recv(65536):
                self._wires.wait_to_flow()
                if b"DELETE FROM" in asked:
                    self._deletes = True
                if _DELETES_SESSIONS in asked:
                    self._wires.wait_before_deleting()
                if self._deletes and b"COMMIT\0" in asked:
                    loses = self._wires.lost()
                    if loses is Loses.QUESTION:
                        break
                    self._mute = loses is Loses.ANSWER
                self._server.sendall(asked)
        self.cut()

    def _answer(self) -> None:
        with suppress(OSError):
            while answer := self._server.recv(65536):
                self._wires.wait_to_flow()
                if self._mute:
                    break
                self._client.sendall(answer)
