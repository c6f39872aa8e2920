"""The last runs of every job in this process, kept in memory and, if there is an archive, beyond its end.

A sink like any other: it hears the facts, asks no database and can stop nothing. Whoever looks gets values that do
not change any more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from pgretention.clock import Clock
from pgretention.errors import FaultKind
from pgretention.job import Job
from pgretention.report import (
    CatchingUp,
    Fact,
    Outcome,
    RetryAwaited,
    RunError,
    RunFact,
    RunFinished,
    RunScheduled,
    RunsMissed,
)
from pgretention.sinks.measures import succeeded
from pgretention.sinks.records import RunRecord

RUNS: Final = 1000
"""Runs of a job that are remembered."""

DETAILED: Final = 30
"""Of those, the latest that deleted something or met something are remembered batch by batch."""


class Archive(Protocol):
    """What outlives the process; neither method raises once it is there."""

    def load(self) -> Iterable[RunRecord]:
        """All that is kept, the oldest first."""
        ...

    def keep(self, record: RunRecord) -> None:
        """Add a finished run, and let go of what is too old."""
        ...


@dataclass(frozen=True, slots=True)
class JobHistory:
    """What is known of a job: its finished `runs`, the oldest first, and the one that is `running`.

    `due` is when it runs next by its schedule, in UTC, and `again` when it tries again before that since it never
    reached its database. `missed` are the latest runs that did not take place, until one succeeds.
    """

    runs: tuple[RunRecord, ...] = ()
    running: RunRecord | None = None
    due: datetime | None = None
    again: datetime | None = None
    missed: RunsMissed | None = None

    @property
    def last(self) -> RunRecord | None:
        """The latest finished run."""
        return self.runs[-1] if self.runs else None


class History:
    """A sink that remembers the runs of these jobs; facts of others are passed over."""

    def __init__(self, jobs: Iterable[Job], clock: Clock, archive: Archive | None = None) -> None:
        self._clock = clock
        self._archive = archive
        self._jobs = {job.name: JobHistory() for job in jobs}
        self._changing = threading.Lock()
        for record in archive.load() if archive else ():
            if record.job in self._jobs:
                self._jobs[record.job] = _with_run(self._jobs[record.job], record)

    def __call__(self, fact: Fact) -> None:
        name = fact.report.job if isinstance(fact, RunFinished) else fact.job
        with self._changing:
            before = self._jobs.get(name)
            if before is None:
                return
            now = self._clock.now()
            self._jobs[name] = after = _after(before, fact, now)
        if self._archive and isinstance(fact, RunFinished) and after.last:
            self._archive.keep(after.last)

    def of(self, job: str) -> JobHistory:
        """What is known of a job."""
        return self._jobs[job]

    def run(self, run_id: str) -> RunRecord | None:
        """A run that is remembered, or is on."""
        for known in list(self._jobs.values()):
            for record in (known.running, *reversed(known.runs)):
                if record is not None and record.run_id == run_id:
                    return record
        return None


def _after(known: JobHistory, fact: Fact, now: datetime) -> JobHistory:
    match fact:
        case RunScheduled(due=due):
            return replace(_without_running(known, now), due=due)  # told between runs: one without an end has crashed
        case CatchingUp():
            return known
        case RunsMissed():
            return replace(known, missed=fact)
        case RetryAwaited() if known.running is None:
            return replace(known, again=now + fact.wait)
        case _:
            return _in_run(known, fact, now)


def _without_running(known: JobHistory, now: datetime) -> JobHistory:
    """The history once a run that is on has turned out to be over without a word."""
    if known.running is None:
        return known
    error = RunError(FaultKind.INTERNAL, "the run crashed: see `run crashed` in the log")
    crashed = replace(known.running, ended=now, outcome=Outcome.FAILED, error=error)
    return replace(_with_run(known, crashed), running=None)


def _in_run(known: JobHistory, fact: RunFact, now: datetime) -> JobHistory:
    run_id = fact.report.run_id if isinstance(fact, RunFinished) else fact.run_id
    running = known.running
    if running is None or running.run_id != run_id:
        running = RunRecord.beginning(fact, now)
    running = running.after(fact, now)
    if not isinstance(fact, RunFinished):
        return replace(known, running=running, again=None)
    missed = None if succeeded(fact.report.outcome) else known.missed
    return replace(_with_run(known, running), running=None, again=None, missed=missed)


def _with_run(known: JobHistory, record: RunRecord) -> JobHistory:
    """The history with one more run. The oldest goes where there are too many, and details before the latest."""
    runs = (*known.runs, record)[-RUNS:]
    told = [place for place, run in enumerate(runs) if run.stretches or run.notes]
    if len(told) > DETAILED:
        place = told[0]
        runs = (*runs[:place], runs[place].in_short(), *runs[place + 1 :])
    return replace(known, runs=runs)
