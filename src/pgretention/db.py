"""A transaction with its limits, and what becomes of a COMMIT.

Every statement of ours runs inside `transaction`, so that every setting is SET LOCAL and none is left behind on a
pooled server connection. What the server says about an error is never passed on: see `Fault`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from importlib.resources import files
from math import ceil
from types import MappingProxyType
from typing import LiteralString, cast

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from pgretention.errors import Fault, FaultKind
from pgretention.session import Connection, Session
from pgretention.sqlstate import fault_of, faults

_COMMITTING = timedelta(seconds=60)
"""No timeout of the server ends a COMMIT, which may wait for a synchronous standby."""

_HARDLY = timedelta(milliseconds=10)
"""Long enough for locks that last a moment, such as those on the end of a file."""

_IDLE_TIMEOUT = timedelta(seconds=60)
_NO_SETTINGS: Mapping[LiteralString, str] = MappingProxyType({})


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
    session.patience.allow(_COMMITTING)
    _commit(connection)
    session.patience.allow(None)


@contextmanager
def undone(
    session: Session, statement_timeout: timedelta, settings: Mapping[LiteralString, str] = _NO_SETTINGS
) -> Generator[Connection]:
    """One transaction with its limits as `transaction` opens it, that is rolled back at the end; raises Fault."""
    with _opened(session, sql.SQL("WRITE"), statement_timeout, settings) as connection:
        yield connection
        connection.execute("ROLLBACK", prepare=False)
    session.patience.allow(None)


@contextmanager
def looking(
    session: Session, statement_timeout: timedelta, settings: Mapping[LiteralString, str] = _NO_SETTINGS
) -> Generator[Connection]:
    """One transaction that PostgreSQL does not let write; only pg_catalog's operators are found in it; raises Fault."""
    set_besides: Mapping[LiteralString, str] = {"search_path": "pg_catalog", **settings}
    with _opened(session, sql.SQL("ONLY"), statement_timeout, set_besides) as connection:
        yield connection
    with faults():
        connection.execute("COMMIT", prepare=False)
    session.patience.allow(None)


@contextmanager
def _opened(
    session: Session, mode: sql.SQL, statement_timeout: timedelta, settings: Mapping[LiteralString, str]
) -> Generator[Connection]:
    connection = session.connection
    with faults():
        try:
            session.patience.allow(statement_timeout)
            connection.execute(_opening(session, statement_timeout, mode, settings), prepare=False)
            yield connection
        except BaseException:
            _roll_back(connection)
            session.patience.allow(None)
            raise


@cache
def statement(name: str) -> bytes:
    """A fixed statement of ours from `sql/`."""
    return files("pgretention").joinpath("sql", f"{name}.sql").read_bytes()


def written(connection: Connection) -> int:
    """How many bytes of WAL the server has written so far, for us and for others."""
    row = connection.execute("SELECT (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::pg_catalog.int8").fetchone()
    return cast("tuple[int]", row)[0]


def tighten(session: Session, statement_timeout: timedelta) -> None:
    """Set shorter timeouts for what comes next in a transaction that holds row locks by now.

    In a deadlock the server gives up whoever has waited for longest when it looks, and that can be the application,
    if it began to wait for us before we began to wait for it. So whoever holds rows hardly waits at all.
    """
    session.patience.allow(statement_timeout)
    session.connection.execute(
        sql.SQL("SET LOCAL statement_timeout = {}; SET LOCAL lock_timeout = {}").format(
            _milliseconds(statement_timeout), _milliseconds(min(_HARDLY, session.lock_timeout))
        ),
        prepare=False,
    )


def _opening(
    session: Session, statement_timeout: timedelta, mode: sql.SQL, settings: Mapping[LiteralString, str]
) -> sql.Composed:
    values = {
        "lock_timeout": _milliseconds(session.lock_timeout),
        "statement_timeout": _milliseconds(statement_timeout),
        "idle_in_transaction_session_timeout": _milliseconds(_IDLE_TIMEOUT),
        "TimeZone": sql.Literal("UTC"),
        "DateStyle": sql.Literal("ISO"),
        **{name: sql.Literal(value) for name, value in {**settings, **session.settings}.items()},
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
        # A pooler may have lost the server and keep the connection with us.
        if connection.closed or fault_of(error).kind is FaultKind.CONNECTION:
            raise Fault(
                FaultKind.COMMIT_UNKNOWN,
                "the connection was lost while committing: the batch may or may not be deleted, and is not counted",
                sqlstate=error.sqlstate,
            ) from None
        _roll_back(connection)
        raise fault_of(error) from None
    if status != "COMMIT":  # a COMMIT of a failed transaction answers ROLLBACK and raises nothing
        raise Fault(FaultKind.DATABASE, f"the server answered {status} to COMMIT: nothing of this batch is deleted")
