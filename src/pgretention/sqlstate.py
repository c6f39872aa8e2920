"""SQLSTATE to our faults: what an error of the server or the client library means for a run, in words of our own.

Source of the codes: PostgreSQL documentation, appendix A. Nothing the server says is passed on, see `Fault`; of what it
says before there is a session only well-known sentences are.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg

from pgretention.errors import Fault, FaultKind

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
_POOLER_SAYS = (
    "unsupported startup parameter",
    "no such database",
    "SASL authentication failed",
    "no more connections allowed",
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
    *_POOLER_SAYS,
)

_STAYS = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "permission denied for database",
)
"""What another try a moment later does not change."""

_ADVICE: dict[FaultKind, str] = {
    FaultKind.CONNECTION: "the connection to the database was lost or refused",
    FaultKind.SERIALIZATION: "the server could not serialize the transaction",
    FaultKind.DEADLOCK: "the server broke a deadlock by giving up this transaction",
    FaultKind.LOCK_TIMEOUT: "a lock was held elsewhere for longer than the lock timeout of 500 ms or less",
    FaultKind.STATEMENT_TIMEOUT: "a statement ran into its timeout",
    FaultKind.FOREIGN_KEY: "a foreign key that the policy does not know still refers to one of the rows",
    FaultKind.PRIVILEGE: "the role lacks a privilege; `pgretention schema --role NAME` prints the grants it needs",
    FaultKind.READ_ONLY: "the server does not accept writes; is it a standby?",
    FaultKind.DATABASE: "the server refused the statement",
}


def fault_of(error: psycopg.Error) -> Fault:
    """What an error of a statement means, without a word of the server's message."""
    sqlstate = error.sqlstate
    if sqlstate is None:
        kind = FaultKind.CONNECTION if isinstance(error, psycopg.OperationalError) else FaultKind.INTERNAL
        return Fault(kind, f"{type(error).__name__}: {_ADVICE.get(kind, 'the client library gave up')}")
    kind = _KINDS.get(sqlstate, FaultKind.CONNECTION if sqlstate.startswith("08") else FaultKind.DATABASE)
    named = _names_are_the_servers(error.diag)
    table = f"{error.diag.schema_name}.{error.diag.table_name}" if named and error.diag.table_name else None
    where = f" (table {table})" if table else ""
    return Fault(
        kind,
        f"{type(error).__name__}: {_ADVICE[kind]}{where}",
        sqlstate=sqlstate,
        constraint=error.diag.constraint_name if named else None,
        table=table,
    )


def _names_are_the_servers(diagnosis: psycopg.errors.Diagnostic) -> bool:
    """Whether constraint and table were named by the server itself; a RAISE can put what it likes in their place."""
    return (diagnosis.source_file or "").rpartition("/")[2] in _CHECKS_CONSTRAINTS


def fault_of_connecting(error: psycopg.Error, dsn: str) -> Fault:
    """What libpq says before a session exists names host, user and database, and never the password.

    A connection string it cannot read is quoted in its error, and a login trigger can RAISE whatever it likes: both
    stay out, so of the server's own words only well-known ones are passed on.
    """
    if not isinstance(error, psycopg.OperationalError):
        return Fault(FaultKind.CONNECTION, "cannot connect: the connection string cannot be read; check it for typos")
    words = "; ".join(_of_libpq(line.strip()) for line in str(error).splitlines()[:_HOSTS] if line.strip())
    unset = "" if dsn else " (no connection string is set for this job, so libpq's own environment and defaults count)"
    passing = not any(said in words for said in _STAYS)
    return Fault(FaultKind.CONNECTION, f"cannot connect: {words}{unset}", sqlstate=error.sqlstate, passing=passing)


def _of_libpq(line: str) -> str:
    where, fatal, words = line.partition("FATAL:")
    if not fatal:
        return where if where.startswith(_LIBPQ_SAYS) else "the server said more, see its log"
    words = words.strip()
    return where + (words if words.startswith(_SERVER_SAYS) else "the server refused the session, see its log")


@contextmanager
def faults() -> Generator[None]:
    """Turn what psycopg raises into a Fault without a word of the server's message."""
    try:
        yield
    except psycopg.Error as error:
        raise fault_of(error) from None
