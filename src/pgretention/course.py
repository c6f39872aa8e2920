"""A run as it stands: what it is made of, what it has done so far, and the report that becomes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from pgretention.batch import Batch, Target
from pgretention.clock import Clock
from pgretention.errors import Fault, FaultKind
from pgretention.job import Job
from pgretention.report import (
    Backlog,
    BatchDone,
    Fact,
    Limit,
    Outcome,
    RowsKept,
    RunError,
    RunReport,
    Throttle,
    Throttled,
)
from pgretention.session import Session
from pgretention.stop import Stop
from pgretention.window import Frontier, Window

Observe = Callable[[Fact], None]

STATEMENT_LIMIT: Final = timedelta(minutes=1)
"""The longest a single statement of a batch may take, where the run has more time than that left."""

_NAMED = 1000
"""Rows left out whose keys the report names."""


@dataclass(frozen=True, slots=True)
class Previous:
    """The last run of the job in this process: its cutoff, and how long ago that was by a clock nobody can set."""

    cutoff: datetime
    ago: timedelta


@dataclass(frozen=True, slots=True)
class Conditions:
    """What has to be true before a run begins: `previous` is what its cutoff is compared with. `admit` is asked on the
    run's connection and under its lock, and raises Refusal.
    """

    previous: Previous | None = None
    admit: Callable[[Session], None] | None = None


NO_CONDITIONS: Final = Conditions()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends, short of what it had to leave out."""

    outcome: Outcome
    error: RunError | None = None
    limit: Limit | None = None


@dataclass(slots=True)
class Course:
    """Everything a run is made of, so that its steps need not pass it around; `deadline` is the clock's monotonic.

    Its lanes run in threads of their own, and whatever they change together is changed here, one at a time.
    """

    job: Job
    run_id: str
    observe: Observe
    stop: Stop
    clock: Clock
    deadline: float
    conditions: Conditions = NO_CONDITIONS
    frontier: Frontier = field(init=False)
    lanes: tuple[Lane, ...] = field(init=False)
    gathering: threading.Event = field(default_factory=threading.Event)
    """Set when the lanes are to end after their batch in flight, although nobody asked for a stop."""
    target: Target | None = None
    begun: bool = False
    """Whether no brake holds: the run may delete."""
    before: Backlog | None = None
    after: Backlog | None = None
    entered: bool = False
    """Whether no other run of the job was on, when this one asked for the first time."""
    holders: str | None = None
    """Who held the lock that kept this run from going on."""
    batches: int = 0
    _deleted: dict[str, int] = field(init=False)
    _throttled: dict[str, timedelta] = field(default_factory=dict)
    _kept: int = 0
    _kept_because: RunError | None = None
    _changing: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        limits = self.job.limits
        self._deleted = {str(table): 0 for table in self.job.policy.tables}
        self.frontier = Frontier(limits.batch_size, limits.max_batches, batch_duration=self.job.pace.batch_duration)
        self.lanes = tuple(Lane(self, Window(self.frontier)) for _ in range(limits.workers))

    @property
    def application_name(self) -> str:
        """What the connections of this run are called (design section 3)."""
        return f"pgretention/{self.job.name}/{self.run_id[:8]}"

    @property
    def cutoff(self) -> datetime | None:
        """The one instant before which rows are expired, once it is read."""
        return self.target.cutoff if self.target else None

    def time_left(self) -> timedelta:
        """Until MaxRunDuration is over; negative afterwards."""
        return timedelta(seconds=self.deadline - self.clock.monotonic())

    def time_for(self, rows: int) -> timedelta:
        """How long a statement over so many root rows may take.

        As long as nothing is deleted, one that is too slow has to leave time for a smaller one.
        """
        left = self.time_left()
        return min(STATEMENT_LIMIT, left if self.batches or rows == 1 else left / 4)

    def given_up(self) -> Fault | None:
        """Why a connection is no longer waited for, if it is not."""
        if not self.stop.requested and self.time_left() <= timedelta(0):
            return Fault(FaultKind.CONNECTION, "cannot connect: no answer before the time of the run was over")
        return self.stop.given_up()

    @property
    def too_short(self) -> bool:
        """Whether there is less time left than a single row may take."""
        return self.time_for(1) < STATEMENT_LIMIT

    def say(self, fact: Fact) -> None:
        """Hand on a fact, one at a time."""
        with self._changing:
            self.observe(fact)

    def add(self, batch: Batch, took: timedelta) -> None:
        """A batch is committed."""
        with self._changing:
            self.batches += 1
            for table, rows in batch.deleted.items():
                self._deleted[table] += rows
            self.say(BatchDone(self.job.name, self.run_id, self.batches, batch.deleted, took))

    def throttle(self, fact: Throttled) -> None:
        """A connection has waited for the sake of others."""
        with self._changing:
            self._throttled[fact.reason] = self._throttled.get(fact.reason, timedelta(0)) + fact.wait
            self.say(fact)

    def keep(self, rows: int, error: RunError) -> None:
        """Rows stay although they are expired; the first reason stands for all, the keys are put together."""
        with self._changing:
            known = self._kept_because or replace(error, keys=(), batch=None)
            self._kept += rows
            self._kept_because = replace(known, keys=(*known.keys, *error.keys)[:_NAMED])
            self.say(RowsKept(self.job.name, self.run_id, rows, error))

    def report(self, ending: Ending, duration: timedelta) -> RunReport:
        """The result; a limit or a stop that came when nothing was left to do is a completed run (design section 1).

        A run that had to leave rows out is partial, whatever ended it short of a failure.
        """
        outcome, error = ending.outcome, ending.error
        ended_early = outcome in {Outcome.LIMIT_REACHED, Outcome.STOPPED}
        if ended_early and self.after is not None and self.after.exact and self.after.rows == 0:
            outcome, ended_early = Outcome.COMPLETED, False
        if self._kept_because is not None and outcome not in {Outcome.FAILED, Outcome.REFUSED}:
            rows = f"{self._kept:,} expired row{' stays' if self._kept == 1 else 's stay'}"
            outcome, error = (
                Outcome.PARTIAL,
                replace(self._kept_because, message=f"{rows}: {self._kept_because.message}"),
            )
        return RunReport(
            job=self.job.name,
            run_id=self.run_id,
            outcome=outcome,
            cutoff=self.cutoff,
            deleted=dict(self._deleted),
            batches=self.batches,
            has_more=ended_early,
            backlog_before=self.before,
            backlog_after=self.after,
            duration=duration,
            error=error,
            holders=self.holders,
            throttled=dict(self._throttled),
            limit=ending.limit if outcome is Outcome.LIMIT_REACHED else None,
        )


@dataclass(slots=True)
class Lane:
    """One of the connections that a run deletes on: what it asks for next, and how often in a row that failed."""

    run: Course
    window: Window
    attempts: int = 0
    took: timedelta = timedelta(0)
    """How long its last batch took."""
    owed: dict[Throttle, timedelta] = field(default_factory=dict)
    """What it has to wait for the sake of others before its next batch."""
