"""One run of an exclusive job at a time, by advisory locks that PostgreSQL drops with the connection (A-09).

The job's lock is held on the connection that deletes. Where a run deletes on more connections than that one, two other
locks keep the promise when the first connection is lost and another run comes:

* each transaction of the other connections shares the *batch* lock until it ends, and whoever begins a run has to find
  that one free: a batch in flight keeps the next run out;
* the first connection then holds a lock that bears the run's id. A transaction that shares the batch lock and could
  have the run's too knows that its run has lost the first connection, and deletes nothing.

Of two that come at the same instant one sees the other: a run takes the job's lock and then looks at the batch lock, a
batch shares the batch lock and then looks for its run.

A session's lock can be given back behind our back, by a trigger that calls pg_advisory_unlock_all say. So each batch of
the first connection takes the job's lock for its transaction too, which nobody can give back before it ends.

Behind a pooler each transaction can be on another server connection. There the job's lock is taken anew inside every
batch's transaction, and a run has one connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import LiteralString, cast

from psycopg import sql

from pgretention import backlog, db
from pgretention.errors import Fault, FaultKind
from pgretention.session import Connection, Session

Entry = Callable[[Connection], bool]
"""Whether a batch may go on: asked in its transaction before anything else."""


@contextmanager
def entered(session: Session, lock: str | None) -> Generator[Entry | None]:
    """While inside, no other run of the job begins; yields what its batches on this session ask, None if one is on.

    Without a lock everybody may enter. Behind a pooler this only looks whether somebody is running now.
    """
    if lock is None:
        yield _always
        return
    if not _begin(session, lock):
        yield None
    elif session.pooled:
        yield lambda connection: _alone(connection, lock)
    else:
        try:
            yield lambda connection: _still_holds(connection, lock)
        finally:
            if not session.connection.closed:
                _unlock(session, lock)


@contextmanager
def beside(session: Session, lock: str | None, run_id: str) -> Generator[Entry]:
    """While inside, other connections may delete beside this one, which has entered; yields what their batches ask.

    Raises Fault.
    """
    if lock is None:
        yield _always
        return
    this_run = f"{lock}/run/{run_id}"
    with db.looking(session, backlog.MEASURING) as connection:
        _ask(connection, "pg_try_advisory_lock", this_run)

    def entry(connection: Connection) -> bool:
        return _ask(connection, "pg_try_advisory_xact_lock_shared", _batches(lock)) and not _ask(
            connection, "pg_try_advisory_xact_lock_shared", this_run
        )

    try:
        yield entry
    finally:
        if not session.connection.closed:
            _unlock(session, this_run)


def holders(session: Session, lock: str) -> str | None:
    """Who keeps a run of the job from beginning now, in words for people; None if nobody can be seen to."""
    with suppress(Fault), db.looking(session, backlog.MEASURING) as connection:
        row = connection.execute(db.statement("lock_holders"), {"names": [lock, _batches(lock)]}).fetchone()
        return cast("str | None", row and row[0])
    return None


def _always(_: Connection) -> bool:
    return True


def _begin(session: Session, lock: str) -> bool:
    with db.looking(session, backlog.MEASURING) as connection:
        if session.pooled:
            return _alone(connection, lock)
        if not _ask(connection, "pg_try_advisory_lock", lock):
            return False
        if _ask(connection, "pg_try_advisory_xact_lock", _batches(lock)):
            return True
        _ask(connection, "pg_advisory_unlock", lock)
        return False


def _still_holds(connection: Connection, lock: str) -> bool:
    """Hold the lock of this session until the end of the transaction too, if it was not lost and taken by another run.

    Raises Fault where another server connection than the session's answers.
    """
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    if row != (connection.info.backend_pid,):
        raise Fault(FaultKind.CONNECTION, "a pooler has exchanged the server connection that holds the job's lock")
    return _ask(connection, "pg_try_advisory_xact_lock", lock)


def _alone(connection: Connection, lock: str) -> bool:
    """Take the job's lock and the batch lock until the end of the transaction, if they are free."""
    return all(_ask(connection, "pg_try_advisory_xact_lock", name) for name in (lock, _batches(lock)))


def _batches(lock: str) -> str:
    return f"{lock}/batches"


def _unlock(session: Session, name: str) -> None:
    """Give a session's lock back; where that cannot be done, closing the connection does it."""
    with suppress(Fault), db.looking(session, backlog.MEASURING) as connection:
        _ask(connection, "pg_advisory_unlock", name)


def _ask(connection: Connection, function: LiteralString, name: str) -> bool:
    asking = sql.SQL("SELECT {}(pg_catalog.hashtextextended(%s, 0::pg_catalog.int8))")
    row = connection.execute(asking.format(sql.Identifier("pg_catalog", function)), [name]).fetchone()
    return row is not None and row[0] is True
