"""The lock of a run is not lost without the run's noticing, and whoever holds it is named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.job import Job, Retries
from pgretention.report import BatchDone, Fact, Outcome, RetryAwaited
from pgretention.session import connect
from tests.databases import Database
from tests.support.gates import Gate, one, until, workers
from tests.support.locks import LOCK, assert_nothing_is_held
from tests.support.planted import left, old_sessions
from tests.support.rows import SESSIONS
from tests.support.runs import ACTIVITY, job, run, unwatched_run
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]

TAKE = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


def patient() -> Job:
    return replace(job(ACTIVITY, batch_size=2), retries=Retries(10, timedelta(seconds=0.01)))


@pytest.mark.req("A-09")
def test_when_a_trigger_gives_every_lock_back_and_another_run_begins_this_one_deletes_no_more(
    database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 6)
    on_delete(admin, SESSIONS, "PERFORM pg_advisory_unlock_all()")

    def take_the_lock(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            assert one(admin, TAKE, LOCK) is True

    report = run(database, job(ACTIVITY, batch_size=2), on=take_the_lock).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.STOPPED, 1, True)
    assert str(admin.info.backend_pid) in (report.holders or "")
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-09")
def test_while_a_batch_is_on_its_lock_is_held_even_when_a_trigger_has_given_every_lock_back(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    old_sessions(admin, 4)
    on_delete(admin, SESSIONS, "PERFORM pg_advisory_unlock_all()")
    gate.before_commit(SESSIONS, old_sessions(admin, 1)[0])
    running = threads.submit(unwatched_run, database.worker_dsn, job(ACTIVITY))
    gate.wait_for()

    assert unwatched_run(database.worker_dsn, job(ACTIVITY)).report.outcome is Outcome.SKIPPED
    gate.open()

    assert running.result().report.outcome is Outcome.COMPLETED
    assert_nothing_is_held(admin)


@pytest.mark.req("A-09", "A-21")
def test_a_skipped_run_says_whose_lock_it_met(database: Database, admin: Admin) -> None:
    assert one(admin, TAKE, LOCK) is True
    admin.execute("SET application_name = 'somebody at psql'")

    report = unwatched_run(database.worker_dsn, job(ACTIVITY)).report

    role = one(admin, "SELECT current_user")
    assert report.outcome is Outcome.SKIPPED
    assert report.holders == f"process {admin.info.backend_pid} (somebody at psql, role {role})"


@pytest.mark.req("A-09", "A-16")
def test_a_run_is_not_skipped_because_of_the_lock_of_its_own_lost_connection(
    database: Database, admin: Admin, threads: ThreadPoolExecutor
) -> None:
    old_sessions(admin, 4)

    said: list[Fact] = []

    def let_go(fact: Fact) -> None:
        if isinstance(fact, RetryAwaited) and "held elsewhere" in fact.error.message and not said:
            said.append(fact)
            assert one(holder, "SELECT pg_advisory_unlock(hashtextextended(%s, 0))", LOCK) is True

    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = ANY (%s)"
    with database.connect() as holder:
        with database.connect() as catalog, catalog.transaction():
            catalog.execute("LOCK TABLE pg_catalog.pg_trigger")  # which a run reads when it has its lock
            running = threads.submit(unwatched_run, database.worker_dsn, patient(), on=let_go)
            until(lambda: one(admin, held, workers(admin)) == 1)
            admin.execute("SELECT pg_terminate_backend(%s)", workers(admin))
            holder.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [LOCK])
        report = running.result().report

    assert report.outcome is Outcome.COMPLETED
    assert said
    assert left(admin) == set()


def test_a_server_looks_within_a_minute_whether_the_machine_of_a_session_is_still_there(database: Database) -> None:
    with connect(database.worker_dsn, "pgretention/test") as session:
        kept = {
            name: one(session.connection, f"SHOW {name}")
            for name in ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        }
    assert kept == {
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "10",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "60000",
    }
