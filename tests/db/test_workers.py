"""One run on several connections: each row goes once, one report, and the lock holds whichever of them is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention import db
from pgretention.batch import Barred, RolledBack
from pgretention.clock import SystemClock
from pgretention.course import Course, Ending, Lane
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.exclusive import Entry, beside, entered
from pgretention.job import Job, Limits, Retries
from pgretention.lanes import Batches, side_by_side
from pgretention.policy import Policy
from pgretention.report import BatchDone, Fact, Outcome, RetryAwaited, RowsKept, RunError, WorkerLost
from pgretention.session import Session, connect
from pgretention.stop import Stop
from pgretention.window import Claim, Cursor
from tests.databases import WORKER, Database
from tests.support import rows
from tests.support.gates import Gate, one, until, workers
from tests.support.locks import LOCK, assert_nothing_is_held
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import EVENTS, FAVORITES, SESSIONS
from tests.support.runs import ACTIVITY, GUESTS, job, unwatched_run
from tests.support.transaction_pooler import transaction_pooler
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]
SECOND = timedelta(seconds=1)


def patient(workers: int = 2, batch_size: int = 2) -> Job:
    return replace(job(ACTIVITY, batch_size=batch_size, workers=workers), retries=Retries(3, timedelta(seconds=0.01)))


@pytest.mark.req("A-02", "A-15")
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_several_workers_delete_every_expired_session_once_with_its_children(
    database: Database, admin: Admin, count: int
) -> None:
    old_sessions(admin, 25)
    young = rows.session(admin, "2100-01-01")

    ran = unwatched_run(database.worker_dsn, job(ACTIVITY, batch_size=2, workers=count))

    assert (ran.report.outcome, ran.report.has_more) == (Outcome.COMPLETED, False)
    assert list(ran.report.deleted.values()) == [25, 25, 25]
    assert ran.report.batches == 13
    assert rows.ids(admin, SESSIONS) == {young}
    assert rows.ids(admin, EVENTS) == set()
    assert_nothing_is_held(admin)


@pytest.mark.req("A-02")
def test_workers_are_in_the_middle_of_batches_at_the_same_time_and_those_share_no_row(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    old_sessions(admin, 6)
    gate.before_deleting(SESSIONS)
    running = threads.submit(unwatched_run, database.worker_dsn, job(ACTIVITY, batch_size=2, workers=3))

    gate.wait_for(3)
    free = admin.execute("SELECT id FROM user_activity.sessions FOR UPDATE SKIP LOCKED").fetchall()
    assert free == []
    gate.open()

    assert running.result().roots_per_batch == [2, 2, 2]


@pytest.mark.req("F-05")
def test_workers_of_two_runs_of_a_job_without_a_lock_share_the_rows(
    database: Database, admin: Admin, threads: ThreadPoolExecutor
) -> None:
    old_favorites(admin, 28)
    runs = [threads.submit(unwatched_run, database.worker_dsn, job(GUESTS, batch_size=1, workers=3)) for _ in range(2)]

    reports = [running.result().report for running in runs]

    assert [report.outcome for report in reports] == [Outcome.COMPLETED] * 2
    assert sum(report.deleted[str(FAVORITES)] for report in reports) == 28
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("A-11")
def test_the_limit_on_batches_is_for_all_workers_together(database: Database, admin: Admin) -> None:
    old_sessions(admin, 12)

    ran = unwatched_run(database.worker_dsn, job(ACTIVITY, batch_size=2, max_batches=4, workers=3))

    assert (ran.report.outcome, ran.report.has_more, ran.report.batches) == (Outcome.LIMIT_REACHED, True, 4)
    assert len(left(admin)) == 4


@pytest.mark.req("H-02")
def test_a_stop_lets_every_worker_finish_its_batch_and_begin_no_other(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    old_sessions(admin, 12)
    gate.before_deleting(SESSIONS)
    stop = Stop()
    running = threads.submit(unwatched_run, database.worker_dsn, job(ACTIVITY, batch_size=2, workers=3), stop=stop)
    gate.wait_for(3)
    stop.request()
    gate.open()

    report = running.result().report
    assert (report.outcome, report.batches) == (Outcome.STOPPED, 3)
    assert len(left(admin)) == 6


@pytest.mark.req("H-02")
def test_a_forced_stop_rolls_back_the_batches_of_all_workers(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 12)
    gate.before_deleting(SESSIONS)
    stop = Stop()
    running = threads.submit(unwatched_run, database.worker_dsn, job(ACTIVITY, batch_size=2, workers=3), stop=stop)
    gate.wait_for(3)
    stop.force()

    report = running.result().report
    assert (report.outcome, report.batches) == (Outcome.STOPPED, 0)
    assert left(admin) == set(sessions)
    assert_nothing_is_held(admin)


@pytest.mark.req("A-17")
def test_rows_that_cannot_go_are_left_out_by_whichever_worker_meets_them(database: Database, admin: Admin) -> None:
    sessions = old_sessions(admin, 28)
    admin.execute(
        "CREATE TABLE user_activity.notes (session_id uuid CONSTRAINT note REFERENCES user_activity.sessions)"
    )
    protected = {sessions[number] for number in (0, 3, 4, 17, 27)}
    for session in protected:
        admin.execute("INSERT INTO user_activity.notes VALUES (%s)", [session])

    ran = unwatched_run(database.worker_dsn, job(ACTIVITY, batch_size=4, workers=3))

    assert ran.report.outcome is Outcome.PARTIAL
    assert left(admin) == protected
    kept = [fact.error.keys for fact in ran.facts if isinstance(fact, RowsKept)]
    assert sorted(kept) == sorted((str(session),) for session in protected)


@pytest.mark.req("A-12")
def test_a_failure_of_one_worker_ends_the_run_and_what_the_others_committed_is_reported(
    database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 28)
    on_delete(admin, SESSIONS, "RAISE 'no'", key=sessions[5])

    ran = unwatched_run(database.worker_dsn, job(ACTIVITY, batch_size=1, workers=3))

    assert ran.report.outcome is Outcome.FAILED
    assert ran.report.error is not None
    assert ran.report.error.keys == (str(sessions[5]),)
    remaining = left(admin)
    assert sessions[5] in remaining
    assert ran.report.deleted[str(SESSIONS)] == 28 - len(remaining)
    assert len(remaining) > 28 - 5 - 2 * 3


def terminate(admin: Admin, pid: int) -> None:
    admin.execute("SELECT pg_terminate_backend(%s)", [pid])
    until(lambda: one(admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid) == 0)


@pytest.mark.req("A-16")
@pytest.mark.parametrize("policy", [ACTIVITY, GUESTS], ids=lambda policy: policy.name)
def test_what_a_worker_had_claimed_whose_connection_is_lost_is_deleted_by_the_others(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor, policy: Policy
) -> None:
    old_sessions(admin, 12)
    old_favorites(admin, 12)
    gate.before_deleting(policy.root)
    running = threads.submit(unwatched_run, database.worker_dsn, job(policy, batch_size=2, workers=2))
    gate.wait_for(2)
    terminate(admin, workers(admin)[1])
    gate.open()

    ran = running.result()
    assert (ran.report.outcome, ran.report.error) == (Outcome.COMPLETED, None)
    assert list(ran.report.deleted.values())[-1] == 12
    assert [fact.error.kind for fact in ran.facts if isinstance(fact, WorkerLost)] == [FaultKind.CONNECTION]
    assert rows.ids(admin, policy.root) == set()


@pytest.mark.req("A-09", "A-16")
def test_nobody_else_begins_while_a_worker_is_in_a_batch_whose_run_has_lost_the_lock(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    old_sessions(admin, 12)
    gate.before_deleting(SESSIONS)
    running = threads.submit(unwatched_run, database.worker_dsn, patient())
    gate.wait_for(2)
    terminate(admin, workers(admin)[0])
    gate.wait_for(1)

    others = [unwatched_run(database.worker_dsn, job(ACTIVITY, workers=count)).report for count in (1, 2)]
    gate.open()

    assert [(report.outcome, report.batches) for report in others] == [(Outcome.SKIPPED, 0)] * 2
    ran = running.result()
    assert (ran.report.outcome, ran.report.batches) == (Outcome.COMPLETED, 6)
    assert [fact.error.kind for fact in ran.facts if isinstance(fact, RetryAwaited)][:1] == [FaultKind.CONNECTION]
    assert left(admin) == set()
    assert_nothing_is_held(admin)


@pytest.mark.req("A-09")
def test_a_batch_beside_a_first_connection_that_is_lost_is_barred(database: Database, admin: Admin) -> None:
    dsn = database.worker_dsn
    with (
        connect(dsn, "pgretention/first") as first,
        connect(dsn, "pgretention/second") as second,
        entered(first, LOCK) as entry,
        beside(first, LOCK, "a run") as ask,
    ):
        assert entry is not None
        with db.transaction(second, SECOND) as connection:
            assert ask(connection)
        terminate(admin, first.connection.info.backend_pid)
        with db.transaction(second, SECOND) as connection:
            assert not ask(connection)
        with connect(dsn, "pgretention/next") as later, entered(later, LOCK) as next_entry:
            assert next_entry is not None
            with db.transaction(second, SECOND) as connection:
                assert not ask(connection)


@pytest.mark.req("A-09")
def test_a_run_waits_for_no_batch_of_another_but_is_skipped(database: Database, admin: Admin) -> None:
    dsn = database.worker_dsn
    with (
        connect(dsn, "pgretention/first") as first,
        connect(dsn, "pgretention/second") as second,
        connect(dsn, "pgretention/next") as later,
        entered(first, LOCK),
        beside(first, LOCK, "a run") as ask,
    ):
        with db.transaction(second, SECOND) as connection:
            assert ask(connection)
            terminate(admin, first.connection.info.backend_pid)
            with entered(later, LOCK) as entry:
                assert entry is None
            assert one(admin, "SELECT count(*) FROM pg_locks WHERE pid = %s", later.connection.info.backend_pid) == 0
        with entered(later, LOCK) as entry:
            assert entry is not None


@pytest.mark.req("A-09")
def test_behind_a_pooler_a_job_with_a_lock_deletes_on_one_connection(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    sessions = old_sessions(admin, 6)
    with transaction_pooler(database, 3) as pooler:
        gate.before_deleting(SESSIONS, sessions[0])
        running = threads.submit(unwatched_run, pooler.dsn, job(ACTIVITY, batch_size=2, workers=3))
        gate.wait_for()
        assert left(admin) == set(sessions)
        gate.open()
        assert running.result().report.batches == 3


@pytest.mark.parametrize("policy", [ACTIVITY, GUESTS], ids=lambda policy: policy.name)
def test_workers_for_whom_there_is_no_connection_are_told_and_the_others_do_the_work(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor, policy: Policy
) -> None:
    old_sessions(admin, 6)
    old_favorites(admin, 6)
    lost: list[WorkerLost] = []

    def note(fact: Fact) -> None:
        if isinstance(fact, WorkerLost):
            lost.append(fact)

    limit = sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}")
    admin.execute(limit.format(sql.Identifier(WORKER), sql.Literal(1)))
    gate.before_deleting(policy.root)
    try:
        running = threads.submit(unwatched_run, database.worker_dsn, job(policy, batch_size=1, workers=3), on=note)
        until(lambda: len(lost) == 2)
        gate.open()
        report = running.result().report
    finally:
        admin.execute(limit.format(sql.Identifier(WORKER), sql.Literal(-1)))

    assert (report.outcome, report.batches) == (Outcome.COMPLETED, 6)
    assert [fact.error.kind for fact in lost] == [FaultKind.CONNECTION] * 2
    assert "too many connections" in lost[0].error.message


@pytest.mark.req("A-12")
def test_facts_come_one_at_a_time_and_in_the_order_of_their_batches(database: Database, admin: Admin) -> None:
    old_favorites(admin, 28)
    inside: list[Fact] = []

    def alone(fact: Fact) -> None:
        assert inside == []
        inside.append(fact)
        one(admin, "SELECT pg_sleep(0.002) IS NULL")
        inside.pop()

    ran = unwatched_run(database.worker_dsn, job(GUESTS, batch_size=1, workers=4), on=alone)

    assert [fact.index for fact in ran.facts if isinstance(fact, BatchDone)] == list(range(1, 29))


def test_the_number_of_workers_has_bounds() -> None:
    for wrong in 0, 33:
        with pytest.raises(ValueError, match="workers must lie between 1 and 32"):
            Limits(1, SECOND, workers=wrong)


UNKNOWN = RunError(FaultKind.COMMIT_UNKNOWN, "the connection was lost while committing", keys=("a", "b"))
LOST = Fault(FaultKind.CONNECTION, "lost")


def course(workers: int) -> Course:
    clock = SystemClock()
    this = job(ACTIVITY, batch_size=2, workers=workers)
    return Course(this, "a-run", lambda _: None, Stop(), clock, deadline=clock.monotonic() + 60)


def ended(database: Database, run: Course, batches: Batches) -> Ending:
    with connect(database.worker_dsn, "pgretention/test") as session, entered(session, LOCK) as entry:
        assert entry is not None
        return side_by_side(run, database.worker_dsn, session, entry, batches)


@pytest.mark.req("A-12", "A-15")
@pytest.mark.parametrize(
    "raised", [Refusal(["changed"]), Barred(), RolledBack(LOST, None), LOST, ValueError()], ids=str
)
def test_a_commit_without_an_answer_is_told_whatever_the_first_connection_meets_then(
    database: Database, raised: Exception
) -> None:
    run = course(workers=3)

    def batches(lane: Lane, _session: Session, _entry: Entry) -> Ending:
        if lane is run.lanes[0]:
            until(run.gathering.is_set)
            raise raised
        return Ending(Outcome.FAILED, UNKNOWN)

    ending = ended(database, run, batches)

    assert ending == Ending(Outcome.FAILED, replace(UNKNOWN, keys=("a", "b", "a", "b")))


@pytest.mark.req("A-07")
def test_a_refusal_that_only_the_first_connection_meets_is_told(database: Database) -> None:
    run = course(workers=2)

    def batches(lane: Lane, _session: Session, _entry: Entry) -> Ending:
        if lane is run.lanes[0]:
            until(run.gathering.is_set)
            raise Refusal(["changed"])
        return Ending(Outcome.LIMIT_REACHED)

    assert ended(database, run, batches).outcome is Outcome.REFUSED


@pytest.mark.req("A-12", "A-15")
def test_what_one_connection_failed_at_is_not_taken_up_by_another(database: Database) -> None:
    run = course(workers=2)
    gathering: list[bool] = []

    def batches(lane: Lane, _session: Session, _entry: Entry) -> Ending:
        if lane is run.lanes[0]:
            while not run.frontier.behind:
                pass
            gathering.append(run.gathering.is_set())
            return Ending(Outcome.COMPLETED)
        with lane.window.claiming() as asking:
            asking.claimed(Claim(2, "{a,b}", Cursor("2020-01-01", "b")))
        return Ending(Outcome.FAILED, UNKNOWN)

    assert ended(database, run, batches).error == UNKNOWN
    assert gathering == [True]
