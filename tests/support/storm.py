"""Attempts to get two runs of activity-retention to delete at once: a storm of runs, and something that disturbs them.

A trigger looks, in every transaction that deletes sessions, whether another run is in the middle of one, and raises if
so; that would end a run as `failed` with kind `database`, which no attempt here does in any other way.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import LiteralString

from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.errors import FaultKind
from pgretention.job import Job, Retries
from pgretention.report import Outcome, RunReport
from tests.support import rows
from tests.support.gates import workers
from tests.support.locks import assert_the_lock_is_free
from tests.support.planted import left
from tests.support.rows import SESSIONS
from tests.support.runs import ACTIVITY, job, unwatched_run

Admin = Connection[TupleRow]
Disturb = Callable[[Admin], object]

PLANTED = 90
RUNS_EACH = 5
SEEDS = range(4)
"""One thread for each, with runs of one to three workers."""

NO_OTHER_DELETES = """
    CREATE FUNCTION public.look_around() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE mine int := hashtext(current_setting('application_name'));
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(4712, mine);
        IF EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 4712 AND objsubid = 2
                      AND granted AND objid <> ((mine::bigint + 4294967296) % 4294967296)::oid) THEN
            RAISE 'another run deletes';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER look_around BEFORE DELETE ON user_activity.sessions EXECUTE FUNCTION public.look_around();
"""
"""Whoever comes second sees the first: each takes its own lock before it looks for another."""


def nothing(_: Admin) -> None:
    """The runs alone."""


def terminate(admin: Admin) -> None:
    """Any connection of any run is lost."""
    _to_one(admin, "SELECT pg_terminate_backend(%s)")


def cancel(admin: Admin) -> None:
    """Any statement of any run is cancelled."""
    _to_one(admin, "SELECT pg_cancel_backend(%s)")


def take_the_lock_away(admin: Admin) -> None:
    """Whoever holds the job's lock is lost, at the moment it holds it."""
    admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)",
        [ACTIVITY.lock],
    )


def be_in_the_way(admin: Admin) -> None:
    """Somebody holds the job's lock for a moment, as an operator would."""
    with admin.transaction():
        admin.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0)), pg_sleep(0.02)", [ACTIVITY.lock])


def change_the_table(admin: Admin) -> None:
    """A run that is on ends, refused, and others begin."""
    admin.execute("CREATE INDEX CONCURRENTLY IF NOT EXISTS passing ON user_activity.sessions (created_at)")
    admin.execute("DROP INDEX CONCURRENTLY IF EXISTS user_activity.passing")


def _to_one(admin: Admin, act: LiteralString) -> None:
    connected = workers(admin)
    if connected:
        admin.execute(act, [random.choice(connected)])


DISTURBANCES: dict[str, Disturb] = {
    disturb.__name__: disturb
    for disturb in (nothing, terminate, cancel, take_the_lock_away, be_in_the_way, change_the_table)
}


def storm(admin: Admin, dsns: list[str], disturb: Disturb) -> None:
    """Many runs at once, by each of these ways in turn, until the last of them is over; then one more."""
    plant(admin)
    with disturbing(admin, disturb), ThreadPoolExecutor(len(SEEDS)) as threads:
        running = [threads.submit(runs, dsns[seed % len(dsns)], seed) for seed in SEEDS]
        reports = [report for each in running for report in each.result()]

    reports.append(unwatched_run(dsns[0], job(ACTIVITY)).report)

    assert [report.error for report in reports if kind(report) in {FaultKind.DATABASE, FaultKind.INTERNAL}] == []
    assert reports[-1].outcome is Outcome.COMPLETED
    assert left(admin) == set()
    counted = sum(report.deleted[str(SESSIONS)] for report in reports)
    errors = [report.error for report in reports if report.error and report.error.kind is FaultKind.COMMIT_UNKNOWN]
    unknown = sum(len(error.keys) for error in errors)
    assert PLANTED - unknown <= counted <= PLANTED
    assert_the_lock_is_free(admin)


def plant(admin: Admin) -> None:
    for number in range(PLANTED):
        rows.event(admin, rows.session(admin, f"2020-01-01 00:00:{number % 60:02}"))
    admin.execute(NO_OTHER_DELETES)


@contextmanager
def disturbing(admin: Admin, disturb: Disturb) -> Generator[None]:
    """While inside, it goes on and on, in this connection."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.01):
            disturb(admin)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def runs(dsn: str, seed: int) -> list[RunReport]:
    draw = random.Random(seed)
    return [unwatched_run(dsn, drawn(draw)).report for _ in range(RUNS_EACH)]


def drawn(draw: random.Random) -> Job:
    size, batches, workers = draw.choice([1, 2, 5]), draw.choice([3, 10]), draw.choice([1, 2, 3])
    small = job(ACTIVITY, batch_size=size, max_batches=batches, workers=workers)
    return replace(small, retries=Retries(3, timedelta(seconds=0.01)))


def kind(report: RunReport) -> FaultKind | None:
    return report.error.kind if report.error else None
