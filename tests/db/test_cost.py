"""The last batch is as cheap as the first, although an old snapshot keeps every dead row and index entry in place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import pytest
from psycopg import Connection, IsolationLevel, sql
from psycopg.rows import TupleRow

from pgretention.report import BatchDone, Fact, Outcome
from tests.databases import Database
from tests.support.counters import index_entries_visited
from tests.support.explain import Node, batch_transaction, statements_of
from tests.support.rows import FAVORITES
from tests.support.runs import GUESTS, job, unwatched_run

Admin = Connection[TupleRow]

ROWS, BATCH = 20_000, 100
SECOND = timedelta(seconds=1)
BEGINNING = datetime(2020, 1, 1, tzinfo=UTC)
AFTER_ALL = BEGINNING + timedelta(days=1)


@pytest.fixture
def old_snapshot(database: Database, admin: Admin) -> Connection[TupleRow]:
    """Many expired favorites, and somebody who has been looking at all of them since before the run."""
    admin.execute("ALTER TABLE favorites.favorites SET (autovacuum_enabled = off)")
    admin.execute(
        """
        INSERT INTO favorites.favorites (id, anonymous_id, property_object_id, updated_at)
        SELECT lpad(to_hex(n), 32, '0')::uuid, gen_random_uuid(), gen_random_uuid(),
               %s + n * interval '1 second' FROM generate_series(1, %s) AS n
        """,
        [BEGINNING, ROWS],
    )
    watcher = database.connect()
    watcher.isolation_level = IsolationLevel.REPEATABLE_READ
    watcher.autocommit = False
    watcher.execute("SELECT count(*) FROM favorites.favorites")
    return watcher


def buffers_touched(database: Database, claim: sql.Composed, binds: Mapping[str, object]) -> int:
    """The buffers that a claim looks at: a count, the same on every machine."""
    explain = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ") + claim
    with batch_transaction(database) as connection:
        (top,) = cast("tuple[list[Node]]", connection.execute(explain, binds).fetchone())[0]
    return int(top["Plan"]["Shared Hit Blocks"]) + int(top["Plan"]["Shared Read Blocks"])


@pytest.mark.req("F-07", "H-07")
@pytest.mark.usefixtures("old_snapshot")
def test_the_claim_of_a_late_batch_touches_as_many_buffers_as_that_of_the_second(database: Database) -> None:
    statements = statements_of(database, GUESTS)
    with_cursor: dict[int, int] = {}
    without: dict[int, int] = {}

    def on(fact: Fact) -> None:
        if isinstance(fact, BatchDone) and fact.index in {1, 100, 190}:
            last = fact.index * BATCH
            binds = {"cutoff": AFTER_ALL, "after_expiry": BEGINNING + last * SECOND, "after_key": UUID(int=last)}
            with_cursor[fact.index] = buffers_touched(database, statements.claim_next(BATCH), binds)
            without[fact.index] = buffers_touched(database, statements.claim_first(BATCH), binds)

    ran = unwatched_run(database.worker_dsn, job(GUESTS, batch_size=BATCH), on=on)

    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.report.deleted == {str(FAVORITES): ROWS}
    assert max(with_cursor.values()) <= 1.25 * with_cursor[1]
    assert without[190] > 3 * without[1], "the dead entries are there, and only the cursor avoids them"


@pytest.mark.req("F-07")
@pytest.mark.usefixtures("old_snapshot")
def test_a_whole_run_visits_each_index_entry_a_few_times_and_not_once_a_batch(database: Database, admin: Admin) -> None:
    before = index_entries_visited(admin, "ix_favorites_guest_updated_at")

    ran = unwatched_run(database.worker_dsn, job(GUESTS, batch_size=BATCH))

    visited = index_entries_visited(admin, "ix_favorites_guest_updated_at") - before
    assert ran.report.batches == ROWS // BATCH
    assert ROWS <= visited <= 8 * ROWS
