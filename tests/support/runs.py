"""A run of the engine whose every fact is checked, while it goes on, against what SQL counts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention import engine
from pgretention.clock import Clock, SystemClock
from pgretention.course import NO_CONDITIONS, Conditions
from pgretention.job import Job, Limits, Pace, Safety
from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.policy import Policy, Table
from pgretention.report import BatchDone, Fact, RunFinished, RunReport, RunStarted
from pgretention.schedule import Schedule
from pgretention.stop import Stop
from tests.databases import Database
from tests.support.rows import ids

YEAR = timedelta(days=365)
ACTIVITY = activity_retention.policy(YEAR)
GUESTS = guest_favorites_cleanup.policy(YEAR)

NO_HASTE, NO_BRAKES = Pace(), Safety()

Observe = Callable[[Fact], None]


def job(
    policy: Policy,
    *,
    batch_size: int = 100,
    max_batches: int | None = None,
    max_run_duration: timedelta = timedelta(minutes=5),
    workers: int = 1,
    pace: Pace = NO_HASTE,
    safety: Safety = NO_BRAKES,
) -> Job:
    limits = Limits(batch_size, max_run_duration, max_batches, workers)
    return Job(policy, limits, Schedule("0 3 * * *", "UTC"), pace=pace, safety=safety)


@dataclass
class Run:
    """What a run said, and what it did between the facts according to SQL."""

    facts: list[Fact] = field(default_factory=list)

    @property
    def report(self) -> RunReport:
        assert isinstance(self.facts[-1], RunFinished)
        return self.facts[-1].report

    @property
    def started(self) -> RunStarted:
        assert isinstance(self.facts[0], RunStarted)
        return self.facts[0]

    @property
    def batches(self) -> list[BatchDone]:
        return [fact for fact in self.facts if isinstance(fact, BatchDone)]

    @property
    def roots_per_batch(self) -> list[int]:
        return [list(batch.deleted.values())[-1] for batch in self.batches]


def ignore(_: Fact) -> None:
    pass


def unwatched_run(
    dsn: str,
    job: Job,
    *,
    on: Observe = ignore,
    stop: Stop | None = None,
    clock: Clock | None = None,
    run_id: str | None = None,
    conditions: Conditions = NO_CONDITIONS,
) -> Run:
    """One run whose facts agree with each other; for where others delete rows at the same time."""
    run = Run()
    troubles: list[Exception] = []

    def observe(fact: Fact) -> None:
        run.facts.append(fact)
        try:
            if not troubles:
                on(fact)
        except Exception as error:  # noqa: BLE001  the engine would make a report of it
            troubles.append(error)

    report = engine.run(
        job,
        dsn,
        run_id=run_id or str(uuid4()),
        observe=observe,
        stop=stop or Stop(),
        clock=clock or SystemClock(),
        conditions=conditions,
    )
    for trouble in troubles:
        raise trouble
    assert report == run.report
    assert [type(fact) for fact in run.facts].count(RunFinished) == 1
    assert [batch.index for batch in run.batches] == list(range(1, report.batches + 1))
    assert report.deleted == {
        str(table): sum(batch.deleted[str(table)] for batch in run.batches) for table in job.policy.tables
    }
    assert all(0 < rows <= job.limits.batch_size for rows in run.roots_per_batch)
    return run


def run(
    database: Database,
    job: Job,
    *,
    on: Observe = ignore,
    stop: Stop | None = None,
    clock: Clock | None = None,
    run_id: str | None = None,
    conditions: Conditions = NO_CONDITIONS,
) -> Run:
    """One run as the worker's role, each of its facts compared with the rows that went since the one before.

    `on` sees each fact after the comparison, and may change the database.
    """
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        witness = _Witness(connection, job.policy)

        def observe(fact: Fact) -> None:
            witness.compare(fact)
            on(fact)
            witness.look()

        return unwatched_run(
            database.worker_dsn, job, on=observe, stop=stop, clock=clock, run_id=run_id, conditions=conditions
        )


class _Witness:
    """The rows of every table of a policy, as a superuser sees them; of a table that is not there, none."""

    def __init__(self, connection: Connection[TupleRow], policy: Policy) -> None:
        self._connection = connection
        self._policy = policy
        self.look()

    def look(self) -> None:
        self._rows = {str(table): self._ids(table) for table in self._policy.tables}

    def compare(self, fact: Fact) -> None:
        before = self._rows
        self.look()
        gone = {table: len(rows - self._rows[table]) for table, rows in before.items()}
        said = fact.deleted if isinstance(fact, BatchDone) else dict.fromkeys(gone, 0)
        assert gone == said

    def _ids(self, table: Table) -> set[object]:
        for key in "id", "ctid":  # not every table has an id, and an address changes with an update
            with suppress(psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
                return ids(self._connection, table, key)
        return set()
