"""What passes is tried again, a bounded number of times; in a deadlock it is never the application that gives way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import LiteralString

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.errors import FaultKind
from pgretention.job import Job, Retries
from pgretention.report import BatchDone, Fact, Outcome, RetryAwaited, RowsKept, RunStarted
from pgretention.stop import Stop
from tests.databases import Database
from tests.support import rows
from tests.support.gates import Gate, blocked, one, until, workers
from tests.support.locks import LOCK
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import EVENTS, FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, Run, job, run, unwatched_run
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]

TOUCH: LiteralString = "UPDATE user_activity.action_events SET event_type = 'x' WHERE session_id = %s"
VISIT: LiteralString = "UPDATE user_activity.property_object_views SET ended_at = now() WHERE session_id = %s"


def patient(batch_size: int = 2, times: int = 3, first_wait: float = 0.01) -> Job:
    return replace(job(ACTIVITY, batch_size=batch_size), retries=Retries(times, timedelta(seconds=first_wait)))


def retries(ran: Run) -> list[tuple[int, FaultKind]]:
    return [(fact.attempt, fact.error.kind) for fact in ran.facts if isinstance(fact, RetryAwaited)]


PASSING: dict[LiteralString, FaultKind] = {
    "40001": FaultKind.SERIALIZATION,
    "40P01": FaultKind.DEADLOCK,
    "55P03": FaultKind.LOCK_TIMEOUT,
}


@pytest.mark.req("A-16")
@pytest.mark.parametrize(("sqlstate", "kind"), PASSING.items())
def test_a_fault_that_passes_is_tried_again_and_leaves_no_trace(
    database: Database, admin: Admin, sqlstate: LiteralString, kind: FaultKind
) -> None:
    old_sessions(admin, 5)
    known: list[object] = []

    def passes(fact: Fact) -> None:
        known.append(fact)
        if sum(isinstance(each, RetryAwaited) for each in known) == 2 and isinstance(fact, RetryAwaited):
            admin.execute("UPDATE public.over SET it_is = true")

    admin.execute("CREATE TABLE public.over AS SELECT false AS it_is")
    on_delete(
        admin,
        EVENTS,
        f"IF NOT (SELECT it_is FROM public.over) THEN RAISE 'not now' USING ERRCODE = '{sqlstate}'; END IF",
    )

    ran = run(database, patient(), on=passes)

    assert (ran.report.outcome, ran.report.error) == (Outcome.COMPLETED, None)
    assert retries(ran) == [(1, kind), (2, kind)]
    assert ran.report.batches == 3
    assert left(admin) == set()


@pytest.mark.req("A-16")
@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_fault_that_does_not_pass_ends_the_run_in_a_failure_after_three_retries(
    database: Database, admin: Admin, sqlstate: LiteralString
) -> None:
    sessions = old_sessions(admin, 5)
    on_delete(admin, SESSIONS, f"RAISE 'never' USING ERRCODE = '{sqlstate}'", key=sessions[3])

    ran = run(database, patient())

    assert ran.report.outcome is Outcome.FAILED
    assert ran.report.error is not None
    assert ran.report.error.sqlstate == sqlstate
    assert [attempt for attempt, _ in retries(ran)] == [1, 2, 3]
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-16")
def test_retries_are_counted_anew_after_a_batch_that_succeeds(database: Database, admin: Admin) -> None:
    old_sessions(admin, 6)
    admin.execute("CREATE SEQUENCE public.asked")  # what a sequence counts outlives a rollback
    on_delete(
        admin, SESSIONS, "IF nextval('public.asked') % 3 <> 0 THEN RAISE 'not now' USING ERRCODE = '40001'; END IF"
    )

    ran = run(database, patient(batch_size=1))

    assert ran.report.outcome is Outcome.COMPLETED
    assert [attempt for attempt, _ in retries(ran)] == [1, 2] * 6


@pytest.mark.req("F-11")
@pytest.mark.parametrize("sqlstate", PASSING)
def test_the_favorites_job_tries_nothing_again(database: Database, admin: Admin, sqlstate: LiteralString) -> None:
    favorites = old_favorites(admin, 3)
    on_delete(admin, FAVORITES, f"RAISE 'not now' USING ERRCODE = '{sqlstate}'", key=favorites[1])

    ran = run(database, job(GUESTS, batch_size=1))

    assert (ran.report.outcome, retries(ran)) == (Outcome.FAILED, [])
    assert rows.ids(admin, FAVORITES) == set(favorites[1:])


@pytest.mark.req("A-16")
def test_a_stop_wakes_a_run_that_waits_to_try_again(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 3)
    on_delete(admin, SESSIONS, "RAISE 'never' USING ERRCODE = '40001'")
    stop = Stop()

    def stop_it(fact: Fact) -> None:
        if isinstance(fact, RetryAwaited):
            stop.request()

    ran = run(database, patient(first_wait=100), on=stop_it, stop=stop)  # it ends although the wait is a minute

    assert (ran.report.outcome, ran.report.has_more, ran.report.error) == (Outcome.STOPPED, True, None)
    assert left(admin) == set(sessions)


@pytest.mark.req("A-16", "A-09", "H-04")
def test_a_run_whose_connection_is_lost_goes_on_in_a_new_one_with_its_cutoff_and_its_lock(
    database: Database, admin: Admin
) -> None:
    old_sessions(admin, 6)
    seen: list[int] = []

    def terminate_after_the_first(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            (worker,) = workers(admin)
            seen.append(worker)
            holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = %s"
            assert one(admin, holder, worker) == worker
            if fact.index == 1:
                admin.execute("SELECT pg_terminate_backend(%s)", [worker])
                until(lambda: worker not in workers(admin))

    ran = run(database, patient(), on=terminate_after_the_first)

    assert (ran.report.outcome, ran.report.batches) == (Outcome.COMPLETED, 3)
    assert retries(ran) == [(1, FaultKind.CONNECTION)]
    assert len(set(seen)) == 2
    assert [type(fact) for fact in ran.facts].count(RunStarted) == 1
    assert left(admin) == set()


@pytest.mark.req("A-09", "A-16", "H-04")
def test_a_run_that_lost_its_connection_and_with_it_its_lock_to_another_deletes_no_more(
    database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 6)

    def lose_both(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            admin.execute("SELECT pg_terminate_backend(%s)", workers(admin))
            until(lambda: workers(admin) == [])
            admin.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [LOCK])

    ran = run(database, patient(), on=lose_both)

    assert (ran.report.outcome, ran.report.batches) == (Outcome.FAILED, 1)
    assert ran.report.error is not None
    assert ran.report.error.kind is FaultKind.CONNECTION
    assert "lock" in ran.report.error.message
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-16", "A-17", "A-19")
def test_rows_that_stay_locked_are_left_out_when_the_retries_are_used_up_and_the_rest_goes(
    database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 6)
    with database.connect() as application:
        application.execute("BEGIN")
        application.execute(TOUCH, [sessions[3]])

        ran = run(database, patient(batch_size=4, times=1))

        assert ran.report.outcome is Outcome.PARTIAL
        assert ran.report.error is not None
        assert (ran.report.error.kind, ran.report.error.keys) == (FaultKind.LOCK_TIMEOUT, (str(sessions[3]),))
        assert [fact.rows for fact in ran.facts if isinstance(fact, RowsKept)] == [1]
        application.execute("COMMIT")
    assert left(admin) == {sessions[3]}


@pytest.mark.req("A-19")
def test_in_a_deadlock_with_the_application_it_is_the_run_that_gives_way(
    database: Database, admin: Admin, threads: ThreadPoolExecutor
) -> None:
    """The application holds a child; the run holds the parent and waits for the child; the application wants both."""
    (session,) = old_sessions(admin, 1)
    application = database.connect()
    application.execute("BEGIN")
    application.execute(TOUCH, [session])
    running = threads.submit(unwatched_run, database.worker_dsn, patient())
    until(lambda: any(blocked(admin, worker) for worker in workers(admin)))

    rows.event(application, session)  # raises if it is the victim
    application.execute("COMMIT")

    assert running.result().report.outcome in {Outcome.COMPLETED, Outcome.PARTIAL}
    assert one(admin, "SELECT count(*) FROM user_activity.action_events WHERE session_id = %s", session) in {0, 2}


@pytest.mark.req("A-19")
@pytest.mark.parametrize("deadlock_timeout", ["20ms", "300ms", "1s", "1min"])
def test_a_run_waits_for_a_lock_at_most_half_as_long_as_the_server_waits_before_it_looks_for_deadlocks(
    database: Database, admin: Admin, deadlock_timeout: str
) -> None:
    old_favorites(admin, 1)
    admin.execute(f"ALTER DATABASE {database.name} SET deadlock_timeout = '{deadlock_timeout}'".encode())
    admin.execute("CREATE TABLE public.seen (lock_timeout interval, deadlock_timeout interval)")
    on_delete(
        admin,
        FAVORITES,
        "INSERT INTO public.seen"
        " VALUES (current_setting('lock_timeout')::interval, current_setting('deadlock_timeout')::interval)",
    )

    run(database, job(GUESTS))

    assert one(admin, "SELECT lock_timeout <= deadlock_timeout / 2 AND lock_timeout > '0' FROM public.seen") is True
    assert one(admin, "SELECT deadlock_timeout = %s::interval FROM public.seen", deadlock_timeout) is True


@pytest.mark.req("A-19")
def test_a_run_that_holds_rows_gives_way_to_an_application_that_already_waits_for_them(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    """The application looks for deadlocks a second after it began to wait, long before the run began to."""
    (session,) = old_sessions(admin, 1)
    gate.before_deleting(EVENTS)
    application = database.connect()
    application.execute("BEGIN")
    running = threads.submit(unwatched_run, database.worker_dsn, patient())
    gate.wait_for()
    application.execute(VISIT, [session])
    pid = application.info.backend_pid
    with ThreadPoolExecutor(1) as others:
        adding = others.submit(rows.event, application, session)
        until(lambda: blocked(admin, pid))
        gate.open()

        adding.result()  # raises if it is the victim
    application.execute("COMMIT")

    assert running.result().report.outcome in {Outcome.COMPLETED, Outcome.PARTIAL}


@pytest.mark.req("H-04")
def test_the_server_looks_every_two_seconds_whether_the_client_of_a_batch_is_still_there(
    database: Database, admin: Admin
) -> None:
    old_favorites(admin, 1)
    admin.execute("CREATE TABLE public.seen (every interval)")
    on_delete(
        admin,
        FAVORITES,
        "INSERT INTO public.seen VALUES (current_setting('client_connection_check_interval')::interval)",
    )

    run(database, job(GUESTS))

    assert one(admin, "SELECT every = '2s' FROM public.seen") is True


@pytest.mark.req("H-02")
def test_a_forced_stop_that_the_server_does_not_hear_is_followed_by_hanging_up(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 2)
    gate.before_deleting(SESSIONS, sessions[0])
    stop = Stop()
    running = threads.submit(unwatched_run, database.worker_dsn, patient(), stop=stop)
    gate.wait_for()

    stop.request()
    stop.hang_up()
    until(running.done)  # the gate is still closed

    assert running.result().report.outcome is Outcome.FAILED
    gate.open()
    until(lambda: workers(admin) == [])
    assert left(admin) == set(sessions)


def test_the_wait_before_a_retry_triples_and_is_never_longer_than_three_quarters_of_a_minute() -> None:
    retries = Retries(10, timedelta(seconds=1))

    assert [retries.wait(attempt, 0.5).total_seconds() for attempt in (1, 2, 3, 4)] == [1, 3, 9, 27]
    assert retries.wait(9, 1.0) == timedelta(seconds=45)
    assert retries.wait(1, 0.0) == timedelta(seconds=0.5)
