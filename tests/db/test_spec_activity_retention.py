"""Every row of the table of tests in the specification of activity-retention, by its name there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.errors import FaultKind
from pgretention.report import BatchDone, Fact, Outcome, RunStarted
from pgretention.stop import Stop
from tests.databases import Database
from tests.support import rows
from tests.support.gates import Gate
from tests.support.rows import EVENTS, SESSIONS, VIEWS
from tests.support.runs import ACTIVITY, job, run, unwatched_run
from tests.support.triggers import drop, on_delete

SECOND = timedelta(seconds=1)

Admin = Connection[TupleRow]


@pytest.mark.req("A-14", "A-15")
def test_empty_batch(database: Database, admin: Admin) -> None:
    """Nothing Inactive before the cutoff: a success that does nothing, zeros, no more to do."""
    kept = {rows.session(admin, ended_at="now"), rows.active_session(admin)}

    report = run(database, job(ACTIVITY)).report

    assert report.outcome is Outcome.COMPLETED
    assert set(report.deleted.values()) == {0}
    assert report.batches == 0
    assert report.has_more is False
    assert rows.ids(admin, SESSIONS) == kept


@pytest.mark.req("A-01", "A-02")
def test_fk_order(database: Database, admin: Admin) -> None:
    """A session with events and views goes without a RESTRICT error, children before their parent."""
    session = rows.session(admin)
    view = rows.view(admin, session)
    event = rows.event(admin, session, property_object_view_id=view)
    rows.view(admin, session, apply_filter_event_id=event)
    admin.execute("CREATE TABLE public.deletions (place serial, relation text)")
    for table in EVENTS, VIEWS, SESSIONS:
        on_delete(admin, table, "INSERT INTO public.deletions (relation) VALUES (TG_TABLE_NAME)")

    report = run(database, job(ACTIVITY)).report

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted == {str(EVENTS): 1, str(VIEWS): 2, str(SESSIONS): 1}
    assert [relation for (relation,) in admin.execute("SELECT relation FROM public.deletions ORDER BY place")] == [
        "action_events",
        "property_object_views",
        "property_object_views",
        "sessions",
    ]


@pytest.mark.req("A-04")
def test_threshold_boundary(database: Database, admin: Admin) -> None:
    """A second before the cutoff goes; a second after it stays, and so does whatever is Active."""
    kept, expired = {rows.active_session(admin, created_at=rows.OLD)}, set()

    def insert(fact: Fact) -> None:
        if isinstance(fact, RunStarted):
            expired.add(rows.session(admin, ended_at=fact.cutoff - SECOND))
            kept.add(rows.session(admin, ended_at=fact.cutoff + SECOND))

    report = run(database, job(ACTIVITY), on=insert).report

    assert report.deleted[str(SESSIONS)] == len(expired) == 1
    assert rows.ids(admin, SESSIONS) == kept


@pytest.mark.req("A-03")
def test_property_object_view_stats_kept(database: Database, admin: Admin) -> None:
    """The counters of the same property objects outlive their raw views."""
    session = rows.session(admin)
    view = rows.view(admin, session)
    admin.execute(
        "INSERT INTO user_activity.property_object_view_stats"
        " SELECT property_object_id, 17, '1 day' FROM user_activity.property_object_views WHERE id = %s",
        [view],
    )
    stats = "SELECT *, xmin, xmax, ctid FROM user_activity.property_object_view_stats"
    before = admin.execute(stats).fetchall()

    report = run(database, job(ACTIVITY)).report

    assert report.deleted[str(VIEWS)] == 1
    assert admin.execute(stats).fetchall() == before


@pytest.mark.req("A-12")
def test_partial_failure(database: Database, admin: Admin) -> None:
    """Batch N fails: 1 to N-1 stay committed, and the next run takes the rest."""
    sessions = [rows.session(admin, ended_at=f"2020-01-0{day}") for day in range(1, 7)]
    poison = on_delete(admin, SESSIONS, "RAISE 'no'", key=sessions[4])

    report = run(database, job(ACTIVITY, batch_size=2)).report

    assert report.outcome is Outcome.FAILED
    assert report.error is not None
    assert report.error.kind is FaultKind.DATABASE
    assert set(report.error.keys) == {str(key) for key in sessions[4:6]}
    assert report.batches == 2
    assert rows.ids(admin, SESSIONS) == set(sessions[4:])

    drop(admin, SESSIONS, poison)
    report = run(database, job(ACTIVITY, batch_size=2)).report

    assert report.outcome is Outcome.COMPLETED
    assert report.deleted[str(SESSIONS)] == 2
    assert rows.ids(admin, SESSIONS) == set()


@pytest.mark.req("A-09")
def test_duplicate_run(database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor) -> None:
    """Two runs at once: the second finds the lock taken and does nothing."""
    session = rows.session(admin)
    gate.before_deleting(SESSIONS, session)
    first = threads.submit(run, database, job(ACTIVITY))
    gate.wait_for()

    second = run(database, job(ACTIVITY)).report
    gate.open()

    assert second.outcome is Outcome.SKIPPED
    assert (second.batches, second.has_more, set(second.deleted.values())) == (0, False, {0})
    assert first.result().report.deleted[str(SESSIONS)] == 1


@pytest.mark.req("A-10")
def test_duplicate_run_without_the_lock(
    database: Database, admin: Admin, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    """SKIP LOCKED alone rules out a second deletion: each row goes exactly once."""
    sessions = [rows.session(admin) for _ in range(10)]
    unlocked = job(replace(ACTIVITY, lock=None), batch_size=3)
    gate.before_deleting(SESSIONS, min(sessions))
    first = threads.submit(unwatched_run, database.worker_dsn, unlocked)
    gate.wait_for()

    second = run(database, unlocked).report  # ends while the first still holds its rows: it waited for none of them

    assert second.outcome is Outcome.COMPLETED
    assert second.deleted[str(SESSIONS)] == 7
    gate.open()
    assert first.result().report.deleted[str(SESSIONS)] == 3
    assert rows.ids(admin, SESSIONS) == set()


@pytest.mark.req("A-11")
def test_cancellation(database: Database, admin: Admin) -> None:
    """A stop between batches ends the run in good order and keeps what was committed."""
    sessions = [rows.session(admin, ended_at=f"2020-01-0{day}") for day in range(1, 7)]
    stop = Stop()

    def after_two(fact: Fact) -> None:
        if isinstance(fact, BatchDone) and fact.index == 2:
            stop.request()

    report = run(database, job(ACTIVITY, batch_size=2), on=after_two, stop=stop).report

    assert report.outcome is Outcome.STOPPED
    assert report.has_more is True
    assert report.batches == 2
    assert rows.ids(admin, SESSIONS) == set(sessions[4:])
