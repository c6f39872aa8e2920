"""Waits for the sake of others: between transactions only, over at once on a stop, and told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.demo.server import ThrowawayServer
from pgretention.errors import FaultKind
from pgretention.job import Pace, Retries
from pgretention.report import (
    BatchDone,
    BatchResized,
    Fact,
    Limit,
    Outcome,
    ReplicaBehind,
    Throttle,
    Throttled,
    TooLong,
)
from pgretention.stop import Stop
from tests.databases import WORKER, Database
from tests.support.gates import one, until
from tests.support.planted import old_favorites
from tests.support.rows import FAVORITES, ids
from tests.support.runs import GUESTS, Run, job, run, unwatched_run
from tests.support.standby import Standby, archiver
from tests.support.triggers import on_delete

Admin = Connection[TupleRow]

NONE = timedelta(0)
SECOND = timedelta(seconds=1)
LIMIT = timedelta(milliseconds=500)


def waits(run: Run, reason: Throttle) -> list[timedelta]:
    return [fact.wait for fact in run.facts if isinstance(fact, Throttled) and fact.reason is reason]


def kinds(run: Run) -> list[str]:
    """Batches and waits, in their order."""
    return [type(fact).__name__ for fact in run.facts if isinstance(fact, (BatchDone, Throttled, ReplicaBehind))]


def test_by_default_a_run_waits_for_nobody(database: Database, admin: Admin) -> None:
    old_favorites(admin, 6)

    this = run(database, job(GUESTS, batch_size=2))

    assert kinds(this) == ["BatchDone"] * 3
    assert this.report.throttled == {}


def test_a_pause_lies_between_two_batches_and_no_transaction_is_open_in_it(database: Database, admin: Admin) -> None:
    old_favorites(admin, 6)
    states: list[object] = []

    def look(fact: Fact) -> None:
        if isinstance(fact, Throttled):
            states.append(one(admin, "SELECT state FROM pg_stat_activity WHERE application_name LIKE 'pgretention/%%'"))

    pause = timedelta(milliseconds=50)
    this = run(database, job(GUESTS, batch_size=2, pace=Pace(pause=pause)), on=look)

    assert kinds(this)[:5] == ["BatchDone", "Throttled", "BatchDone", "Throttled", "BatchDone"]
    assert min(waits(this, Throttle.BATCH_PAUSE)) >= pause
    assert this.report.throttled == {Throttle.BATCH_PAUSE: sum(waits(this, Throttle.BATCH_PAUSE), NONE)}
    assert set(states) == {"idle"}


def test_a_stop_ends_a_pause(database: Database, admin: Admin) -> None:
    old_favorites(admin, 6)
    stop = Stop()

    def after_a_batch(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            stop.request()

    this = run(
        database,
        job(GUESTS, batch_size=2, pace=Pace(pause=timedelta(hours=1)), max_run_duration=timedelta(hours=2)),
        on=after_a_batch,
        stop=stop,
    )

    assert (this.report.outcome, this.report.batches) == (Outcome.STOPPED, 1)


def test_a_run_does_not_begin_a_pause_that_its_time_does_not_allow(database: Database, admin: Admin) -> None:
    old_favorites(admin, 6)

    this = run(database, job(GUESTS, batch_size=2, pace=Pace(pause=timedelta(hours=1))))

    assert (this.report.outcome, this.report.batches, this.report.has_more) == (Outcome.LIMIT_REACHED, 1, True)
    assert this.report.limit is Limit.DURATION
    assert waits(this, Throttle.BATCH_PAUSE) == []


def test_a_run_whose_last_pause_is_for_nothing_is_complete(database: Database, admin: Admin) -> None:
    old_favorites(admin, 2)

    this = run(database, job(GUESTS, batch_size=2, pace=Pace(pause=timedelta(hours=1))))

    assert this.report.outcome is Outcome.COMPLETED


def test_what_a_batch_writes_is_spread_over_time(database: Database, admin: Admin) -> None:
    old_favorites(admin, 4)
    on_delete(admin, FAVORITES, "PERFORM pg_logical_emit_message(true, 'test', repeat('x', 100000))")
    rate = 1_000_000

    this = run(database, job(GUESTS, batch_size=2, pace=Pace(wal_rate=rate)))

    assert this.report.deleted == {str(FAVORITES): 4}
    batches = [fact for fact in this.facts if isinstance(fact, BatchDone)]
    waited = sum(waits(this, Throttle.WAL), NONE)
    # Each of two batches wrote 200 kB, which is worth a fifth of a second less what it took itself.
    assert waited + batches[0].duration + batches[1].duration >= 2 * timedelta(seconds=200_000 / rate)


def test_a_batch_that_writes_little_is_followed_by_the_next_at_once(database: Database, admin: Admin) -> None:
    old_favorites(admin, 4)

    this = run(database, job(GUESTS, batch_size=2, pace=Pace(wal_rate=10**12)))

    assert kinds(this) == ["BatchDone", "BatchDone"]


@pytest.mark.parametrize("workers", [1, 3])
def test_connections_that_delete_side_by_side_share_the_rate(database: Database, admin: Admin, workers: int) -> None:
    old_favorites(admin, 12)
    on_delete(admin, FAVORITES, "PERFORM pg_logical_emit_message(true, 'test', repeat('x', 50000))")
    rate = 500_000

    began = time.monotonic()
    this = unwatched_run(database.worker_dsn, job(GUESTS, batch_size=1, workers=workers, pace=Pace(wal_rate=rate)))
    took = time.monotonic() - began

    # The last batch of each connection is followed by no wait.
    assert this.report.deleted == {str(FAVORITES): 12}
    assert (12 - workers) * 50_000 / took <= rate


def test_batches_that_are_refused_are_spread_over_time_too(database: Database, admin: Admin) -> None:
    old = old_favorites(admin, 4)
    admin.execute("CREATE TABLE public.notes (id uuid PRIMARY KEY REFERENCES favorites.favorites)")
    for key in old:
        admin.execute("INSERT INTO public.notes VALUES (%s)", [key])

    this = run(database, job(GUESTS, batch_size=4, pace=Pace(pause=timedelta(milliseconds=10))))

    assert this.report.outcome is Outcome.PARTIAL
    assert len(waits(this, Throttle.BATCH_PAUSE)) >= 6


def test_a_connection_that_is_lost_after_a_batch_changes_nothing_of_a_run_that_counts_its_wal(
    database: Database, admin: Admin
) -> None:
    old_favorites(admin, 5)

    def lose(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pgretention/%'"
            )

    this = job(GUESTS, batch_size=1, pace=Pace(wal_rate=10**9))
    retrying = replace(this, retries=Retries(2, timedelta(milliseconds=1)))

    assert run(database, retrying, on=lose).report.deleted == {str(FAVORITES): 5}


def test_batches_that_take_too_long_become_smaller(database: Database, admin: Admin) -> None:
    old_favorites(admin, 12)
    on_delete(admin, FAVORITES, "PERFORM pg_sleep(0.05)")

    this = run(database, job(GUESTS, batch_size=8, pace=Pace(batch_duration=timedelta(milliseconds=200))))

    assert this.report.deleted == {str(FAVORITES): 12}
    first = next(fact for fact in this.facts if isinstance(fact, BatchResized))
    assert (first.batch_size < 8, first.reason) == (True, TooLong.BATCH_DURATION)
    assert this.roots_per_batch[0] == 8
    assert max(this.roots_per_batch[1:]) <= first.batch_size


@pytest.fixture(scope="module")
def standby(server: ThrowawayServer) -> Iterator[Standby]:
    """A replica of the server that all tests share."""
    with Standby.of(server, "behind") as standby:
        yield standby


@pytest.fixture
def paused(standby: Standby, admin: Admin) -> Iterator[Standby]:
    """The replica, which has not replayed for longer than the limit; the role sees that."""
    role = sql.Identifier(WORKER)
    admin.execute(sql.SQL("GRANT pg_monitor TO {}").format(role))
    limit = LIMIT.total_seconds()
    try:
        until(lambda: _written(admin) and standby.lag() < limit)  # what was seen last may be from a pause before
        standby.pause()
        until(lambda: _written(admin) and standby.lag() > limit)
        yield standby
    finally:
        standby.resume()
        admin.execute(sql.SQL("REVOKE pg_monitor FROM {}").format(role))


def _written(admin: Admin) -> bool:
    """The replica hears of it, and says how far it is."""
    admin.execute("CREATE TABLE IF NOT EXISTS public.something (n int)")
    admin.execute("INSERT INTO public.something VALUES (1)")
    return True


def test_a_run_waits_before_its_first_batch_for_a_replica_that_is_behind_and_then_goes_on(
    database: Database, admin: Admin, paused: Standby
) -> None:
    old_favorites(admin, 4)

    def resume(fact: Fact) -> None:
        if isinstance(fact, Throttled):
            paused.resume()

    this = run(database, job(GUESTS, batch_size=2, pace=Pace(replica_lag=LIMIT)), on=resume)

    assert this.report.deleted == {str(FAVORITES): 4}
    order = kinds(this)
    assert order[:2] == ["ReplicaBehind", "Throttled"]
    assert order.count("BatchDone") == 2
    behind = next(fact for fact in this.facts if isinstance(fact, ReplicaBehind))
    assert (behind.replica, behind.limit) == ("behind", LIMIT)
    assert behind.lag is not None
    assert behind.lag > LIMIT
    assert this.report.throttled[Throttle.REPLICA_LAG] == sum(waits(this, Throttle.REPLICA_LAG), NONE) > NONE


def test_of_several_replicas_the_one_that_is_furthest_behind_is_waited_for(
    database: Database, admin: Admin, paused: Standby
) -> None:
    old_favorites(admin, 2)
    stop = Stop()

    def end(fact: Fact) -> None:
        if isinstance(fact, Throttled):
            stop.request()

    with Standby.of(database.server, "in-front"):
        this = run(database, job(GUESTS, pace=Pace(replica_lag=LIMIT)), on=end, stop=stop)

    assert (this.report.outcome, this.report.batches) == (Outcome.STOPPED, 0)
    assert [fact.replica for fact in this.facts if isinstance(fact, ReplicaBehind)] == [paused.name]


def test_a_run_whose_time_is_over_while_it_waits_for_a_replica_ends_at_its_limit(
    database: Database, admin: Admin, paused: Standby
) -> None:
    old = set(old_favorites(admin, 2))

    this = run(database, job(GUESTS, pace=Pace(replica_lag=LIMIT), max_run_duration=2 * SECOND))

    assert (this.report.outcome, this.report.has_more, ids(admin, FAVORITES)) == (Outcome.LIMIT_REACHED, True, old)
    assert paused.name == "behind"


def test_a_run_that_has_nothing_to_delete_waits_for_nobody(database: Database, paused: Standby) -> None:
    this = run(database, job(GUESTS, pace=Pace(replica_lag=LIMIT)))
    assert (this.report.outcome, kinds(this), paused.name) == (Outcome.COMPLETED, [], "behind")


def test_a_replica_that_has_fallen_silent_is_behind_although_its_last_word_was_good(
    database: Database, admin: Admin, standby: Standby
) -> None:
    until(standby.streams)
    until(lambda: standby.lag() == 0)
    old_favorites(admin, 4)
    role = sql.Identifier(WORKER)
    admin.execute(sql.SQL("GRANT pg_monitor TO {}").format(role))
    stop = Stop()

    def silence(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            standby.freeze()
        if isinstance(fact, ReplicaBehind):
            stop.request()

    try:
        pace = Pace(pause=2 * LIMIT, replica_lag=LIMIT)
        this = run(database, job(GUESTS, batch_size=1, pace=pace), on=silence, stop=stop)
    finally:
        standby.thaw()
        admin.execute(sql.SQL("REVOKE pg_monitor FROM {}").format(role))

    assert this.report.outcome is Outcome.STOPPED
    assert this.report.batches < 4
    assert "ReplicaBehind" in kinds(this)


def test_who_only_receives_is_no_replica(database: Database, admin: Admin, tmp_path: Path) -> None:
    old_favorites(admin, 2)
    role = sql.Identifier(WORKER)
    admin.execute(sql.SQL("GRANT pg_monitor TO {}").format(role))
    try:
        with archiver(database.server, tmp_path):
            seen = "SELECT replay_lag > '200 ms' FROM pg_stat_replication WHERE application_name = 'pg_receivewal'"
            until(lambda: _written(admin) and admin.execute(seen).fetchone() == (True,))
            this = run(database, job(GUESTS, pace=Pace(replica_lag=timedelta(milliseconds=100))))
    finally:
        admin.execute(sql.SQL("REVOKE pg_monitor FROM {}").format(role))

    assert (kinds(this), this.report.outcome) == (["BatchDone"], Outcome.COMPLETED)


def test_a_replica_that_keeps_up_is_not_waited_for(database: Database, admin: Admin, standby: Standby) -> None:
    old_favorites(admin, 4)
    until(standby.streams)
    role = sql.Identifier(WORKER)
    admin.execute(sql.SQL("GRANT pg_monitor TO {}").format(role))
    try:
        this = run(database, job(GUESTS, batch_size=2, pace=Pace(replica_lag=timedelta(minutes=5))))
    finally:
        admin.execute(sql.SQL("REVOKE pg_monitor FROM {}").format(role))

    assert kinds(this) == ["BatchDone", "BatchDone"]


def test_a_role_that_cannot_see_how_far_replicas_are_is_refused_with_the_grant(
    database: Database, admin: Admin, standby: Standby
) -> None:
    old = set(old_favorites(admin, 2))
    until(standby.streams)
    this = job(GUESTS, pace=Pace(replica_lag=LIMIT))

    blind = run(database, this)

    assert blind.report.outcome is Outcome.REFUSED
    assert blind.report.error is not None
    assert blind.report.error.kind is FaultKind.REFUSED
    assert f'GRANT pg_monitor TO "{WORKER}"' in blind.report.error.message
    assert ids(admin, FAVORITES) == old
    assert run(database, replace(this, pace=Pace())).report.deleted == {str(FAVORITES): 2}
