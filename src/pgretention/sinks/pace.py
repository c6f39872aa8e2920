"""How far a run is, worked out from its facts: what the progress bar says, without drawing it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from pgretention.config import format_duration
from pgretention.job import Job
from pgretention.report import (
    Backlog,
    BatchDone,
    BatchResized,
    BrakeOverridden,
    CatchingUp,
    Fact,
    Outcome,
    ReplicaBehind,
    RetryAwaited,
    RowsKept,
    RunFinished,
    RunReport,
    RunScheduled,
    RunsMissed,
    RunStarted,
    Throttled,
    WorkerLost,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a run at some moment; instants are seconds of the monotonic clock, rows are root rows.

    The run `began` when somebody started to wait for it, and has been `deleting` since it said that it started.
    """

    began: float
    deleting: float | None = None
    backlog: Backlog | None = None
    rows: int = 0
    batches: int = 0
    latest: float | None = None
    report: RunReport | None = None

    def after(self, fact: Fact, root: str, now: float) -> Seen:
        """What is known once this fact is."""
        match fact:
            case RunStarted():
                return replace(self, deleting=now, backlog=fact.backlog)
            case BatchDone():
                return replace(self, rows=self.rows + fact.deleted.get(root, 0), batches=fact.index, latest=now)
            case RunFinished(report):
                return replace(self, rows=report.deleted.get(root, 0), batches=report.batches, report=report)
            case (
                RetryAwaited()
                | BatchResized()
                | BrakeOverridden()
                | ReplicaBehind()
                | Throttled()
                | WorkerLost()
                | RowsKept()
                | RunScheduled()
                | CatchingUp()
                | RunsMissed()
            ):
                return self
        assert_never(fact)


def label(seen: Seen, job: Job, *, stopping: bool) -> str:
    """What is going on, or how it ended."""
    if seen.report is not None:
        return seen.report.outcome.value.replace("_", " ")
    if stopping:
        return "stopping after this batch"
    return "connecting" if seen.deleting is None else f"deleting {job.policy.root.name}"


def has_bar(seen: Seen) -> bool:
    """Whether a bar says anything: not of a run that is over and did no work, or outgrew its estimate."""
    if seen.report is None:
        return True
    return seen.deleting is not None and seen.report.outcome is not Outcome.SKIPPED and share(seen) is not None


def share(seen: Seen) -> float | None:
    """How much of the backlog is gone, 0 to 1; None where that cannot be told."""
    if seen.report is not None and seen.report.outcome is Outcome.COMPLETED:
        return 1.0
    if seen.backlog is None or _outgrown(seen):
        return None
    return min(1.0, seen.rows / seen.backlog.rows) if seen.backlog.rows else 1.0


def words(seen: Seen, job: Job, now: float) -> list[str]:
    """Rows deleted, backlog left, rows a second, and how much longer it takes or has taken."""
    if seen.report is not None:
        return _last_words(seen, seen.report)
    if seen.backlog is None:
        return []
    said = [f"{seen.rows:,} deleted", f"{_left(seen, seen.backlog)} left"]
    pace = _pace(seen)
    if pace is None:
        return said
    return [*said, f"{pace:,.0f}/s", _ahead(seen, job, pace, now)]


def took(duration: timedelta) -> str:
    """How long something took: `0.8 s`, and from a minute on `00:12:30`."""
    if duration < timedelta(minutes=1):
        return f"{duration.total_seconds():.1f} s"
    return format_duration(timedelta(seconds=round(duration.total_seconds())))


def _last_words(seen: Seen, report: RunReport) -> list[str]:
    if report.outcome is Outcome.SKIPPED:
        return ["another run holds the lock"]
    said = [f"{seen.rows:,} deleted"]
    if report.backlog_after is not None:
        said.append(f"{_count(report.backlog_after.rows, exact=report.backlog_after.exact)} left")
    pace = _pace(seen)
    if pace is not None:
        said.append(f"{pace:,.0f}/s")
    return [*said, f"in {took(report.duration)}"]


def _left(seen: Seen, backlog: Backlog) -> str:
    if _outgrown(seen):
        return "some"  # an estimate that turned out too low
    return _count(max(0, backlog.rows - seen.rows), exact=backlog.exact)


def _outgrown(seen: Seen) -> bool:
    return seen.backlog is not None and not seen.backlog.exact and seen.rows >= seen.backlog.rows


def _pace(seen: Seen) -> float | None:
    """Root rows a second since the run started deleting; None before there is anything to go by."""
    if seen.deleting is None or seen.latest is None or seen.latest <= seen.deleting:
        return None
    return seen.rows / (seen.latest - seen.deleting)


def _ahead(seen: Seen, job: Job, pace: float, now: float) -> str:
    """What comes first: nothing left, or one of the run's limits."""
    waited = now - (seen.latest or now)
    ahead = [(seen.began + job.limits.max_run_duration.total_seconds() - now, "time limit in {}")]
    if job.limits.max_batches is not None and seen.batches and seen.deleting is not None and seen.latest is not None:
        each = (seen.latest - seen.deleting) / seen.batches
        ahead.append(((job.limits.max_batches - seen.batches) * each - waited, "batch limit in {}"))
    if seen.backlog is not None and not _outgrown(seen) and pace > 0:
        ahead.append((max(0, seen.backlog.rows - seen.rows) / pace - waited, "{} to go"))
    seconds, phrase = min(ahead)
    return phrase.format(_clock(max(0.0, seconds)))


def _count(rows: int, *, exact: bool) -> str:
    return f"{rows:,}" if exact else f"~{rows:,}"


def _clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are some."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:").removeprefix("0")
