"""Every way a run can end: what is committed stays and is reported, what is not leaves no trace."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import LiteralString

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention import backlog
from pgretention.clock import SystemClock
from pgretention.errors import FaultKind
from pgretention.policy import Table
from pgretention.report import BatchDone, Fact, Limit, Outcome, RunFinished, RunStarted
from pgretention.stop import Stop
from tests.databases import Database
from tests.support import rows
from tests.support.gates import Gate, one, workers
from tests.support.planted import left, old_sessions
from tests.support.rows import EVENTS, FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, job, run, unwatched_run
from tests.support.triggers import drop, on_delete

Admin = Connection[TupleRow]


def after_start(action: Callable[[], object]) -> Callable[[Fact], None]:
    def on(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            action()

    return on


def after_batch(index: int, action: Callable[[], object]) -> Callable[[Fact], None]:
    def on(fact: Fact) -> None:
        if isinstance(fact, BatchDone) and fact.index == index:
            action()

    return on


RECORD_TIMEOUT: LiteralString = """
    PERFORM setval('public.timeout', (1000 * extract(epoch FROM current_setting('statement_timeout')::interval))::int)
"""


class SteppedClock(SystemClock):
    """A clock on which no time passes but what the test lets pass."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def step(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.mark.req("A-11", "A-20")
def test_the_limit_on_batches_ends_a_run_and_the_backlog_says_what_is_left(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 7)

    report = run(database, job(ACTIVITY, batch_size=2, max_batches=2)).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.LIMIT_REACHED, 2, True)
    assert (report.error, report.limit) == (None, Limit.BATCHES)
    assert report.backlog_before is not None
    assert report.backlog_after is not None
    assert (report.backlog_before.rows, report.backlog_after.rows) == (7, 3)
    assert report.backlog_before.oldest_age is not None
    assert report.backlog_after.oldest_age == report.backlog_before.oldest_age - timedelta(days=4)
    assert left(admin) == set(sessions[4:])


@pytest.mark.req("A-11", "A-15")
def test_a_run_whose_last_allowed_batch_drains_the_table_is_completed(database: Database, admin: Admin) -> None:
    old_sessions(admin, 4)

    report = run(database, job(ACTIVITY, batch_size=2, max_batches=2)).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.COMPLETED, 2, False)
    assert (report.limit, left(admin)) == (None, set())


@pytest.mark.req("A-11", "A-15")
def test_one_row_more_than_the_limit_allows_is_has_more(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 5)

    report = run(database, job(ACTIVITY, batch_size=2, max_batches=2)).report

    assert (report.outcome, report.has_more) == (Outcome.LIMIT_REACHED, True)
    assert left(admin) == {sessions[-1]}


@pytest.mark.req("A-11", "F-09")
def test_no_batch_starts_that_would_not_end_in_time_if_it_took_as_long_as_the_last_one(
    database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 5)
    clock = SteppedClock()

    def one_batch_takes_40_seconds(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            clock.step(40)

    limited = job(ACTIVITY, batch_size=1, max_run_duration=timedelta(seconds=100))
    report = run(database, limited, clock=clock, on=one_batch_takes_40_seconds).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.LIMIT_REACHED, 3, True)
    assert (report.error, report.limit) == (None, Limit.DURATION)
    assert report.duration == timedelta(seconds=120)
    assert left(admin) == set(sessions[3:])


@pytest.mark.req("A-11")
def test_a_run_whose_time_is_over_before_the_first_batch_deletes_nothing(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 2)
    clock = SteppedClock()

    limited = job(ACTIVITY, max_run_duration=timedelta(seconds=60))
    report = run(database, limited, clock=clock, on=after_start(lambda: clock.step(60))).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.LIMIT_REACHED, 0, True)
    assert left(admin) == set(sessions)


@pytest.mark.req("A-11", "F-09")
def test_a_batch_is_cut_off_when_the_time_of_the_run_is_over(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 5)
    admin.execute("CREATE SEQUENCE public.timeout")  # what is set in a sequence outlives a rollback
    on_delete(
        admin,
        SESSIONS,
        f"{RECORD_TIMEOUT}; PERFORM pg_sleep(60)",
        key=sessions[3],
    )

    report = run(database, job(ACTIVITY, batch_size=2, max_run_duration=timedelta(seconds=1))).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.LIMIT_REACHED, 1, True)
    assert report.error is None
    assert left(admin) == set(sessions[2:])
    allowed = one(admin, "SELECT last_value FROM public.timeout")
    assert isinstance(allowed, int)
    assert 0 < allowed <= 1000


@pytest.mark.req("A-11", "F-09")
def test_a_claim_is_cut_off_when_the_time_of_the_run_is_over(
    database: Database, admin: Admin, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "MEASURING", timedelta(milliseconds=300))  # it stands before the gate as well
    favorites = [rows.favorite(admin, "2019-12-31"), rows.favorite(admin)]
    gate.before_locking(FAVORITES, favorites[0])
    limited = job(GUESTS, max_run_duration=timedelta(seconds=1))

    def on(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            gate.close()
        elif isinstance(fact, RunFinished):
            gate.open()

    report = run(database, limited, on=on).report  # it ends although the gate stays closed until then

    assert (report.outcome, report.batches, report.error) == (Outcome.LIMIT_REACHED, 0, None)
    assert rows.ids(admin, FAVORITES) == set(favorites)


@pytest.mark.req("A-11", "F-09")
def test_what_the_claim_has_taken_is_no_longer_there_for_the_delete(database: Database, admin: Admin) -> None:
    rows.favorite(admin)
    admin.execute("CREATE SEQUENCE public.timeout")
    on_delete(admin, FAVORITES, RECORD_TIMEOUT)
    slowly: LiteralString = """
        CREATE FUNCTION public.slowly() RETURNS boolean LANGUAGE sql AS $$ SELECT pg_sleep(0.2) IS NOT NULL $$;
        CREATE POLICY slowly ON favorites.favorites USING (public.slowly());
        ALTER TABLE favorites.favorites ENABLE ROW LEVEL SECURITY;
    """

    limited = job(GUESTS, max_run_duration=timedelta(seconds=5))
    report = run(database, limited, on=after_start(lambda: admin.execute(slowly))).report

    assert report.outcome is Outcome.COMPLETED
    allowed = one(admin, "SELECT last_value FROM public.timeout")
    assert isinstance(allowed, int)
    assert 0 < allowed <= 4800


@pytest.mark.req("A-11", "F-09")
def test_a_batch_that_would_be_cut_off_if_it_took_as_long_as_the_last_one_is_not_begun(
    database: Database, admin: Admin
) -> None:
    for day in range(1, 9):
        rows.favorite(admin, f"2020-01-0{day}")
    admin.execute("CREATE SEQUENCE public.begun")  # what a sequence counts outlives a rollback
    on_delete(admin, FAVORITES, "PERFORM nextval('public.begun'), pg_sleep(0.5)")

    report = run(database, job(GUESTS, batch_size=1, max_run_duration=timedelta(seconds=1.5))).report

    assert (report.outcome, report.has_more, report.error) == (Outcome.LIMIT_REACHED, True, None)
    assert report.batches > 0
    assert one(admin, "SELECT last_value FROM public.begun") == report.batches


@pytest.mark.req("A-11", "F-09")
def test_a_stop_before_the_first_batch_deletes_nothing(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 2)
    stop = Stop()
    stop.request()

    report = run(database, job(ACTIVITY), stop=stop).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.STOPPED, 0, True)
    assert left(admin) == set(sessions)


@pytest.mark.req("A-11", "A-15")
def test_a_stop_that_comes_when_nothing_is_left_is_a_completed_run(database: Database, admin: Admin) -> None:
    old_sessions(admin, 2)
    stop = Stop()

    report = run(database, job(ACTIVITY, batch_size=2), stop=stop, on=after_batch(1, stop.request)).report

    assert (report.outcome, report.has_more) == (Outcome.COMPLETED, False)


@pytest.mark.req("A-11", "A-12")
def test_a_forced_stop_cancels_the_batch_in_flight_and_keeps_the_ones_before(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 6)
    gate.before_deleting(SESSIONS, sessions[3])
    stop = Stop()
    running = threads.submit(run, database, job(ACTIVITY, batch_size=2), stop=stop)
    gate.wait_for()
    stop.force()

    report = running.result().report  # although the gate is still closed

    assert (report.outcome, report.batches, report.has_more) == (Outcome.STOPPED, 1, True)
    assert report.error is None
    assert report.backlog_after is None
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-11", "A-12")
def test_a_forced_stop_cancels_a_claim_in_flight(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 2)
    gate.before_locking(SESSIONS, sessions[0])
    stop = Stop()
    running = threads.submit(run, database, job(ACTIVITY), stop=stop, on=after_start(gate.close))
    gate.wait_for()
    stop.force()

    report = running.result().report

    assert (report.outcome, report.batches) == (Outcome.STOPPED, 0)
    gate.open()
    assert left(admin) == set(sessions)


@pytest.mark.req("A-12")
@pytest.mark.parametrize("table", [SESSIONS, EVENTS], ids=str)
def test_a_trigger_that_swallows_a_deletion_fails_the_batch_and_nothing_of_it_is_deleted(
    database: Database, admin: Admin, table: Table
) -> None:
    sessions = old_sessions(admin, 6)
    (key,) = {row[0] for row in admin.execute(_KEY_OF[table], [sessions[3]])}
    on_delete(admin, table, "RETURN NULL", key=key)

    ran = run(database, job(ACTIVITY, batch_size=2))

    error = ran.report.error
    assert ran.report.outcome is Outcome.FAILED
    assert error is not None
    assert error.kind is FaultKind.CLAIM_MISMATCH
    assert set(error.keys) == {str(key) for key in sessions[2:4]}
    assert left(admin) == set(sessions[2:])


_KEY_OF: dict[Table, LiteralString] = {
    SESSIONS: "SELECT id FROM user_activity.sessions WHERE id = %s",
    EVENTS: "SELECT id FROM user_activity.action_events WHERE session_id = %s",
}


@pytest.mark.req("A-12", "F-11")
def test_row_level_security_that_begins_to_hide_rows_during_a_run_fails_the_batch(
    database: Database, admin: Admin
) -> None:
    favorites = [rows.favorite(admin), rows.favorite(admin)]
    hide: LiteralString = """
        ALTER TABLE favorites.favorites ENABLE ROW LEVEL SECURITY;
        CREATE POLICY look ON favorites.favorites FOR SELECT USING (true);
        CREATE POLICY lock ON favorites.favorites FOR UPDATE USING (true);
        CREATE POLICY nothing ON favorites.favorites FOR DELETE USING (false);
    """

    report = run(database, job(GUESTS), on=after_start(lambda: admin.execute(hide))).report

    assert report.outcome is Outcome.FAILED
    assert report.error is not None
    assert report.error.kind is FaultKind.CLAIM_MISMATCH
    assert rows.ids(admin, FAVORITES) == set(favorites)


@pytest.mark.req("A-12", "F-11", "F-12")
def test_a_failure_in_a_later_batch_keeps_what_was_committed_and_the_next_run_takes_the_rest(
    database: Database, admin: Admin
) -> None:
    favorites = [rows.favorite(admin, f"2020-01-{day:02}") for day in range(1, 8)]
    poison = on_delete(admin, FAVORITES, "RAISE 'no'", key=favorites[5])

    report = run(database, job(GUESTS, batch_size=2)).report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.FAILED, 2, False)
    assert report.deleted == {str(FAVORITES): 4}
    assert report.error is not None
    assert (report.error.kind, report.error.sqlstate, report.error.batch) == (FaultKind.DATABASE, "P0001", 3)
    assert rows.ids(admin, FAVORITES) == set(favorites[4:])

    drop(admin, FAVORITES, poison)
    assert run(database, job(GUESTS, batch_size=2)).report.deleted == {str(FAVORITES): 3}


@pytest.mark.req("A-12", "F-11")
def test_a_backend_that_is_terminated_in_a_batch_loses_that_batch_alone(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 6)
    gate.before_deleting(SESSIONS, sessions[3])
    running = threads.submit(run, database, job(ACTIVITY, batch_size=2))
    gate.wait_for()
    (worker,) = workers(admin)
    admin.execute("SELECT pg_terminate_backend(%s)", [worker])

    report = running.result().report

    assert (report.outcome, report.batches, report.has_more) == (Outcome.FAILED, 1, False)
    assert report.deleted == dict.fromkeys(map(str, ACTIVITY.tables), 2)
    assert report.error is not None
    assert report.error.kind is FaultKind.CONNECTION
    assert set(report.error.keys) == {str(key) for key in sessions[2:4]}
    assert report.backlog_after is None
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-12", "F-11")
def test_a_backend_that_is_terminated_while_it_checks_deferred_constraints_has_rolled_the_batch_back(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 6)
    gate.before_commit(SESSIONS, sessions[3])
    running = threads.submit(run, database, job(ACTIVITY, batch_size=2))
    gate.wait_for()
    (worker,) = workers(admin)
    admin.execute("SELECT pg_terminate_backend(%s)", [worker])

    report = running.result().report

    assert (report.outcome, report.batches) == (Outcome.FAILED, 1)
    assert report.error is not None
    assert report.error.kind is FaultKind.CONNECTION
    assert set(report.error.keys) == {str(key) for key in sessions[2:4]}
    assert left(admin) == set(sessions[2:])


@pytest.mark.req("A-12")
def test_a_statement_cancelled_by_somebody_else_is_tried_again_with_half_as_many_rows(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 4)
    gate.before_deleting(SESSIONS, sessions[1])
    running = threads.submit(run, database, job(ACTIVITY))
    gate.wait_for()
    (worker,) = workers(admin)
    admin.execute("SELECT pg_cancel_backend(%s)", [worker])
    gate.open()

    ran = running.result()

    assert (ran.report.outcome, ran.report.error) == (Outcome.COMPLETED, None)
    assert ran.roots_per_batch == [2, 2]
    assert left(admin) == set()


@pytest.mark.req("A-12", "F-09")
def test_a_table_locked_by_somebody_else_is_not_awaited_for_long(database: Database, admin: Admin) -> None:
    favorites = [rows.favorite(admin), rows.favorite(admin)]
    lock: LiteralString = "BEGIN; LOCK TABLE favorites.favorites IN SHARE MODE"

    report = run(database, job(GUESTS), on=after_start(lambda: admin.execute(lock))).report
    admin.execute("COMMIT")

    assert report.outcome is Outcome.FAILED
    assert report.error is not None
    assert (report.error.kind, report.error.sqlstate) == (FaultKind.LOCK_TIMEOUT, "55P03")
    assert rows.ids(admin, FAVORITES) == set(favorites)


@pytest.mark.req("A-12", "A-18")
def test_a_kept_row_that_refers_to_a_claimed_one_and_is_locked_fails_the_batch_soon(
    database: Database, admin: Admin
) -> None:
    """The application is never kept waiting for us in a deadlock: our lock timeout is the shorter one."""
    session = rows.session(admin)
    event = rows.event(admin, session)
    kept = rows.view(admin, rows.active_session(admin), apply_filter_event_id=event)
    application = database.connect()
    with application.transaction():
        application.execute("SELECT FROM user_activity.property_object_views WHERE id = %s FOR UPDATE", [kept])
        report = run(database, job(ACTIVITY)).report

    assert report.outcome is Outcome.FAILED
    assert report.error is not None
    assert report.error.kind is FaultKind.LOCK_TIMEOUT
    assert session in rows.ids(admin, SESSIONS)


@pytest.mark.req("A-07")
def test_a_database_that_cannot_be_reached_is_a_failure_that_shows_no_password(database: Database) -> None:
    dsn = database.worker_dsn.replace(database.name, "nowhere")

    report = unwatched_run(dsn, job(ACTIVITY)).report

    assert report.outcome is Outcome.FAILED
    assert report.error is not None
    assert report.error.kind is FaultKind.CONNECTION
    assert '"nowhere" does not exist' in report.error.message
    assert database.server.password not in str(report)


@pytest.mark.req("A-11")
def test_a_server_that_does_not_answer_is_not_awaited_for_longer_than_the_run_may_take() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"host=127.0.0.1 port={silent.getsockname()[1]} connect_timeout=0"

        report = unwatched_run(dsn, job(ACTIVITY, max_run_duration=timedelta(seconds=0.5))).report

    assert report.outcome is Outcome.FAILED
    assert report.error is not None
    assert report.error.kind is FaultKind.CONNECTION
    assert "time of the run" in report.error.message


@pytest.mark.req("A-12", "F-06")
def test_a_role_without_a_privilege_fails_and_is_told_what_to_do(database: Database, admin: Admin) -> None:
    favorite = rows.favorite(admin)
    admin.execute("REVOKE DELETE ON favorites.favorites FROM pgretention_worker")

    report = run(database, job(GUESTS)).report

    assert report.outcome is Outcome.FAILED
    assert report.error is not None
    assert (report.error.kind, report.error.sqlstate) == (FaultKind.PRIVILEGE, "42501")
    assert "pgretention schema" in report.error.message
    assert rows.ids(admin, FAVORITES) == {favorite}


@pytest.mark.req("A-09")
def test_the_lock_is_free_again_however_a_run_ends(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 3)
    poison = on_delete(admin, SESSIONS, "RAISE 'no'", key=sessions[1])
    stop = Stop()
    stop.request()
    endings = [
        run(database, job(ACTIVITY, batch_size=1)).report.outcome,
        run(database, job(ACTIVITY, batch_size=1, max_batches=1), stop=stop).report.outcome,
        run(database, job(replace(ACTIVITY, key="no_such_column"))).report.outcome,
    ]
    drop(admin, SESSIONS, poison)
    endings.append(run(database, job(ACTIVITY)).report.outcome)

    assert endings == [Outcome.FAILED, Outcome.STOPPED, Outcome.REFUSED, Outcome.COMPLETED]


@pytest.mark.req("F-09", "A-13")
def test_between_batches_a_worker_holds_no_transaction_and_no_lock_but_the_job_s(
    database: Database, admin: Admin
) -> None:
    old_sessions(admin, 4)
    seen = []

    def look(fact: Fact) -> None:
        if isinstance(fact, RunStarted | BatchDone):
            (worker,) = workers(admin)
            state = one(admin, "SELECT state FROM pg_stat_activity WHERE pid = %s", worker)
            locks = admin.execute("SELECT locktype FROM pg_locks WHERE pid = %s", [worker])
            seen.append((state, [row[0] for row in locks]))

    run(database, job(ACTIVITY, batch_size=2), on=look)

    assert seen == [("idle", ["advisory"])] * 3
