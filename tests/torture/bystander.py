"""A table that no run may read or write: `property_object_view_stats` (A-03)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from tests.databases import Database
from tests.support.gates import until
from tests.torture.stage import connected

_FILL = """
    INSERT INTO user_activity.property_object_view_stats
    SELECT gen_random_uuid(), n, n * interval '1 second' FROM generate_series(1, 100) AS n
"""
_ROWS = "SELECT array_agg((s, s.ctid, s.xmin)::text ORDER BY s.ctid) FROM user_activity.property_object_view_stats s"
_COUNTERS = """
    SELECT ARRAY[seq_scan, coalesce(idx_scan, 0), n_tup_ins, n_tup_upd, n_tup_del]
      FROM pg_stat_user_tables WHERE relname = 'property_object_view_stats'
"""


@dataclass(frozen=True)
class Bystander:
    """Its rows, with place and writer, and what the server has counted of reads and writes."""

    rows: list[str]
    counters: list[int]


def place(database: Database) -> Bystander:
    """Fill the table, look at it, and wait until the server has counted both."""
    with connected(database) as admin:
        admin.execute(_FILL)
        rows = _value(admin, _ROWS)
        admin.execute("SELECT pg_stat_force_next_flush()")
        until(lambda: _counters(admin)[0] > 0 and _counters(admin)[2] == len(rows))
        return Bystander([str(row) for row in rows], _counters(admin))


def look(database: Database) -> Bystander:
    with connected(database) as admin:
        counters = _counters(admin)
        return Bystander([str(row) for row in _value(admin, _ROWS)], counters)


def changes(before: Bystander, after: Bystander, *, crashes: int) -> Iterator[str]:
    """3. Neither rows nor counters have changed; a crash of the server sets the counters back to zero."""
    if before.rows != after.rows:
        yield "bystander: property_object_view_stats holds other rows, or other versions of them"
    untouched = [before.counters, [0] * len(before.counters)] if crashes else [before.counters]
    if after.counters not in untouched:
        yield f"bystander: property_object_view_stats was used: counters {before.counters}, now {after.counters}"


def _counters(admin: Connection[TupleRow]) -> list[int]:
    return [int(str(count)) for count in _value(admin, _COUNTERS)]


def _value(admin: Connection[TupleRow], query: str) -> list[object]:
    row = admin.execute(query.encode()).fetchone()
    return [] if row is None or row[0] is None else list(row[0])
