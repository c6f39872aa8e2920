"""Runs as processes of their own: several at once, asked to stop, killed, or with the server going down under them."""

from __future__ import annotations

import signal
from uuid import UUID

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.report import Outcome
from tests.databases import Database
from tests.support import rows
from tests.support.gates import Gate, one, until, workers
from tests.support.process import ask_to_stop, report_of, started
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS
from tests.support.runs import ACTIVITY, GUESTS, job, run
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]


def old_sessions(admin: Admin, count: int) -> list[UUID]:
    sessions = [rows.session(admin, f"2020-01-{day:02}") for day in range(1, count + 1)]
    for session in sessions:
        rows.event(admin, session, property_object_view_id=rows.view(admin, session))
    return sessions


def whole_sessions(admin: Admin) -> set[object]:
    """The sessions that are left, each with its event and view."""
    sessions = rows.ids(admin, SESSIONS)
    assert rows.ids(admin, EVENTS, "session_id") == rows.ids(admin, VIEWS, "session_id") == sessions
    return sessions


@pytest.mark.req("F-05")
def test_two_processes_clean_favorites_at_once_and_their_counts_add_up(
    database: Database, admin: Admin, gate: Gate
) -> None:
    for _ in range(200):
        rows.favorite(admin)
    admin.execute("CREATE TABLE public.deletions (id uuid)")
    on_delete(admin, FAVORITES, "INSERT INTO public.deletions VALUES (OLD.id)")
    gate.before_deleting(FAVORITES)

    with started(database, GUESTS, 7) as one_process, started(database, GUESTS, 7) as other:
        gate.wait_for(2)
        gate.open()
        reports = [report_of(one_process), report_of(other)]

    assert {report["outcome"] for report in reports} == {"completed"}
    deleted = [report["deleted"][str(FAVORITES)] for report in reports]
    assert min(deleted) >= 7
    assert sum(deleted) == 200
    assert one(admin, "SELECT count(*) FROM public.deletions") == 200
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("A-09")
def test_of_two_processes_that_clean_sessions_one_runs_and_the_other_does_nothing(
    database: Database, admin: Admin, gate: Gate
) -> None:
    old_sessions(admin, 5)
    gate.before_deleting(SESSIONS)

    with started(database, ACTIVITY, 2) as first:
        gate.wait_for()
        with started(database, ACTIVITY, 2) as second:
            skipped = report_of(second)
        gate.open()
        completed = report_of(first)

    assert (skipped["outcome"], skipped["batches"], skipped["error"]) == ("skipped", 0, None)
    assert (completed["outcome"], completed["batches"]) == ("completed", 3)
    assert whole_sessions(admin) == set()


@pytest.mark.req("A-11", "F-09")
def test_a_signal_ends_a_run_after_its_batch_and_a_second_one_at_once(
    database: Database, admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 6)
    gate.before_deleting(SESSIONS)

    with started(database, ACTIVITY, 2) as process:
        gate.wait_for()
        ask_to_stop(process)
        gate.open()
        stopped = report_of(process)
    gate.close()
    with started(database, ACTIVITY, 2) as process:
        gate.wait_for()
        ask_to_stop(process)
        process.send_signal(signal.SIGINT)
        forced = report_of(process)  # although the gate is still closed

    assert (stopped["outcome"], stopped["batches"], stopped["has_more"]) == ("stopped", 1, True)
    assert (forced["outcome"], forced["batches"], forced["error"]) == ("stopped", 0, None)
    assert whole_sessions(admin) == set(sessions[2:])


@pytest.mark.req("A-12", "H-04")
def test_a_process_killed_in_a_batch_leaves_no_half_of_it_and_the_next_run_does_the_rest(
    database: Database, admin: Admin, gate: Gate
) -> None:
    sessions = old_sessions(admin, 6)
    gate.before_deleting(SESSIONS, sessions[3])

    with started(database, ACTIVITY, 2) as process:
        gate.wait_for()
        process.kill()
        process.wait()
    # The server has not noticed yet: as long as that backend could delete, it holds the lock.
    assert run(database, job(ACTIVITY)).report.outcome is Outcome.SKIPPED
    gate.open()
    until(lambda: not workers(admin))

    assert whole_sessions(admin) == set(sessions[2:])
    report = run(database, job(ACTIVITY)).report
    assert (report.outcome, report.deleted[str(SESSIONS)]) == (Outcome.COMPLETED, 4)
    assert whole_sessions(admin) == set()


@pytest.mark.req("A-12", "H-04")
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_goes_down_in_a_batch_takes_only_that_batch_with_it(
    database: Database, admin: Admin, gate: Gate, mode: str
) -> None:
    sessions = old_sessions(admin, 6)
    gate.before_deleting(SESSIONS, sessions[3])

    with started(database, ACTIVITY, 2) as process:
        gate.wait_for()
        database.server.restart("fast" if mode == "fast" else "immediate")
        report = report_of(process)

    assert (report["outcome"], report["batches"]) == ("failed", 1)
    assert report["error"]["kind"] == "connection"
    assert sorted(report["error"]["keys"]) == sorted(str(key) for key in sessions[2:4])
    assert whole_sessions(database.connect()) == set(sessions[2:])
    assert run(database, job(ACTIVITY)).report.deleted[str(SESSIONS)] == 4
