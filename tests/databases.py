"""A fresh database for each test: the reference schema, cloned from a template in some milliseconds."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from typing import LiteralString

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention import schema
from pgretention.demo.server import ThrowawayServer
from pgretention.jobs import activity_retention, guest_favorites_cleanup

TEMPLATE: LiteralString = "reference"
WORKER: LiteralString = "pgretention_worker"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Database:
    """One database on a throw-away server, for one test.

    `dsn` is the superuser's, `worker_dsn` that of the role which has the least privileges a worker needs.
    """

    server: ThrowawayServer
    name: str
    _open: ExitStack

    @property
    def dsn(self) -> str:
        return self.server.dsn(self.name)

    @property
    def worker_dsn(self) -> str:
        return self.server.dsn(self.name, WORKER, self.server.password)

    def connect(self) -> Connection[TupleRow]:
        """A new superuser connection in autocommit mode, closed when the test ends."""
        return self._open.enter_context(psycopg.connect(self.dsn, autocommit=True))


@contextmanager
def fresh_database(server: ThrowawayServer) -> Generator[Database]:
    """Clone the template, and drop the clone when done, whoever is still connected."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        # Copying files is twice as fast as the default on a server that does not fsync.
        clone = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        connection.execute(clone.format(sql.Identifier(name), sql.Identifier(TEMPLATE)))
    try:
        with ExitStack() as opened:
            yield Database(server, name, opened)
    finally:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def make_template(server: ThrowawayServer) -> None:
    """Create the worker's role, with the superuser's password, and the database that tests clone."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(WORKER), server.password))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    with psycopg.connect(server.dsn(TEMPLATE)) as connection:
        for name in "user_activity", "favorites":
            connection.execute((files("pgretention") / "sql" / f"{name}.sql").read_bytes())
        _grant(connection)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        # Nobody may sit in the template: a database with sessions cannot be cloned.
        connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(TEMPLATE)))


def _grant(connection: Connection[TupleRow]) -> None:
    """Give the worker's role what the shipped jobs need, whatever their retention is."""
    day = timedelta(days=1)
    policies = activity_retention.policy(day), guest_favorites_cleanup.policy(day)
    connection.execute(schema.grants(policies, WORKER).encode())
