"""What the server has counted itself: reads and writes per table, and index entries visited."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support.gates import one, until, workers


@dataclass(frozen=True)
class TableCounters:
    """Since the statistics began: `read` in scans, `written` in rows, rolled back ones included."""

    read: Counter[str]
    written: Counter[str]


def table_counters(connection: Connection[TupleRow]) -> dict[str, TableCounters]:
    """Every table that is not PostgreSQL's own, once all workers have left and reported their share."""
    _settle(connection)
    query = """
        SELECT schemaname || '.' || relname, seq_scan, coalesce(idx_scan, 0), n_tup_ins, n_tup_upd, n_tup_del
          FROM pg_stat_user_tables
    """
    return {
        name: TableCounters(
            Counter(seq_scan=seq_scan, idx_scan=idx_scan), Counter(inserted=inserted, updated=updated, deleted=deleted)
        )
        for name, seq_scan, idx_scan, inserted, updated, deleted in connection.execute(query)
    }


def index_entries_visited(connection: Connection[TupleRow], index: str) -> int:
    """How many entries scans of an index have come across, dead ones included."""
    _settle(connection)
    visited = one(connection, "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = %s", index)
    assert isinstance(visited, int)
    return visited


def _settle(connection: Connection[TupleRow]) -> None:
    """A backend hands its counts in before it disappears from the list; our own does so when asked to."""
    until(lambda: not workers(connection))
    connection.execute("SELECT pg_stat_force_next_flush()")
