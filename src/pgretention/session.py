"""A session with PostgreSQL: how it is opened, what stands at the other end, and when it is given up."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import LiteralString, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from pgretention.errors import Fault, FaultKind
from pgretention.sqlstate import fault_of_connecting, faults

Connection = psycopg.Connection[tuple[object, ...]]

LOCK_TIMEOUT = timedelta(milliseconds=500)
"""The longest wait for a lock: half of the server's default deadlock_timeout, and never more than half of its own."""

_DIALLING: Mapping[str, str | int] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""How a session is opened where neither connection string nor libpq's environment says anything else."""

_GREETING = timedelta(seconds=10)

_SILENCE = timedelta(seconds=15)
"""How much later than its own timeout a server may answer before it is taken for dead."""

_LOOK_FOR_CLIENT = "2s"
"""How long a statement goes on for a client that was killed (client_connection_check_interval, chapter 20.3.2)."""

_LOOK_FOR_MACHINE: LiteralString = (
    "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 60000"
)
"""So that the lock of a machine that has vanished is free a minute later (chapter 20.3.2)."""

_WITH_IDLE_SESSION_TIMEOUT = 140000
_WITH_TRANSACTION_TIMEOUT = 170000


class _Patience:
    """Hangs up on a server that is silent for much longer than what it was asked for may take.

    Timeouts are the server's business; this is for one that is frozen, or for a line that is dead without a word. It
    counts seconds in which this process was awake, so that one that was suspended does not blame its server.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._allowed: timedelta | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="patience", daemon=True)
        self._thread.start()

    def allow(self, answer: timedelta | None) -> None:
        """From now on an answer may take that long and some; with None nothing is awaited."""
        self._allowed = None if answer is None else answer + _SILENCE  # a new object each time: see _watch

    def end(self) -> None:
        """Watch no longer."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        watched, silent = self._allowed, timedelta(0)
        while not self._over.wait(1.0):
            allowed = self._allowed
            if allowed is None or allowed is not watched:
                watched, silent = allowed, timedelta(0)
                continue
            silent += timedelta(seconds=1)
            if silent > allowed:
                _hang_up(self._connection)


@dataclass(frozen=True, slots=True)
class Session:
    """A connection that deletes, and what was found out about its server when it was opened.

    `pooled`: a pooler stands in between. `lock_timeout`: how long to wait for a lock. `settings`: what every
    transaction sets besides, as far as this server knows it.
    """

    connection: Connection
    pooled: bool
    lock_timeout: timedelta
    settings: Mapping[LiteralString, str]
    patience: _Patience

    def cancel(self) -> None:
        """Ask the server to give up the statement in flight; safe from another thread or a signal handler."""
        with suppress(psycopg.Error):
            self.connection.cancel_safe(timeout=2.0)

    def hang_up(self) -> None:
        """Cut the line to a server that does not answer; whoever waits on it gets a Fault, from any thread."""
        _hang_up(self.connection)


def _hang_up(connection: Connection) -> None:
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


@contextmanager
def connect(
    dsn: str,
    application_name: str,
    *,
    given_up: Callable[[], Fault | None] = lambda: None,
    beside: Session | None = None,
) -> Generator[Session]:
    """A session on the database at `dsn`, a libpq URI or key=value string; closed at the end, whatever happens.

    The connection is in autocommit, so that a transaction is open only where `transaction` opens one. While there is
    no answer yet `given_up` is asked again and again, and what it gives is raised. Of several hosts in `dsn` it is the
    one that the session `beside` is on, if there is one. Raises Fault.
    """
    try:
        connection = _dial(dsn, {"application_name": application_name, **_server(beside)}, given_up)
    except psycopg.Error as error:
        raise fault_of_connecting(error, dsn) from None
    except UnicodeError:  # from the look-up of a name such as db..internal
        raise Fault(FaultKind.CONNECTION, "cannot connect: the host in the connection string is no host name") from None
    patience = _Patience(connection)
    patience.allow(_GREETING)
    try:
        with faults():
            session = _greet(connection, patience)
        patience.allow(None)
        yield session
    finally:
        patience.end()
        connection.close()


def _server(session: Session | None) -> dict[str, str]:
    if session is None:
        return {}
    info = session.connection.info
    return {"host": info.host, "hostaddr": info.hostaddr, "port": str(info.port)}


def _dial(dsn: str, parameters: Mapping[str, str], given_up: Callable[[], Fault | None]) -> Connection:
    """Connect in a thread of its own, since libpq tries host after host and hears nothing of a stop meanwhile."""
    answer: queue.SimpleQueue[Connection | Exception] = queue.SimpleQueue()
    nobody_waits = threading.Event()

    def dial() -> None:
        try:
            connection = psycopg.connect(
                make_conninfo(dsn, **_unless_told(dsn), **parameters), autocommit=True, client_encoding="UTF8"
            )
        except Exception as error:  # noqa: BLE001  it is raised where somebody waits for it
            answer.put(error)
            return
        if nobody_waits.is_set():
            connection.close()
        answer.put(connection)

    threading.Thread(target=dial, name="dial", daemon=True).start()
    while True:
        try:
            got = answer.get(timeout=0.1)
        except queue.Empty:
            reason = given_up()
            if reason is not None:
                nobody_waits.set()
                raise reason from None
            continue
        if isinstance(got, Exception):
            raise got
        return got


def _unless_told(dsn: str) -> Mapping[str, str | int]:
    told = {option.keyword.decode() for option in Conninfo.get_defaults() if option.val is not None}
    told |= conninfo_to_dict(dsn).keys()
    return {name: value for name, value in _DIALLING.items() if name not in told}


def _greet(connection: Connection, patience: _Patience) -> Session:
    """Find out what stands at the other end.

    A pooler answers with another backend than the one named when connecting (design section 3). Waiting for a lock
    ends before the server looks for deadlocks: in one with the application it is we who give way.
    """
    row = connection.execute(
        "SELECT pg_catalog.pg_backend_pid(), pg_catalog.date_part("
        "'epoch', pg_catalog.current_setting('deadlock_timeout')::pg_catalog.interval)",
        prepare=False,
    ).fetchone()
    pid, deadlock_timeout = cast("tuple[int, float]", row)
    pooled = pid != connection.info.backend_pid
    if pooled:
        connection.prepare_threshold = None  # a statement prepared on one server connection is not on the next
    else:
        connection.execute(_LOOK_FOR_MACHINE, prepare=False)
        if connection.info.server_version >= _WITH_IDLE_SESSION_TIMEOUT:
            connection.execute("SET idle_session_timeout = 0", prepare=False)  # a run waits between two attempts
    lock_timeout = min(LOCK_TIMEOUT, timedelta(seconds=deadlock_timeout) / 2)
    return Session(connection, pooled, lock_timeout, _settings(connection), patience)


def _settings(connection: Connection) -> Mapping[LiteralString, str]:
    settings: dict[LiteralString, str] = {}
    if connection.info.server_version >= _WITH_TRANSACTION_TIMEOUT:
        settings["transaction_timeout"] = "0"  # a role's would end the session, not the batch
    if _can_look_for_client(connection):
        settings["client_connection_check_interval"] = _LOOK_FOR_CLIENT
    return settings


def _can_look_for_client(connection: Connection) -> bool:
    """Whether the server can look if its client is still there, which depends on the system it runs on."""
    try:
        connection.execute(
            "SELECT pg_catalog.set_config('client_connection_check_interval', %s, true)",
            [_LOOK_FOR_CLIENT],
            prepare=False,
        )
    except psycopg.DatabaseError:
        if connection.closed:
            raise
        return False
    return True
