"""Where the torture takes place: the reference schema with witnesses at every table, and two roles that meet there."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from pgretention.demo.binaries import find_binaries
from pgretention.demo.server import ThrowawayServer
from tests.databases import TEMPLATE, Database, make_template
from tests.support import rows

APPLICATION = "application"
RELATIONS = tuple(map(str, (rows.SESSIONS, rows.EVENTS, rows.VIEWS, rows.FAVORITES)))

SETTINGS = {
    "track_commit_timestamp": "on",  # when a transaction ended
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}

_APPLICATION_MAY = """
    DO $$ BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'application') THEN
            CREATE ROLE application LOGIN PASSWORD {password};
        END IF;
    END $$;
    GRANT USAGE ON SCHEMA user_activity, favorites TO application;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA user_activity, favorites TO application;
"""


@contextmanager
def stage(version: int | None) -> Generator[Database]:
    """A database of its own on a server of its own, whose every trace is gone afterwards."""
    with ThrowawayServer.start(find_binaries(version), SETTINGS) as server:
        make_template(server)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE torture TEMPLATE {}").format(sql.Identifier(TEMPLATE)))
        with ExitStack() as opened:
            database = Database(server, "torture", opened)
            furnish(database)
            yield database


@contextmanager
def connected(database: Database) -> Generator[Connection[TupleRow]]:
    """A superuser's connection in autocommit, closed at the end of the block."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        yield connection


def furnish(database: Database) -> None:
    """Let the application in, allow any dates, and write down from now on what becomes of every row."""
    with connected(database) as admin:
        rows.allow_any_dates(admin)
        admin.execute(sql.SQL(_APPLICATION_MAY).format(password=sql.Literal(database.server.password)))
        admin.execute(Path(__file__).with_name("witness.sql").read_bytes())


def application_dsn(database: Database) -> str:
    return make_conninfo(
        database.server.dsn(database.name, APPLICATION, database.server.password), application_name=APPLICATION
    )
