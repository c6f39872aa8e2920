"""The rows that are measured on: like the demo's, but by the million and with nothing near the cutoff.

Rows lie in the order of their time, as they do where a service has written them for years. Of the old ones some are
protected by the guard: these stay, like everything from the last year.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from psycopg import Connection
from psycopg.rows import TupleRow

from bench.tables import CUTOFF, Tables
from pgretention import schema

Fingerprint = dict[str, tuple[int, int]]
"""For each table, how many rows and the sum of their hashes."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """How many root rows a database holds, and how many of them are old."""

    tables: Tables
    old: int
    total: int

    @property
    def name(self) -> str:
        """That of the database."""
        return f"{self.tables.domain}-{self.old}-{self.total}"

    @property
    def expired(self) -> int:
        """Root rows that a run deletes."""
        return self.old - self.old // self.tables.kept_every

    @property
    def expired_rows(self) -> int:
        """The same with their children."""
        return self.expired * self.tables.rows_each


_INDEXES = """
    SELECT format('%I.%I', schemaname, indexname), indexdef FROM pg_indexes
     WHERE schemaname IN ('user_activity', 'favorites') AND indexdef NOT LIKE 'CREATE UNIQUE%'
"""
"""Those that no constraint needs."""


def fill(connection: Connection[TupleRow], data: Dataset) -> Fingerprint:
    """Create the reference tables and their rows in an empty database; answers what is to be left after a run."""
    connection.execute(schema.ddl(data.tables.domain).encode())
    indexes = connection.execute(_INDEXES).fetchall()
    with connection.transaction():
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}".encode())
        connection.execute("CREATE TEMP TABLE times (n bigint, at timestamptz)")
        binds = {"old": data.old, "total": data.total}
        connection.execute(_script("fill_times.sql"), binds)
        connection.execute(_script(f"fill_{data.tables.domain.replace('-', '_')}.sql"))
        connection.execute("DROP TABLE times")
        for _, definition in indexes:  # much sooner done than kept up to date row by row
            connection.execute(definition.encode())
    connection.execute("VACUUM (FREEZE, ANALYZE)")
    connection.execute("CREATE EXTENSION pg_prewarm")
    # Not as NOT IN, which compares each row with each of the ids when these do not fit into work_mem.
    root, expired = data.tables.root, data.tables.expired(CUTOFF)
    kept = f"WHERE NOT EXISTS (SELECT FROM {root} AS r WHERE r.id = t.{{key}} AND {expired})"
    return fingerprint(connection, data.tables, kept)


def fingerprint(connection: Connection[TupleRow], tables: Tables, where: str = "") -> Fingerprint:
    """What there is, or would be under a condition on `t.{key}`, which holds the root's id."""
    found: Fingerprint = {}
    for table, key in (*tables.children, (tables.root, "id")):
        query = f"SELECT count(*), coalesce(sum(hash_record_extended(t, 0)), 0)::text FROM {table} AS t {where}"
        ((rows, hashes),) = connection.execute(query.format(key=key).encode()).fetchall()
        found[table] = rows, int(hashes)
    return found


def _script(name: str) -> bytes:
    return files("bench").joinpath(name).read_bytes()
