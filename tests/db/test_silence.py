"""A server that neither answers nor hangs up, and a line that is dead without a word, do not keep a run for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention import db, session
from pgretention.errors import FaultKind
from pgretention.job import Retries
from pgretention.report import Outcome
from pgretention.stop import Stop
from tests.databases import Database
from tests.support.gates import until, workers
from tests.support.lines import line
from tests.support.planted import left, old_sessions
from tests.support.runs import ACTIVITY, job, unwatched_run

Admin = Connection[TupleRow]


@pytest.fixture(autouse=True)
def short_of_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_SILENCE", timedelta(0))
    monkeypatch.setattr(session, "_GREETING", timedelta(seconds=1))
    monkeypatch.setattr(db, "_COMMITTING", timedelta(seconds=1))


@pytest.mark.req("H-04", "A-11")
@pytest.mark.parametrize(
    ("stalls_at", "kind"),
    [
        (b"deadlock_timeout", FaultKind.CONNECTION),
        (b"pg_try_advisory_lock", FaultKind.CONNECTION),
        (b"SKIP LOCKED", FaultKind.CONNECTION),
        (b"DELETE FROM", FaultKind.CONNECTION),
        (b"CONSTRAINTS ALL", FaultKind.CONNECTION),
    ],
    ids=["greeting", "lock", "claim", "delete", "constraints"],
)
def test_a_server_that_is_silent_for_longer_than_its_timeouts_is_hung_up_on_and_nothing_is_counted(
    database: Database, admin: Admin, stalls_at: bytes, kind: FaultKind
) -> None:
    sessions = old_sessions(admin, 2)
    with line(database, stalls_at=stalls_at) as wire:
        report = unwatched_run(wire.dsn, job(ACTIVITY, max_run_duration=timedelta(seconds=4))).report
        wire.go_on()

    assert (report.outcome, report.batches) == (Outcome.FAILED, 0)
    assert report.error is not None
    assert report.error.kind is kind
    until(lambda: workers(admin) == [])
    assert left(admin) == set(sessions)


@pytest.mark.req("H-04", "A-12")
def test_a_commit_that_is_never_answered_is_unknown_and_neither_counted_nor_tried_again(
    database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 2)
    patient = replace(job(ACTIVITY, batch_size=1), retries=Retries(3, timedelta(milliseconds=1)))
    with line(database, stalls_at=b"COMMIT\0", stalls_after=b"DELETE FROM") as wire:
        report = unwatched_run(wire.dsn, patient).report
        wire.go_on()

    assert (report.outcome, report.batches) == (Outcome.FAILED, 0)
    assert report.error is not None
    assert report.error.kind is FaultKind.COMMIT_UNKNOWN
    until(lambda: workers(admin) == [])
    assert left(admin) in [set(sessions), set(sessions[1:])]


@pytest.mark.req("H-02", "H-03")
def test_a_stop_is_heard_while_a_host_that_says_nothing_is_being_connected_to(
    database: Database, threads: ThreadPoolExecutor
) -> None:
    stop = Stop()
    with line(database, stalls_at=b"") as wire:
        running = threads.submit(unwatched_run, wire.dsn, job(ACTIVITY), stop=stop)
        wire.wait_for_stall()
        stop.request()
        report = running.result().report  # the host is still silent

    assert (report.outcome, report.batches, report.error) == (Outcome.STOPPED, 0, None)
