"""Rows that the database will not delete: found, named and left out, while the rest goes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from typing import LiteralString
from uuid import UUID

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.errors import FaultKind
from pgretention.policy import Table
from pgretention.report import BatchDone, Fact, Outcome, RowsKept
from tests.databases import Database
from tests.support import rows
from tests.support.gates import one
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import EVENTS, FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, Run, job, run
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]

UNDECLARED: LiteralString = """
    CREATE TABLE user_activity.notes (
        session_id uuid CONSTRAINT notes_session REFERENCES user_activity.sessions {} , note text
    )
"""
ACTIONS: tuple[LiteralString, ...] = (
    "ON DELETE RESTRICT",
    "ON DELETE NO ACTION",
    "DEFERRABLE INITIALLY DEFERRED",
)


def refer_to(admin: Admin, sessions: Iterable[UUID]) -> None:
    for session in sessions:
        admin.execute("INSERT INTO user_activity.notes VALUES (%s)", [session])


def kept(ran: Run) -> list[RowsKept]:
    return [fact for fact in ran.facts if isinstance(fact, RowsKept)]


def assert_left_out(ran: Run, keys: Iterable[UUID]) -> None:
    error = ran.report.error
    assert (ran.report.outcome, ran.report.has_more) == (Outcome.PARTIAL, False)
    assert error is not None
    assert error.kind is FaultKind.FOREIGN_KEY
    assert set(error.keys) == {str(key) for key in keys}
    assert [key for fact in kept(ran) for key in fact.error.keys] == list(error.keys)


@pytest.mark.req("A-17", "A-12")
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
def test_a_row_that_a_foreign_key_nobody_declared_protects_is_left_out_and_the_rest_goes(
    database: Database, admin: Admin, action: LiteralString, batch_size: int
) -> None:
    sessions = old_sessions(admin, 9)
    admin.execute(UNDECLARED.format(action))
    refer_to(admin, [sessions[3], sessions[4], sessions[8]])

    ran = run(database, job(ACTIVITY, batch_size=batch_size))

    assert_left_out(ran, [sessions[3], sessions[4], sessions[8]])
    assert left(admin) == {sessions[3], sessions[4], sessions[8]}
    assert ran.report.error is not None
    newer = database.server.version >= 18 and "RESTRICT" in action
    assert ran.report.error.sqlstate == ("23001" if newer else "23503")
    assert ran.report.error.constraint == "notes_session"
    assert "3 expired rows stay" in ran.report.error.message
    assert ran.report.backlog_after is not None
    assert ran.report.backlog_after.rows == 3


@pytest.mark.req("A-17")
def test_the_next_run_gets_past_the_same_rows_again_and_takes_what_has_expired_since(
    database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 5)
    admin.execute(UNDECLARED.format("ON DELETE RESTRICT"))
    refer_to(admin, sessions)
    run(database, job(ACTIVITY, batch_size=3))
    rows.session(admin, "2020-03-01")

    ran = run(database, job(ACTIVITY, batch_size=3))

    assert_left_out(ran, sessions)
    assert ran.report.deleted[str(SESSIONS)] == 1
    assert left(admin) == set(sessions)


@pytest.mark.req("A-17")
def test_one_row_among_ten_thousand_costs_some_small_transactions(database: Database, admin: Admin) -> None:
    admin.execute(
        """
        INSERT INTO favorites.favorites (id, anonymous_id, property_object_id, updated_at)
        SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), timestamptz '2020-01-01' + n * interval '1 min'
          FROM generate_series(1, 10000) AS n
        """
    )
    admin.execute("CREATE TABLE favorites.pins (favorite_id uuid REFERENCES favorites.favorites ON DELETE RESTRICT)")
    key = one(admin, "SELECT id FROM favorites.favorites ORDER BY updated_at OFFSET 6543 LIMIT 1")
    assert isinstance(key, UUID)
    admin.execute("INSERT INTO favorites.pins VALUES (%s)", [key])

    ran = run(database, job(GUESTS, batch_size=1000))

    assert_left_out(ran, [key])
    assert ran.report.deleted == {str(FAVORITES): 9999}
    assert ran.report.batches < 10 + 2 * 10  # a batch of a thousand is halved ten times, and grows again as often


@pytest.mark.req("A-17")
def test_a_chain_of_rows_that_refer_to_each_other_ends_and_loses_none_that_is_referred_to(
    database: Database, admin: Admin
) -> None:
    admin.execute(
        "ALTER TABLE user_activity.sessions ADD COLUMN before uuid REFERENCES user_activity.sessions ON DELETE RESTRICT"
    )
    sessions = old_sessions(admin, 6)
    for older, newer in pairwise(sessions):
        admin.execute("UPDATE user_activity.sessions SET before = %s WHERE id = %s", [older, newer])

    ran = run(database, job(ACTIVITY, batch_size=4))

    assert ran.report.outcome is Outcome.PARTIAL
    assert left(admin) == set(sessions[:5])


@pytest.mark.req("A-17", "F-11")
def test_a_limit_that_ends_a_run_which_left_rows_out_says_both(database: Database, admin: Admin) -> None:
    favorites = old_favorites(admin, 6)
    admin.execute("CREATE TABLE favorites.pins (favorite_id uuid REFERENCES favorites.favorites ON DELETE RESTRICT)")
    admin.execute("INSERT INTO favorites.pins VALUES (%s)", [favorites[0]])

    report = run(database, job(GUESTS, batch_size=2, max_batches=2)).report

    assert (report.outcome, report.has_more) == (Outcome.PARTIAL, True)
    assert report.deleted[str(FAVORITES)] <= 4
    assert rows.ids(admin, FAVORITES) >= {favorites[0], favorites[5]}


@pytest.mark.req("A-11", "A-17")
def test_the_parts_of_a_divided_batch_count_together_as_one_of_the_batches_a_run_may_have(
    database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 16)
    admin.execute(UNDECLARED.format("ON DELETE RESTRICT"))
    refer_to(admin, [sessions[0]])

    report = run(database, job(ACTIVITY, batch_size=8, max_batches=2)).report

    assert report.outcome is Outcome.PARTIAL
    assert left(admin) == {sessions[0]}


@pytest.mark.req("A-12", "A-17")
@pytest.mark.parametrize("table", [SESSIONS, EVENTS], ids=str)
def test_a_trigger_that_swallows_every_deletion_ends_the_run_at_once(
    database: Database, admin: Admin, table: Table
) -> None:
    sessions = old_sessions(admin, 6)
    admin.execute("CREATE SEQUENCE public.asked")  # what a sequence counts outlives a rollback
    on_delete(admin, table, "PERFORM nextval('public.asked'); RETURN NULL")

    report = run(database, job(ACTIVITY, batch_size=2)).report

    assert (report.outcome, report.batches) == (Outcome.FAILED, 0)
    assert report.error is not None
    assert report.error.kind is FaultKind.CLAIM_MISMATCH
    assert one(admin, "SELECT last_value FROM public.asked") == 2
    assert left(admin) == set(sessions)


@pytest.mark.req("A-17", "F-09")
def test_a_batch_that_is_too_slow_is_halved_until_it_is_fast_enough_and_grows_again_later(
    database: Database, admin: Admin
) -> None:
    old_favorites(admin, 31)
    admin.execute("CREATE TABLE public.slow (seconds float)")
    admin.execute("INSERT INTO public.slow VALUES (0.4)")
    on_delete(admin, FAVORITES, "PERFORM pg_sleep(seconds) FROM public.slow")

    def fast_after_the_first(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            admin.execute("UPDATE public.slow SET seconds = 0")

    limited = job(GUESTS, batch_size=4, max_run_duration=timedelta(seconds=6))
    ran = run(database, limited, on=fast_after_the_first)

    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.roots_per_batch[:9] == [2] * 8 + [4]
    assert max(ran.roots_per_batch) == 4
    assert rows.ids(admin, FAVORITES) == set()


def test_a_table_full_of_rows_that_cannot_go_is_left_in_time(database: Database, admin: Admin) -> None:
    favorites = old_favorites(admin, 20)
    admin.execute("CREATE TABLE favorites.pins (favorite_id uuid REFERENCES favorites.favorites ON DELETE RESTRICT)")
    for favorite in favorites:
        admin.execute(sql.SQL("INSERT INTO favorites.pins VALUES ({})").format(favorite))

    ran = run(database, job(GUESTS, batch_size=5))

    assert_left_out(ran, favorites)
    assert ran.report.batches == 0
