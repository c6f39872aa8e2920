"""What a server has been asked to do, as it writes it down itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tests.databases import Database

_STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]+): (.*(?:\n\t.*)*)")


@contextmanager
def logged(database: Database, admin: Connection[TupleRow]) -> Generator[Callable[[], list[str]]]:
    """Ask for every statement that later connections send to this database, parameters as $1; `admin` is none."""
    log = database.server.folder / "postgres.log"
    begin = log.stat().st_size
    admin.execute(sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(sql.Identifier(database.name)))

    def statements() -> list[str]:
        written = log.read_bytes()[begin:].decode()
        return [found[1].replace("\n\t", "\n") for found in _STATEMENT.finditer(written)]

    yield statements
    admin.execute(sql.SQL("ALTER DATABASE {} RESET log_statement").format(sql.Identifier(database.name)))
