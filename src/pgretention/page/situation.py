"""Everything that is known of a job at one moment, out of the places where it is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pgretention.clock import Clock
from pgretention.job import Job
from pgretention.readiness import Away
from pgretention.report import Backlog
from pgretention.sinks.history import History, JobHistory
from pgretention.sinks.measures import Left, drain_eta
from pgretention.survey import Survey

_BOTH = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """A backlog and when it was measured, in UTC."""

    backlog: Backlog
    at: datetime


@dataclass(frozen=True, slots=True)
class Situation:
    """A job at `now`. `switch` is the setting that turns it on or off, `here` whether this worker runs it, `database`
    where it works, without secrets.

    `away` is set when its database does not count as there, `unseen` why the last survey of it failed.
    `lost` is whether its thread is gone, `stopping` whether the worker was told to end.
    """

    job: Job
    switch: str
    now: datetime
    database: str = ""
    here: bool = True
    history: JobHistory = field(default_factory=JobHistory)
    survey: Survey | None = None
    unseen: str | None = None
    away: Away | None = None
    lost: bool = False
    stopping: bool = False

    @property
    def measured(self) -> Measured | None:
        """The latest backlog that was measured, by a run or between runs; None of a job that nobody runs here."""
        found: list[Measured] = []
        if not self.here:
            return None
        if self.survey is not None and self.survey.backlog is not None:
            found.append(Measured(self.survey.backlog, self.survey.at))
        for run in reversed(self.history.runs):
            if run.backlog_after is not None and run.ended is not None:
                found.append(Measured(run.backlog_after, run.ended))
                break
        running = self.history.running
        if running is not None and running.backlog_before is not None:
            found.append(Measured(running.backlog_before, running.began))
        return max(found, key=lambda each: each.at, default=None)

    @property
    def overdue(self) -> timedelta | None:
        """How long ago the oldest expired row expired, if it is there still; zero when nothing was expired when it was
        measured, None where nobody knows.
        """
        measured = self.measured
        if measured is None:
            return None
        if measured.backlog.oldest_age is None:
            return timedelta(0) if measured.backlog.rows == 0 else None
        since = timedelta(0) if self.history.running else self.now - measured.at
        return max(timedelta(0), measured.backlog.oldest_age + since - self.job.policy.retention)

    @property
    def behind(self) -> bool:
        """Whether a row is there that should be gone by now."""
        return self.overdue is not None and self.overdue > self.job.promise

    @property
    def eta(self) -> timedelta | None:
        """When nothing expired will be left, at the pace between the last two runs; None where that cannot be told."""
        seconds = self._eta()
        return None if not math.isfinite(seconds) else timedelta(seconds=seconds)

    @property
    def runs_left(self) -> int | None:
        """How many more runs like the last one, net of what expires meanwhile, leave nothing; None if unknown."""
        if not self.draining or not self.eta:
            return None
        *_, before, last = self._lefts
        return math.ceil(last.rows / (before.rows - last.rows))

    @property
    def grown(self) -> int:
        """By how many rows the backlog grew between the last two runs; negative where it fell."""
        lefts = self._lefts
        return lefts[-1].rows - lefts[-_BOTH].rows if len(lefts) >= _BOTH else 0

    @property
    def draining(self) -> bool | None:
        """Whether the backlog fell between the last two runs, or there is none; None where that cannot be told."""
        seconds = self._eta()
        return None if math.isnan(seconds) else math.isfinite(seconds)

    @property
    def _lefts(self) -> list[Left]:
        """What each run left, as far as it was measured."""
        return [
            Left(run.backlog_after.rows, run.ended.timestamp())
            for run in self.history.runs
            if run.backlog_after is not None and run.ended is not None
        ]

    def _eta(self) -> float:
        ends = self._lefts
        if not ends or self.measured is None:
            return math.nan
        before, last = ends[-_BOTH] if len(ends) >= _BOTH else None, ends[-1]
        now = self.measured.backlog.rows
        if now > last.rows and (last.rows == 0 or before is None or now >= before.rows):
            return math.nan  # so many have come since then that the pace says nothing
        return drain_eta(before, last)


@dataclass(frozen=True, slots=True)
class Watched:
    """Where to ask about the `jobs` of a worker and those it leaves alone, which are not `here`; every answer is there
    at once. `switches` name each job's setting, `databases` where it works, without secrets; `machine` is the name of
    this one.
    """

    machine: str
    jobs: tuple[Job, ...]
    here: Collection[str]
    switches: Mapping[str, str]
    databases: Mapping[str, str]
    clock: Clock
    history: History
    survey: Callable[[str], Survey | None]
    unseen: Callable[[str], str | None]
    away: Callable[[str], Away | None]
    lost: Callable[[str], bool]
    stopping: Callable[[], bool]

    def situation(self, job: Job) -> Situation:
        """What is known of a job now."""
        return Situation(
            job=job,
            switch=self.switches[job.name],
            now=self.clock.now(),
            database=self.databases[job.name],
            here=job.name in self.here,
            history=self.history.of(job.name),
            survey=self.survey(job.name),
            unseen=self.unseen(job.name),
            away=self.away(job.name),
            lost=self.lost(job.name),
            stopping=self.stopping(),
        )
