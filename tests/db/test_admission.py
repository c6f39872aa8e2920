"""A run that is due in a worker: not while a check finds an error, nor when the cutoff has jumped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention import backlog
from pgretention.admission import Admission
from pgretention.app import Assignment
from pgretention.job import Brake, Job, Retries, Safety
from pgretention.plan import Plan
from pgretention.report import Backlog, Fact, Outcome, RunFinished
from pgretention.session import Session
from pgretention.stop import Stop
from tests.databases import WORKER, Database
from tests.support.planted import old_favorites
from tests.support.rows import FAVORITES, ids
from tests.support.runs import GUESTS, job

Admin = Connection[TupleRow]

DAYS = timedelta(days=1).total_seconds()


class Hours:
    """A clock that shows these seconds, one after the other, and stays at the last."""

    def __init__(self, *shown: float) -> None:
        self._shown: Iterator[float] = iter(shown)
        self._last = 0.0

    def __call__(self) -> float:
        self._last = next(self._shown, self._last)
        return self._last


def admission(database: Database, clock: Hours, facts: list[Fact], this: Job | None = None) -> Admission:
    assignment = Assignment(this or job(GUESTS), database.worker_dsn, "Favorites:GuestRetention:Enabled")
    return Admission(assignment, facts.append, Stop(), clock)


def test_a_cutoff_that_is_later_than_the_time_since_the_last_run_explains_is_refused(
    database: Database, admin: Admin
) -> None:
    facts: list[Fact] = []
    # Of the two clocks it is the worker's that goes back here, since the server's cannot be set.
    guests = admission(database, Hours(3 * DAYS, 0, 3 * DAYS), facts)

    assert guests.run().outcome is Outcome.COMPLETED
    old = set(old_favorites(admin, 2))
    refused = guests.run()
    assert (refused.outcome, ids(admin, FAVORITES)) == (Outcome.REFUSED, old)
    assert refused.error is not None
    assert f"set Safety:Override={Brake.CUTOFF_JUMP}" in refused.error.message

    # The refused run's cutoff is not believed: the next one is compared with that of the run before.
    assert guests.run().deleted == {str(FAVORITES): 2}
    assert [fact.report.outcome for fact in facts if isinstance(fact, RunFinished)] == [
        Outcome.COMPLETED,
        Outcome.REFUSED,
        Outcome.COMPLETED,
    ]


def test_an_override_lets_it_run(database: Database, admin: Admin) -> None:
    this = replace(job(GUESTS), safety=Safety(overridden=frozenset({Brake.CUTOFF_JUMP})))
    guests = admission(database, Hours(3 * DAYS, 0), [], this)

    guests.run()
    old_favorites(admin, 2)

    assert guests.run().deleted == {str(FAVORITES): 2}


@pytest.mark.parametrize("jumped", [0, DAYS, 30 * DAYS])
def test_a_worker_that_waited_or_slept_for_any_time_goes_on(database: Database, jumped: float) -> None:
    guests = admission(database, Hours(0, jumped), [])
    assert [guests.run().outcome for _ in range(2)] == [Outcome.COMPLETED] * 2


def test_a_job_with_an_error_is_looked_at_again_whenever_it_is_due(database: Database, admin: Admin) -> None:
    old = set(old_favorites(admin, 2))
    facts: list[Fact] = []
    guests = admission(database, Hours(0), facts)
    admin.execute("ALTER TABLE favorites.favorites RENAME COLUMN updated_at TO touched_at")

    guests.look()
    assert facts == []
    assert guests.run().outcome is Outcome.REFUSED
    assert ids(admin, FAVORITES) == old

    admin.execute("ALTER TABLE favorites.favorites RENAME COLUMN touched_at TO updated_at")
    assert guests.run().deleted == {str(FAVORITES): 2}
    assert isinstance(facts[0], RunFinished)
    assert facts[0].report.outcome is Outcome.REFUSED


def test_a_cutoff_that_no_brake_has_let_pass_is_not_believed(
    database: Database, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    guests = admission(database, Hours(3 * DAYS, 0, 0), [])
    assert guests.run().outcome is Outcome.COMPLETED
    old = set(old_favorites(admin, 2))

    measure = backlog.measure

    def lose_the_connection(session: Session, plan: Plan, cutoff: datetime, within: timedelta) -> Backlog:
        admin.execute("SELECT pg_terminate_backend(%s)", [session.connection.info.backend_pid])
        return measure(session, plan, cutoff, within)

    with monkeypatch.context() as patched:
        patched.setattr(backlog, "measure", lose_the_connection)
        assert guests.run().outcome is Outcome.FAILED
    assert guests.run().outcome is Outcome.REFUSED
    assert ids(admin, FAVORITES) == old


UNINDEXED = "CREATE TABLE public.n AS SELECT g AS n, NULL::uuid AS favorite FROM generate_series(1, 10001) g"


def test_a_job_whose_check_cannot_take_place_does_not_run_unchecked(database: Database, admin: Admin) -> None:
    old = set(old_favorites(admin, 2))
    admin.execute(UNINDEXED)
    admin.execute("ALTER TABLE public.n ADD FOREIGN KEY (favorite) REFERENCES favorites.favorites")
    admin.execute("ANALYZE public.n")
    this = replace(job(GUESTS), retries=Retries(3, timedelta(milliseconds=200)))
    guests = admission(database, Hours(0), [], this)
    guests.look()

    with database.connect() as somebody, somebody.transaction():
        somebody.execute("LOCK TABLE favorites.favorites IN ACCESS EXCLUSIVE MODE")
        held = guests.run()
    assert held.outcome in {Outcome.FAILED, Outcome.REFUSED}
    assert guests.run().outcome is Outcome.REFUSED
    assert ids(admin, FAVORITES) == old


def test_a_job_whose_database_is_away_at_first_is_checked_by_the_run_that_reaches_it(
    database: Database, admin: Admin
) -> None:
    old = set(old_favorites(admin, 2))
    admin.execute("CREATE TABLE public.notes (id uuid PRIMARY KEY REFERENCES favorites.favorites ON DELETE CASCADE)")
    facts: list[Fact] = []
    this = replace(job(GUESTS), retries=Retries(1, timedelta(milliseconds=1)))
    guests = admission(database, Hours(0), facts, this)
    admin.execute(f"ALTER ROLE {WORKER} NOLOGIN".encode())
    try:
        guests.look()
    finally:
        admin.execute(f"ALTER ROLE {WORKER} LOGIN".encode())

    refused = guests.run()

    assert refused.outcome is Outcome.REFUSED
    assert refused.error is not None
    assert "public.notes (id)" in refused.error.message
    assert ids(admin, FAVORITES) == old


def test_what_comes_up_after_a_check_that_found_nothing_is_for_the_run_to_find(
    database: Database, admin: Admin
) -> None:
    guests = admission(database, Hours(0), [])
    guests.look()
    admin.execute("ALTER TABLE favorites.favorites RENAME COLUMN updated_at TO touched_at")
    assert guests.run().outcome is Outcome.REFUSED
