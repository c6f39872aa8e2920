"""Batches that are deleted and rolled back: what they cost is told, and nothing is gone."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention import db
from pgretention.clock import SystemClock
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.exclusive import entered
from pgretention.policy import Policy
from pgretention.rehearsal import Rehearsal, rehearse
from pgretention.session import connect
from pgretention.shape import prepared
from tests.databases import Database
from tests.support.locks import assert_nothing_is_held
from tests.support.planted import favorite, left, old_favorites, old_sessions, plant
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS, ids
from tests.support.runs import ACTIVITY, GUESTS, job, run
from tests.support.transaction_pooler import transaction_pooler
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]

TABLES = (
    "user_activity.sessions",
    "user_activity.property_object_views",
    "user_activity.action_events",
    "user_activity.property_object_view_stats",
    "favorites.favorites",
)


def content(admin: Admin) -> dict[str, list[object]]:
    """Every row there is, as text."""
    return {
        table: [row for (row,) in admin.execute(f"SELECT t::text FROM {table} AS t ORDER BY 1".encode())]
        for table in TABLES
    }


def rehearsed(database: Database, batches: int = 3, size: int = 2, policy: Policy = ACTIVITY) -> Rehearsal:
    this = job(policy, batch_size=size)
    return rehearse(this, database.worker_dsn, SystemClock(), batches=batches)


def test_what_a_run_would_delete_is_measured_and_still_there(database: Database, admin: Admin) -> None:
    plant(admin)
    old_sessions(admin, 5)
    before = content(admin)

    rehearsal = rehearsed(database, batches=100)

    assert content(admin) == before
    rows = {
        str(table): sum(batch.rows[str(table)] for batch in rehearsal.batches) for table in (EVENTS, VIEWS, SESSIONS)
    }
    assert rehearsal.backlog.rows == rows[str(SESSIONS)] == sum(batch.claimed for batch in rehearsal.batches)
    assert run(database, job(ACTIVITY, batch_size=2)).report.deleted == rows


def test_each_batch_is_another_one_and_no_more_than_asked_for(database: Database, admin: Admin) -> None:
    old_sessions(admin, 5)

    assert [batch.claimed for batch in rehearsed(database).batches] == [2, 2, 1]
    assert [batch.claimed for batch in rehearsed(database, batches=1).batches] == [2]


def test_time_wal_pages_foreign_keys_and_locks_are_told(database: Database, admin: Admin) -> None:
    old_sessions(admin, 4)

    (batch,) = rehearsed(database, batches=1, size=4).batches

    assert batch.took == batch.claiming + batch.deleting > timedelta(0)
    assert batch.wal > 0
    assert batch.buffers_hit + batch.buffers_read > 0
    assert {check.name for check in batch.checks} >= {"action_events_session_id_fkey"}
    assert all(check.calls > 0 for check in batch.checks)
    assert {f"RowExclusiveLock on {table}" for table in (SESSIONS, VIEWS, EVENTS)} == set(batch.locks)


def test_what_is_measured_is_extrapolated_to_everything_that_is_expired(database: Database, admin: Admin) -> None:
    old_favorites(admin, 9)

    rehearsal = rehearsed(database, batches=2, policy=GUESTS)

    assert (rehearsal.backlog.rows, rehearsal.batches_needed, rehearsal.runs_needed) == (9, 5, 1)
    assert rehearsal.per_row is not None
    assert rehearsal.drained_in == rehearsal.per_row * 9
    assert rehearsal.fitting is not None
    assert 1 <= rehearsal.fitting <= 50_000


def test_nothing_expired_is_nothing_to_rehearse(database: Database) -> None:
    rehearsal = rehearsed(database, policy=GUESTS)
    assert (rehearsal.batches, rehearsal.per_row, rehearsal.drained_in, rehearsal.fitting) == ((), None, None, None)


def test_rows_that_somebody_else_has_locked_are_stepped_over(database: Database, admin: Admin) -> None:
    old = old_favorites(admin, 3)
    with admin.transaction():
        admin.execute("SELECT FROM favorites.favorites WHERE id = %s FOR UPDATE", [old[0]])
        rehearsal = rehearsed(database, size=100, policy=GUESTS)
    assert [batch.claimed for batch in rehearsal.batches] == [2]


def test_a_batch_that_a_foreign_key_refuses_is_told_and_the_next_one_rehearsed(
    database: Database, admin: Admin
) -> None:
    old = old_sessions(admin, 4)
    admin.execute("CREATE TABLE public.notes (session uuid PRIMARY KEY REFERENCES user_activity.sessions)")
    admin.execute("INSERT INTO public.notes VALUES (%s)", [old[0]])

    first, second = rehearsed(database, batches=2).batches

    assert first.refused is not None
    assert "notes_session_fkey" in first.refused
    assert (second.refused, second.rows[str(SESSIONS)]) == (None, 2)
    assert left(admin) == set(old)


def test_a_constraint_that_is_checked_at_the_end_only_is_told_too(database: Database, admin: Admin) -> None:
    old = old_sessions(admin, 2)
    admin.execute(
        "CREATE TABLE public.notes (session uuid PRIMARY KEY REFERENCES user_activity.sessions"
        " DEFERRABLE INITIALLY DEFERRED)"
    )
    admin.execute("INSERT INTO public.notes VALUES (%s)", [old[0]])

    (batch,) = rehearsed(database).batches

    assert batch.refused is not None
    assert left(admin) == set(old)


def test_a_trigger_that_swallows_deletions_is_found(database: Database, admin: Admin) -> None:
    old_favorites(admin, 2)
    on_delete(admin, FAVORITES, "RETURN NULL")

    with pytest.raises(Fault) as swallowed:
        rehearsed(database, policy=GUESTS)

    assert swallowed.value.kind is FaultKind.CLAIM_MISMATCH
    assert len(ids(admin, FAVORITES)) == 2


def test_a_child_that_a_trigger_keeps_fails_as_the_run_would(database: Database, admin: Admin) -> None:
    old = old_sessions(admin, 2)
    on_delete(admin, EVENTS, "RETURN NULL")

    with pytest.raises(Fault) as kept:
        rehearsed(database)

    assert kept.value.kind is FaultKind.CLAIM_MISMATCH
    assert left(admin) == set(old)


def test_ctrl_c_behind_a_pooler_leaves_no_prepared_statement_for_the_next_one(database: Database, admin: Admin) -> None:
    old_favorites(admin, 2)
    on_delete(admin, FAVORITES, "PERFORM pg_sleep(0.2)")
    with transaction_pooler(database, 1) as pooler, connect(pooler.dsn, "somebody") as session:
        with (
            suppress(KeyboardInterrupt),
            db.undone(session, timedelta(seconds=10)) as connection,
            prepared(connection, sql.SQL("SELECT 1").format(), {}),
        ):
            raise KeyboardInterrupt
        with db.looking(session, timedelta(seconds=10)) as connection:
            assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_another_run_is_not_disturbed(database: Database, admin: Admin) -> None:
    old = old_sessions(admin, 2)
    with (
        connect(database.worker_dsn, "somebody else") as session,
        entered(session, ACTIVITY.lock),
        pytest.raises(Refusal) as refusal,
    ):
        rehearsed(database)
    assert "another run of activity-retention is on" in str(refusal.value)
    assert left(admin) == set(old)


def test_no_lock_is_left_behind(database: Database, admin: Admin) -> None:
    old_sessions(admin, 2)
    favorite(admin, "2020-01-01")
    rehearsed(database)
    rehearsed(database, policy=GUESTS)
    assert_nothing_is_held(admin)
