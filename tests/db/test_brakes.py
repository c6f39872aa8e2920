"""Signs that the cutoff or a setting is not what somebody meant: the run is refused before it touches a row."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention import brakes, db
from pgretention.course import Conditions, Previous
from pgretention.errors import FaultKind
from pgretention.job import Brake, Job, Safety
from pgretention.report import BatchDone, BrakeOverridden, Outcome, RunStarted
from pgretention.session import Session
from tests.databases import Database
from tests.support.planted import left, old_favorites, old_sessions
from tests.support.rows import FAVORITES, favorite, ids
from tests.support.runs import ACTIVITY, GUESTS, YEAR, Run, job, run
from tests.support.wrong_clocks import FastClock

Admin = Connection[TupleRow]

MINUTES = timedelta(minutes=1)
_LONGEST = timedelta(minutes=1)
"""What a statement of a batch may take, and so counting for a brake."""
DAY = timedelta(days=1)


def refused(run: Run, brake: Brake) -> str:
    """Why; nothing is deleted, and the override is named."""
    report = run.report
    assert (report.outcome, report.batches, set(report.deleted.values())) == (Outcome.REFUSED, 0, {0})
    assert [fact for fact in run.facts if isinstance(fact, (RunStarted, BatchDone))] == []
    assert report.error is not None
    assert report.error.kind is FaultKind.REFUSED
    assert report.error.message.endswith(f"set Safety:Override={brake}")
    return report.error.message


def overridden(run: Run, brake: Brake) -> None:
    """The run went on, and said what it was told not to heed."""
    assert run.report.outcome is Outcome.COMPLETED
    (told,) = [fact for fact in run.facts if isinstance(fact, BrakeOverridden)]
    assert told.brake == brake
    assert run.facts.index(told) < next(place for place, fact in enumerate(run.facts) if isinstance(fact, RunStarted))


def without(this: Job, brake: Brake) -> Job:
    return replace(this, safety=replace(this.safety, overridden=frozenset({brake})))


@pytest.mark.parametrize("by", [6 * MINUTES, -6 * MINUTES, timedelta(days=400)])
def test_a_host_and_a_server_that_do_not_agree_on_the_time_delete_nothing(
    database: Database, admin: Admin, by: timedelta
) -> None:
    old = set(old_favorites(admin, 3))

    refusal = refused(run(database, job(GUESTS), clock=FastClock(by)), Brake.CLOCKS_APART)
    assert "apart" in refusal
    assert ids(admin, FAVORITES) == old

    overridden(run(database, without(job(GUESTS), Brake.CLOCKS_APART), clock=FastClock(by)), Brake.CLOCKS_APART)
    assert ids(admin, FAVORITES) == set()


@pytest.mark.parametrize("by", [timedelta(0), 4 * MINUTES, -4 * MINUTES])
def test_clocks_that_are_apart_by_less_are_no_reason(database: Database, admin: Admin, by: timedelta) -> None:
    old_favorites(admin, 3)

    this = run(database, job(GUESTS), clock=FastClock(by))

    assert (this.report.outcome, this.report.deleted) == (Outcome.COMPLETED, {str(FAVORITES): 3})


def test_a_process_that_was_suspended_while_it_read_the_time_does_not_blame_a_clock() -> None:
    read_at = datetime(2026, 3, 1, tzinfo=UTC)
    after = FastClock(read_at + timedelta(hours=1) - datetime.now(UTC))
    assert brakes.apart(read_at, read_at - MINUTES, after) == timedelta(0)
    assert brakes.apart(read_at, read_at + 7 * MINUTES, after) == 7 * MINUTES


def test_a_server_whose_clock_jumped_since_the_last_run_deletes_nothing(database: Database, admin: Admin) -> None:
    old = set(old_sessions(admin, 3))
    cutoff = datetime.now(UTC) - YEAR
    jumped = Previous(cutoff - 3 * DAY, DAY)

    refusal = refused(run(database, job(ACTIVITY), conditions=Conditions(jumped)), Brake.CUTOFF_JUMP)
    assert "2 days later" in refusal
    assert left(admin) == old

    overridden(
        run(database, without(job(ACTIVITY), Brake.CUTOFF_JUMP), conditions=Conditions(jumped)), Brake.CUTOFF_JUMP
    )
    assert left(admin) == set()


@pytest.mark.parametrize("since", [DAY, 7 * DAY, timedelta(minutes=1)])
def test_a_cutoff_that_moved_on_with_the_time_or_by_a_little_more_is_no_reason(
    database: Database, admin: Admin, since: timedelta
) -> None:
    old_favorites(admin, 3)
    cutoff = datetime.now(UTC) - YEAR

    for ahead in timedelta(0), timedelta(hours=23), -30 * DAY:
        this = run(database, job(GUESTS), conditions=Conditions(Previous(cutoff - since - ahead, since)))
        assert this.report.outcome is Outcome.COMPLETED


def test_more_expired_rows_than_may_be_are_a_reason_and_as_many_are_not(database: Database, admin: Admin) -> None:
    old = set(old_favorites(admin, 4))
    kept = favorite(admin, "infinity")

    refusal = refused(run(database, job(GUESTS, safety=Safety(expired_rows=3))), Brake.EXPIRED_ROWS)
    assert "more than 3 rows" in refusal
    assert ids(admin, FAVORITES) == {*old, kept}

    at_most = job(GUESTS, safety=Safety(expired_rows=4))
    assert run(database, at_most).report.deleted == {str(FAVORITES): 4}

    old_favorites(admin, 4)
    overridden(
        run(database, without(job(GUESTS, safety=Safety(expired_rows=3)), Brake.EXPIRED_ROWS)), Brake.EXPIRED_ROWS
    )
    assert ids(admin, FAVORITES) == {kept}


def test_a_larger_share_of_the_table_than_may_be_is_a_reason_and_the_same_share_is_not(
    database: Database, admin: Admin
) -> None:
    old_favorites(admin, 2)
    for _ in range(6):
        favorite(admin, "infinity")

    refusal = refused(run(database, job(GUESTS, safety=Safety(expired_share=0.24))), Brake.EXPIRED_SHARE)
    assert "more than 24% of about 8 rows" in refusal

    a_quarter = job(GUESTS, safety=Safety(expired_share=0.25))
    assert run(database, a_quarter).report.deleted == {str(FAVORITES): 2}

    old_favorites(admin, 2)
    overridden(
        run(database, without(job(GUESTS, safety=Safety(expired_share=0.1)), Brake.EXPIRED_SHARE)), Brake.EXPIRED_SHARE
    )


@pytest.mark.parametrize("share", [0.29, 0.07, 0.57])
def test_a_share_is_that_of_a_person_and_not_of_a_float(database: Database, admin: Admin, share: float) -> None:
    expired = round(100 * share)
    for _ in range(expired):
        favorite(admin)
    for _ in range(100 - expired):
        favorite(admin, "infinity")
    assert run(database, job(GUESTS, safety=Safety(expired_share=share))).report.outcome is Outcome.COMPLETED


def test_what_cannot_be_counted_in_time_is_told_as_that(
    database: Database, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = set(old_favorites(admin, 2))
    count = db.looking

    @contextmanager
    def slowly(session: Session, limit: timedelta) -> Generator[Connection[Any]]:
        with count(session, limit) as connection:
            if limit == _LONGEST:
                connection.execute("SET LOCAL statement_timeout = 20")
                connection.execute("SELECT pg_sleep(5)")
            yield connection

    monkeypatch.setattr(db, "looking", slowly)
    refusal = refused(run(database, job(GUESTS, safety=Safety(expired_rows=5))), Brake.EXPIRED_ROWS)

    assert "whether more than 5 rows are expired could not be counted in time" in refusal
    assert ids(admin, FAVORITES) == old


def test_a_share_of_an_empty_table_is_none(database: Database) -> None:
    assert run(database, job(GUESTS, safety=Safety(expired_share=0.01))).report.outcome is Outcome.COMPLETED


def test_a_retention_below_the_shortest_that_may_be_is_a_reason(database: Database, admin: Admin) -> None:
    old_favorites(admin, 2)

    refusal = refused(run(database, job(GUESTS, safety=Safety(retention=YEAR + DAY))), Brake.RETENTION)
    assert "365 days only, and MinimumRetention is 366 days" in refusal

    assert run(database, job(GUESTS, safety=Safety(retention=YEAR))).report.deleted == {str(FAVORITES): 2}
    overridden(run(database, without(job(GUESTS, safety=Safety(retention=2 * YEAR)), Brake.RETENTION)), Brake.RETENTION)


def test_all_that_holds_is_said_at_once(database: Database, admin: Admin) -> None:
    old_favorites(admin, 2)
    this = run(database, job(GUESTS, safety=Safety(expired_rows=1, expired_share=0.5, retention=2 * YEAR)))

    assert this.report.error is not None
    for brake in Brake.EXPIRED_ROWS, Brake.EXPIRED_SHARE, Brake.RETENTION:
        assert f"set Safety:Override={brake}" in this.report.error.message
