"""What happens when somebody else wants the same rows at the same time, step by step and without a single sleep."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.policy import Table
from pgretention.report import BatchDone, Fact, Outcome, RunStarted
from tests.databases import Database
from tests.support import rows
from tests.support.explain import batch_transaction, statements_of
from tests.support.gates import Gate, blocked, one, until
from tests.support.rows import EVENTS, FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, job, run, unwatched_run

Admin = Connection[TupleRow]

TOUCH: LiteralString = "UPDATE favorites.favorites SET updated_at = now() WHERE id = %s"
SIGN_IN: LiteralString = "UPDATE favorites.favorites SET user_id = gen_random_uuid() WHERE id = %s"
STILL_EXPIRED: LiteralString = "UPDATE favorites.favorites SET updated_at = updated_at + interval '1 day' WHERE id = %s"

keeping = pytest.mark.parametrize("change", [TOUCH, SIGN_IN], ids=["touch", "sign in"])


@pytest.fixture
def guest(database: Database) -> Admin:
    """Somebody who uses the application while a run goes on."""
    return database.connect()


def started(action: Callable[[], object]) -> Callable[[Fact], None]:
    """Does something at the moment a run has announced its cutoff, before its first claim."""

    def on(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            action()

    return on


@pytest.mark.req("F-13")
@keeping
def test_a_favorite_touched_before_the_claim_is_kept(
    database: Database, admin: Admin, guest: Admin, change: LiteralString
) -> None:
    touched, _ = rows.favorite(admin), rows.favorite(admin)

    report = run(database, job(GUESTS), on=started(lambda: guest.execute(change, [touched]))).report

    assert report.deleted == {str(FAVORITES): 1}
    assert rows.ids(admin, FAVORITES) == {touched}


@pytest.mark.req("F-13", "F-05")
@keeping
def test_a_favorite_being_touched_during_the_claim_is_neither_awaited_nor_deleted(
    database: Database, admin: Admin, guest: Admin, change: LiteralString
) -> None:
    touched, _ = rows.favorite(admin), rows.favorite(admin)
    with guest.transaction():
        guest.execute(change, [touched])
        report = run(database, job(GUESTS)).report  # ends although the guest has not committed

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted == {str(FAVORITES): 1}
    assert report.backlog_after is not None
    assert report.backlog_after.rows == 1, "the other transaction was not visible yet"
    assert rows.ids(admin, FAVORITES) == {touched}


@pytest.mark.req("F-13")
@keeping
def test_a_favorite_touched_while_the_claim_looks_at_an_older_snapshot_is_kept(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor, change: LiteralString
) -> None:
    _, touched, _ = (rows.favorite(admin, updated_at=f"2020-01-0{day}") for day in (1, 2, 3))
    gate.before_locking(FAVORITES, touched)
    running = threads.submit(run, database, job(GUESTS), on=started(gate.close))
    gate.wait_for()
    guest.execute(change, [touched])
    gate.open()

    report = running.result().report

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted == {str(FAVORITES): 2}
    assert rows.ids(admin, FAVORITES) == {touched}


@pytest.mark.req("F-13", "F-05")
def test_a_favorite_that_changed_under_the_claim_and_is_still_expired_goes_exactly_once(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    favorites = [rows.favorite(admin, updated_at=f"2020-01-0{day}") for day in range(1, 6)]
    gate.before_locking(FAVORITES, favorites[1])
    running = threads.submit(run, database, job(GUESTS, batch_size=2), on=started(gate.close))
    gate.wait_for()
    # It becomes the youngest, and is still the last one of the first batch: the cursor leaps over the others.
    guest.execute("UPDATE favorites.favorites SET updated_at = '2020-02-01' WHERE id = %s", [favorites[1]])
    gate.open()

    ran = running.result()

    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.roots_per_batch == [2, 2, 1]
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("F-13")
def test_the_claim_answers_the_address_of_the_version_it_has_locked(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    favorite = rows.favorite(admin)
    gate.before_locking(FAVORITES, favorite)
    address = "SELECT ctid::text FROM favorites.favorites WHERE id = %s"
    before = one(admin, address, favorite)

    def claim() -> tuple[object, ...] | None:
        statements = statements_of(database, GUESTS)
        gate.close()
        with batch_transaction(database) as connection:
            return connection.execute(statements.claim_first(10), {"cutoff": "2021-01-01"}).fetchone()

    claimed = threads.submit(claim)
    gate.wait_for()
    guest.execute(STILL_EXPIRED, [favorite])
    gate.open()

    after = one(admin, address, favorite)
    assert after != before
    assert claimed.result() == (1, f'{{"{after}"}}', f"{{{favorite}}}", "2020-01-02 00:00:00+00", str(favorite))


@pytest.mark.req("F-13")
@keeping
def test_a_guest_who_comes_between_claim_and_delete_waits_and_finds_the_favorite_gone(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor, change: LiteralString
) -> None:
    favorite = rows.favorite(admin)
    gate.before_deleting(FAVORITES, favorite)
    running = threads.submit(run, database, job(GUESTS))
    gate.wait_for()
    touching = threads.submit(lambda: guest.execute(change, [favorite]).rowcount)
    until(lambda: blocked(admin, guest.info.backend_pid))
    gate.open()

    assert touching.result() == 0
    assert running.result().report.deleted == {str(FAVORITES): 1}


@pytest.mark.req("A-02", "A-18")
def test_a_child_inserted_for_a_claimed_session_waits_and_is_refused(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    session = rows.session(admin)
    rows.event(admin, session)
    gate.before_deleting(EVENTS)
    running = threads.submit(run, database, job(ACTIVITY))
    gate.wait_for()
    inserting: Future[UUID] = threads.submit(rows.event, guest, session)
    until(lambda: blocked(admin, guest.info.backend_pid))
    gate.open()

    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        inserting.result()
    assert running.result().report.deleted[str(EVENTS)] == 1
    assert rows.ids(admin, EVENTS) == set()


@pytest.mark.req("A-01", "A-18")
def test_a_session_whose_child_is_being_inserted_is_left_for_the_next_run(
    database: Database, admin: Admin, guest: Admin
) -> None:
    session = rows.session(admin)
    with guest.transaction():
        rows.event(guest, session)
        assert run(database, job(ACTIVITY)).report.deleted[str(SESSIONS)] == 0

    report = run(database, job(ACTIVITY)).report

    assert (report.deleted[str(EVENTS)], report.deleted[str(SESSIONS)]) == (1, 1)


@pytest.mark.req("A-01", "A-02")
def test_a_child_committed_after_the_claim_took_its_snapshot_goes_with_its_session(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    session = rows.session(admin)
    gate.before_locking(SESSIONS, session)
    running = threads.submit(unwatched_run, database.worker_dsn, job(ACTIVITY), on=started(gate.close))
    gate.wait_for()
    rows.event(guest, session)
    gate.open()

    report = running.result().report

    assert report.outcome is Outcome.COMPLETED
    assert (report.deleted[str(EVENTS)], report.deleted[str(SESSIONS)]) == (1, 1)
    assert rows.ids(admin, EVENTS) == set()


@pytest.mark.req("A-01", "A-18")
def test_a_foreign_key_that_is_added_during_a_batch_waits_for_its_end_and_takes_nothing_along(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    session = rows.session(admin)
    admin.execute("CREATE TABLE public.bills (session_id uuid)")
    admin.execute("INSERT INTO public.bills VALUES (%s)", [session])
    gate.before_locking(SESSIONS, session)
    running = threads.submit(unwatched_run, database.worker_dsn, job(ACTIVITY), on=started(gate.close))
    gate.wait_for()
    add: LiteralString = """
        ALTER TABLE public.bills ADD FOREIGN KEY (session_id) REFERENCES user_activity.sessions ON DELETE CASCADE
    """
    altering = threads.submit(guest.execute, add)
    until(lambda: blocked(admin, guest.info.backend_pid))
    gate.open()

    assert running.result().report.deleted[str(SESSIONS)] == 1
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        altering.result()
    assert rows.ids(admin, Table("public", "bills"), "session_id") == {session}


CLOSE: LiteralString = """
    UPDATE user_activity.sessions SET status = 'Inactive', ended_at = now() WHERE status = 'Active' RETURNING id
"""


@pytest.mark.req("A-19")
def test_the_writer_that_closes_sessions_and_a_run_do_not_wait_for_each_other(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    expired, active = rows.session(admin), rows.active_session(admin)
    gate.before_deleting(SESSIONS, expired)
    running = threads.submit(run, database, job(ACTIVITY))
    gate.wait_for()

    with guest.transaction():
        closed = guest.execute(CLOSE).fetchall()  # answers while the run is held up inside its batch
        gate.open()
        report = running.result().report  # and the run ends while the writer's transaction is open

    assert closed == [(active,)]
    assert report.outcome is Outcome.COMPLETED
    assert report.deleted[str(SESSIONS)] == 1
    assert rows.ids(admin, SESSIONS) == {active}


@pytest.mark.req("A-10", "F-05")
def test_rows_locked_by_somebody_else_are_found_once_more_from_the_start_when_they_are_free(
    database: Database, admin: Admin, guest: Admin
) -> None:
    favorites = [rows.favorite(admin, updated_at=f"2020-01-0{day}") for day in range(1, 8)]
    guest.execute("BEGIN")
    guest.execute("SELECT FROM favorites.favorites WHERE id = ANY (%s) FOR UPDATE", [favorites[:2]])

    def release(fact: Fact) -> None:
        if isinstance(fact, BatchDone) and fact.index == 2:
            assert rows.ids(admin, FAVORITES) == {*favorites[:2], favorites[6]}
            guest.execute("COMMIT")

    ran = run(database, job(GUESTS, batch_size=2), on=release)

    assert ran.report.outcome is Outcome.COMPLETED
    assert ran.roots_per_batch == [2, 2, 1, 2]
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("A-10", "F-05")
def test_rows_that_stay_locked_are_reported_as_backlog_and_taken_by_the_next_run(
    database: Database, admin: Admin, guest: Admin
) -> None:
    favorites = [rows.favorite(admin, updated_at=f"2020-01-{day:02}") for day in range(1, 31)]
    with guest.transaction():
        guest.execute("SELECT FROM favorites.favorites WHERE id = ANY (%s) FOR UPDATE", [favorites[:20]])
        report = run(database, job(GUESTS, batch_size=10)).report

    assert report.outcome is Outcome.COMPLETED
    assert report.has_more is False
    assert report.backlog_after is not None
    assert (report.backlog_after.rows, report.backlog_after.exact) == (20, True)
    assert rows.ids(admin, FAVORITES) == set(favorites[:20])
    assert run(database, job(GUESTS, batch_size=10)).report.deleted == {str(FAVORITES): 20}


@pytest.mark.req("A-10", "F-05")
def test_every_kind_of_row_lock_of_somebody_else_keeps_the_row(database: Database, admin: Admin, guest: Admin) -> None:
    kinds: tuple[LiteralString, ...] = ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE")
    locked = {kind: rows.favorite(admin) for kind in kinds}
    with guest.transaction():
        for kind, favorite in locked.items():
            guest.execute(f"SELECT FROM favorites.favorites WHERE id = %s FOR {kind}", [favorite])
        assert run(database, job(GUESTS)).report.deleted == {str(FAVORITES): 0}


@pytest.mark.req("A-10", "F-05")
def test_two_runs_without_a_lock_share_the_rows_and_neither_waits(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    unlocked = job(replace(ACTIVITY, lock=None), batch_size=4)
    for session in [rows.session(admin) for _ in range(50)]:
        rows.event(admin, session, property_object_view_id=rows.view(admin, session))
    gate.before_deleting(SESSIONS)
    running = [threads.submit(unwatched_run, database.worker_dsn, unlocked) for _ in range(3)]
    gate.wait_for(3)  # each of them holds rows, and has waited for nothing but the gate
    gate.open()

    reports = [each.result().report for each in running]

    assert {report.outcome for report in reports} == {Outcome.COMPLETED}
    assert min(report.batches for report in reports) >= 1
    for table in ACTIVITY.tables:
        assert sum(report.deleted[str(table)] for report in reports) == 50
        assert rows.ids(admin, table) == set()


@pytest.mark.req("A-06")
def test_a_row_that_expires_during_the_run_waits_for_the_next_one(database: Database, admin: Admin) -> None:
    kept = set()
    rows.favorite(admin)

    def insert(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            until(lambda: one(admin, "SELECT now() - %s > %s", GUESTS.retention, fact.cutoff) is True)
            kept.add(rows.favorite(admin, updated_at=fact.cutoff))

    report = run(database, job(GUESTS, batch_size=1), on=insert).report

    assert report.deleted == {str(FAVORITES): 1}
    assert rows.ids(admin, FAVORITES) == kept
    assert run(database, job(GUESTS)).report.deleted == {str(FAVORITES): 1}


@pytest.mark.req("F-13")
def test_a_favorite_that_is_removed_by_its_guest_under_the_claim_is_not_counted(
    database: Database, admin: Admin, guest: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    removed, _ = rows.favorite(admin), rows.favorite(admin)
    gate.before_locking(FAVORITES, removed)
    running = threads.submit(unwatched_run, database.worker_dsn, job(GUESTS), on=started(gate.close))
    gate.wait_for()
    guest.execute("DELETE FROM favorites.favorites WHERE id = %s", [removed])
    gate.open()

    assert running.result().report.deleted == {str(FAVORITES): 1}
    assert rows.ids(admin, FAVORITES) == set()
