"""The one door to PostgreSQL: connect, a transaction with its limits, the advisory lock, SQLSTATE to our faults.

Every statement of ours runs inside `transaction`, so that every setting is SET LOCAL and none is left behind on a
pooled server connection. What the server says about an error is never passed on: see `Fault`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from types import MappingProxyType
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from pgretention.errors import Fault, FaultKind

Connection = psycopg.Connection[tuple[object, ...]]

LOCK_TIMEOUT = timedelta(milliseconds=500)
"""Below the server's default deadlock_timeout of 1 s: in a deadlock with the application it is we who give way."""

_CONNECT_TIMEOUT_SECONDS = 10
_WITH_TRANSACTION_TIMEOUT = 170000
_IDLE_TIMEOUT = timedelta(seconds=60)
_NO_SETTINGS: Mapping[LiteralString, str] = MappingProxyType({})

_KINDS: dict[str, FaultKind] = {
    "40001": FaultKind.SERIALIZATION,
    "40P01": FaultKind.DEADLOCK,
    "55P03": FaultKind.LOCK_TIMEOUT,
    "57014": FaultKind.STATEMENT_TIMEOUT,
    "57P01": FaultKind.CONNECTION,  # admin shutdown, or pg_terminate_backend
    "57P02": FaultKind.CONNECTION,  # crash of another backend
    "57P03": FaultKind.CONNECTION,  # cannot connect now
    "57P05": FaultKind.CONNECTION,  # idle session timeout
    "25P03": FaultKind.CONNECTION,  # idle in transaction timeout
    "53300": FaultKind.CONNECTION,  # too many connections
    "23503": FaultKind.FOREIGN_KEY,
    "23001": FaultKind.FOREIGN_KEY,  # what PostgreSQL 18 says of RESTRICT
    "42501": FaultKind.PRIVILEGE,
    "25006": FaultKind.READ_ONLY,
}

_CHECKS_CONSTRAINTS = frozenset({"ri_triggers.c", "execMain.c", "execIndexing.c", "nbtinsert.c"})
"""The server's source files that report a violated constraint."""

_HOSTS = 8
"""Lines of a connection error that are worth showing; libpq writes one or two a host."""

_LIBPQ_SAYS = (
    "connection",
    "could not translate host name",
    "failed to resolve host",
    "Is the server running",
    "Multiple connection attempts",
    "- host",
    "fe_sendauth",
    "invalid",
    "[Errno",
)
_SERVER_SAYS = (
    "password authentication failed",
    "no pg_hba.conf entry",
    "no password supplied",
    "database ",
    "role ",
    "permission denied for database",
    "sorry, too many clients",
    "too many connections",
    "remaining connection slots",
    "the database system is",
)

_ADVICE: dict[FaultKind, str] = {
    FaultKind.CONNECTION: "the connection to the database was lost or refused",
    FaultKind.SERIALIZATION: "the server could not serialize the transaction",
    FaultKind.DEADLOCK: "the server broke a deadlock by giving up this transaction",
    FaultKind.LOCK_TIMEOUT: (
        f"somebody else held a lock on a row or table for longer than {LOCK_TIMEOUT / timedelta(milliseconds=1):.0f} ms"
    ),
    FaultKind.STATEMENT_TIMEOUT: "a statement ran into its timeout",
    FaultKind.FOREIGN_KEY: "a foreign key that the policy does not know still refers to one of the rows",
    FaultKind.PRIVILEGE: "the role lacks a privilege; `pgretention schema --role NAME` prints the grants it needs",
    FaultKind.READ_ONLY: "the server does not accept writes; is it a standby?",
    FaultKind.DATABASE: "the server refused the statement",
}


@dataclass(frozen=True, slots=True)
class Session:
    """A connection that deletes, and whether a pooler stands between it and its server."""

    connection: Connection
    pooled: bool

    def cancel(self) -> None:
        """Ask the server to give up the statement in flight; safe from another thread or a signal handler."""
        with suppress(psycopg.Error):
            self.connection.cancel_safe(timeout=2.0)


@contextmanager
def connect(dsn: str, application_name: str) -> Generator[Session]:
    """A session on the database at `dsn`, a libpq URI or key=value string; closed at the end, whatever happens.

    The connection is in autocommit, so that a transaction is open only where `transaction` opens one. Raises Fault.
    """
    try:
        connection = psycopg.connect(
            dsn,
            autocommit=True,
            application_name=application_name,
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            client_encoding="UTF8",
            keepalives=1,
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
        )
    except psycopg.Error as error:
        raise _connect_fault(error, dsn) from None
    except UnicodeError:  # from the look-up of a name such as db..internal
        raise Fault(FaultKind.CONNECTION, "cannot connect: the host in the connection string is no host name") from None
    try:
        with faults():
            pooled = _behind_a_pooler(connection)
        if pooled:
            connection.prepare_threshold = None  # a statement prepared on one server connection is not on the next
        yield Session(connection, pooled)
    finally:
        connection.close()


def _behind_a_pooler(connection: Connection) -> bool:
    """Whether the backend that answers is another than the one named when connecting (design section 3)."""
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    return row is None or row[0] != connection.info.backend_pid


@contextmanager
def transaction(
    session: Session, statement_timeout: timedelta, settings: Mapping[LiteralString, str] = _NO_SETTINGS
) -> Generator[Connection]:
    """One transaction with its limits, committed at the end or rolled back; raises Fault.

    READ COMMITTED whatever the role's default: the claim has to see what others committed a moment ago. The limits
    and `settings` are SET LOCAL and end with it. A commit whose answer never came raises Fault of kind commit_unknown.
    """
    with _opened(session, sql.SQL("WRITE"), statement_timeout, settings) as connection:
        yield connection
    _commit(connection)


@contextmanager
def looking(session: Session, statement_timeout: timedelta) -> Generator[Connection]:
    """One transaction that PostgreSQL does not let write; only pg_catalog's operators are found in it; raises Fault."""
    with _opened(session, sql.SQL("ONLY"), statement_timeout, {"search_path": "pg_catalog"}) as connection:
        yield connection
    with faults():
        connection.execute("COMMIT", prepare=False)


@contextmanager
def _opened(
    session: Session, mode: sql.SQL, statement_timeout: timedelta, settings: Mapping[LiteralString, str]
) -> Generator[Connection]:
    connection = session.connection
    with faults():
        try:
            if connection.info.server_version >= _WITH_TRANSACTION_TIMEOUT:
                settings = {**settings, "transaction_timeout": "0"}  # a role's would end the session, not the batch
            connection.execute(_opening(statement_timeout, mode, settings), prepare=False)
            yield connection
        except BaseException:
            _roll_back(connection)
            raise


def tighten(connection: Connection, statement_timeout: timedelta) -> None:
    """Set a shorter statement timeout for what is left of the transaction."""
    connection.execute(
        sql.SQL("SET LOCAL statement_timeout = {}").format(_milliseconds(statement_timeout)), prepare=False
    )


def _opening(statement_timeout: timedelta, mode: sql.SQL, settings: Mapping[LiteralString, str]) -> sql.Composed:
    values = {
        "lock_timeout": _milliseconds(LOCK_TIMEOUT),
        "statement_timeout": _milliseconds(statement_timeout),
        "idle_in_transaction_session_timeout": _milliseconds(_IDLE_TIMEOUT),
        "TimeZone": sql.Literal("UTC"),
        "DateStyle": sql.Literal("ISO"),
        **{name: sql.Literal(value) for name, value in settings.items()},
    }
    return sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED READ {mode}; {settings}").format(
        mode=mode,
        settings=sql.SQL("; ").join(
            sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), value) for name, value in values.items()
        ),
    )


def _milliseconds(limit: timedelta) -> sql.Literal:
    # Rounded up, so that whoever set it to the time left finds none left after the timeout; 0 would mean no limit.
    return sql.Literal(max(1, ceil(limit / timedelta(milliseconds=1))))


def _roll_back(connection: Connection) -> None:
    """Roll back without hiding the error that led here; a connection that cannot is closed, which rolls back too."""
    try:
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.execute("ROLLBACK", prepare=False)
    except psycopg.Error:
        connection.close()


def _commit(connection: Connection) -> None:
    try:
        status = connection.execute("COMMIT", prepare=False).statusmessage
    except psycopg.Error as error:
        if error.sqlstate is None or connection.closed:
            raise Fault(
                FaultKind.COMMIT_UNKNOWN,
                "the connection was lost while committing: the batch may or may not be deleted, and is not counted",
                sqlstate=error.sqlstate,
            ) from None
        _roll_back(connection)
        raise _fault(error) from None
    if status != "COMMIT":  # a COMMIT of a failed transaction answers ROLLBACK and raises nothing
        raise Fault(FaultKind.DATABASE, f"the server answered {status} to COMMIT: nothing of this batch is deleted")


def try_lock(connection: Connection, name: str, *, for_transaction: bool) -> bool:
    """Take the advisory lock of that name if it is free, for the session or for the transaction only (A-09)."""
    scope = "pg_try_advisory_xact_lock" if for_transaction else "pg_try_advisory_lock"
    row = connection.execute(
        sql.SQL("SELECT {}(pg_catalog.hashtextextended(%s, 0::pg_catalog.int8))").format(
            sql.Identifier("pg_catalog", scope)
        ),
        [name],
    ).fetchone()
    return row is not None and row[0] is True


def unlock(connection: Connection, name: str) -> None:
    """Give the session's lock back; closing the connection does the same where this cannot."""
    with suppress(psycopg.Error):
        connection.execute(
            "SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended(%s, 0::pg_catalog.int8))", [name]
        )


@contextmanager
def faults() -> Generator[None]:
    """Turn what psycopg raises into a Fault without a word of the server's message."""
    try:
        yield
    except psycopg.Error as error:
        raise _fault(error) from None


def _fault(error: psycopg.Error) -> Fault:
    sqlstate = error.sqlstate
    if sqlstate is None:
        kind = FaultKind.CONNECTION if isinstance(error, psycopg.OperationalError) else FaultKind.INTERNAL
        return Fault(kind, f"{type(error).__name__}: {_ADVICE.get(kind, 'the client library gave up')}")
    kind = _KINDS.get(sqlstate, FaultKind.CONNECTION if sqlstate.startswith("08") else FaultKind.DATABASE)
    named = _names_are_the_servers(error.diag)
    where = f" (table {error.diag.schema_name}.{error.diag.table_name})" if named and error.diag.table_name else ""
    return Fault(
        kind,
        f"{type(error).__name__}: {_ADVICE[kind]}{where}",
        sqlstate=sqlstate,
        constraint=error.diag.constraint_name if named else None,
    )


def _names_are_the_servers(diagnosis: psycopg.errors.Diagnostic) -> bool:
    """Whether constraint and table were named by the server itself; a RAISE can put what it likes in their place."""
    return (diagnosis.source_file or "").rpartition("/")[2] in _CHECKS_CONSTRAINTS


def _connect_fault(error: psycopg.Error, dsn: str) -> Fault:
    """What libpq says before a session exists names host, user and database, and never the password.

    A connection string it cannot read is quoted in its error, and a login trigger can RAISE whatever it likes: both
    stay out, so of the server's own words only well-known ones are passed on.
    """
    if not isinstance(error, psycopg.OperationalError):
        return Fault(FaultKind.CONNECTION, "cannot connect: the connection string cannot be read; check it for typos")
    words = "; ".join(_of_libpq(line.strip()) for line in str(error).splitlines()[:_HOSTS] if line.strip())
    unset = "" if dsn else " (no connection string is set for this job, so libpq's own environment and defaults count)"
    return Fault(FaultKind.CONNECTION, f"cannot connect: {words}{unset}", sqlstate=error.sqlstate)


def _of_libpq(line: str) -> str:
    where, fatal, words = line.partition("FATAL:")
    if not fatal:
        return where if where.startswith(_LIBPQ_SAYS) else "the server said more, see its log"
    words = words.strip()
    return where + (words if words.startswith(_SERVER_SAYS) else "the server refused the session, see its log")
