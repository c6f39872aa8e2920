"""What is remembered of a run: plain values that follow its facts, of bounded size, and the same as JSON.

Nothing of a row is in here but what a report has too: keys of rows that could not be deleted, and few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from pgretention.errors import FaultKind
from pgretention.report import (
    Backlog,
    BatchDone,
    BatchResized,
    BrakeOverridden,
    Limit,
    Outcome,
    ReplicaBehind,
    RetryAwaited,
    RowsKept,
    RunError,
    RunFact,
    RunFinished,
    RunReport,
    RunStarted,
    Throttled,
    WorkerLost,
)

STRETCHES: Final = 512
"""Points of a run's timeline; of a run with more batches several in a row are one point."""

NOTES: Final = 100
"""Things a run met on its way that are remembered, beside its batches."""

WORDS: Final = 2000
"""Letters of an error or a note that are remembered."""

KEYS: Final = 20
"""Rows that could not be deleted whose keys are remembered; the log has more."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """`count` batches in a row, from number `first` on: one, unless there were too many to keep each.

    `at` is when the last of them was committed, in seconds since the run began; `seconds` is how long they took
    together and `longest` the longest of them. `rows` has a count per table, in delete order.
    """

    first: int
    count: int
    at: float
    seconds: float
    longest: float
    rows: tuple[int, ...]

    def with_next(self, other: Stretch) -> Stretch:
        """This stretch and the one that follows it as one."""
        return Stretch(
            self.first,
            self.count + other.count,
            other.at,
            self.seconds + other.seconds,
            max(self.longest, other.longest),
            tuple(mine + theirs for mine, theirs in zip(self.rows, other.rows, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Note:
    """Something a run met on its way; `at` in seconds since it began, after `batch` batches."""

    at: float
    batch: int
    text: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run, finished or not: `ended` and `outcome` are None while it is on.

    Instants are UTC. `deleted` has a count of committed rows per table, in delete order; `throttled` the seconds that
    its connections waited, by reason. `stretches` and `notes` are empty in a run so long ago that only its totals are
    kept, and `detailed` is False then.
    """

    job: str
    run_id: str
    began: datetime
    ended: datetime | None = None
    outcome: Outcome | None = None
    cutoff: datetime | None = None
    batch_size: int | None = None
    backlog_before: Backlog | None = None
    backlog_after: Backlog | None = None
    deleted: Mapping[str, int] = field(default_factory=dict)
    batches: int = 0
    limit: Limit | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    error: RunError | None = None
    holders: str | None = None
    stretches: tuple[Stretch, ...] = ()
    notes: tuple[Note, ...] = ()
    detailed: bool = True

    @classmethod
    def beginning(cls, fact: RunFact, now: datetime) -> RunRecord:
        """The record of a run of which this is the first fact."""
        if isinstance(fact, RunFinished):
            return cls(fact.report.job, fact.report.run_id, now - fact.report.duration)
        return cls(fact.job, fact.run_id, now)

    @property
    def rows(self) -> int:
        """Deleted rows of all tables."""
        return sum(self.deleted.values())

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it is on."""
        return None if self.ended is None else (self.ended - self.began).total_seconds()

    def after(self, fact: RunFact, now: datetime) -> RunRecord:
        """What is known once this fact is."""
        match fact:
            case RunStarted():
                return replace(self, cutoff=fact.cutoff, batch_size=fact.batch_size, backlog_before=fact.backlog)
            case BatchDone():
                return self._with_batch(fact, now)
            case Throttled():
                waited = self.throttled.get(fact.reason, 0.0) + fact.wait.total_seconds()
                return replace(self, throttled={**self.throttled, fact.reason.value: waited})
            case BatchResized():
                return replace(self._noted(_words(fact), now), batch_size=fact.batch_size)
            case RetryAwaited() | BrakeOverridden() | ReplicaBehind() | WorkerLost() | RowsKept():
                return self._noted(_words(fact), now)
            case RunFinished(report):
                return self._finished(report, now)
        assert_never(fact)

    def in_short(self) -> RunRecord:
        """Its totals alone."""
        return replace(self, stretches=(), notes=(), detailed=not (self.stretches or self.notes) and self.detailed)

    def _with_batch(self, fact: BatchDone, now: datetime) -> RunRecord:
        seconds = fact.duration.total_seconds()
        rows = tuple(fact.deleted.values())
        batch = Stretch(fact.index, 1, (now - self.began).total_seconds(), seconds, seconds, rows)
        deleted = {table: self.deleted.get(table, 0) + count for table, count in fact.deleted.items()}
        return replace(self, batches=fact.index, deleted=deleted, stretches=_joined(self.stretches, batch))

    def _noted(self, text: str, now: datetime) -> RunRecord:
        if len(self.notes) >= NOTES:
            return self
        return replace(self, notes=(*self.notes, Note((now - self.began).total_seconds(), self.batches, text[:WORDS])))

    def _finished(self, report: RunReport, now: datetime) -> RunRecord:
        error = report.error
        began = now - report.duration
        earlier = (self.began - began).total_seconds()
        return replace(
            self,
            began=began,
            stretches=tuple(replace(each, at=each.at + earlier) for each in self.stretches),
            notes=tuple(replace(note, at=note.at + earlier) for note in self.notes),
            ended=now,
            outcome=report.outcome,
            cutoff=report.cutoff,
            backlog_before=report.backlog_before,
            backlog_after=report.backlog_after,
            deleted=dict(report.deleted),
            batches=report.batches,
            limit=report.limit,
            throttled={reason: wait.total_seconds() for reason, wait in report.throttled.items()},
            error=None if error is None else replace(error, keys=error.keys[:KEYS], message=error.message[:WORDS]),
            holders=report.holders,
        )

    def as_json(self) -> dict[str, Any]:
        """Ready for `json.dumps`: instants in ISO 8601, lengths of time in seconds."""
        return {
            "run_id": self.run_id,
            "job": self.job,
            "began": self.began.isoformat(),
            "ended": None if self.ended is None else self.ended.isoformat(),
            "outcome": self.outcome,
            "cutoff": None if self.cutoff is None else self.cutoff.isoformat(),
            "batch_size": self.batch_size,
            "backlog_before": backlog_as_json(self.backlog_before),
            "backlog_after": backlog_as_json(self.backlog_after),
            "deleted": dict(self.deleted),
            "batches": self.batches,
            "limit": self.limit,
            "throttled": dict(self.throttled),
            "error": None if self.error is None else {**asdict(self.error), "keys": list(self.error.keys)},
            "holders": self.holders,
            "timeline": [{**asdict(stretch), "rows": list(stretch.rows)} for stretch in self.stretches],
            "notes": [asdict(note) for note in self.notes],
            "detailed": self.detailed,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> RunRecord:
        """What `as_json` said. Raises KeyError, TypeError or ValueError for anything else."""
        error, limit, ended, cutoff = said["error"], said["limit"], said["ended"], said["cutoff"]
        return cls(
            job=said["job"],
            run_id=said["run_id"],
            began=_instant(said["began"]),
            ended=None if ended is None else _instant(ended),
            outcome=None if said["outcome"] is None else Outcome(said["outcome"]),
            cutoff=None if cutoff is None else _instant(cutoff),
            batch_size=said["batch_size"],
            backlog_before=_backlog_from_json(said["backlog_before"]),
            backlog_after=_backlog_from_json(said["backlog_after"]),
            deleted={str(table): int(rows) for table, rows in said["deleted"].items()},
            batches=int(said["batches"]),
            limit=None if limit is None else Limit(limit),
            throttled={str(reason): float(seconds) for reason, seconds in said["throttled"].items()},
            error=None if error is None else _error_from_json(error),
            holders=said["holders"],
            stretches=tuple(_stretch_from_json(each) for each in said["timeline"]),
            notes=tuple(Note(**each) for each in said["notes"]),
            detailed=bool(said["detailed"]),
        )


def backlog_as_json(backlog: Backlog | None) -> dict[str, Any] | None:
    """Expired root rows, whether they were counted, and how many seconds back the oldest expiry lies."""
    if backlog is None:
        return None
    age = None if backlog.oldest_age is None else backlog.oldest_age.total_seconds()
    return {"rows": backlog.rows, "exact": backlog.exact, "oldest_age_seconds": age}


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("an instant without a zone")
    return instant


def _error_from_json(said: Mapping[str, Any]) -> RunError:
    return RunError(
        kind=FaultKind(said["kind"]),
        message=said["message"],
        sqlstate=said["sqlstate"],
        constraint=said["constraint"],
        keys=tuple(said["keys"]),
        batch=said["batch"],
    )


def _stretch_from_json(said: Mapping[str, Any]) -> Stretch:
    counts = said["first"], said["count"]
    return Stretch(*counts, said["at"], said["seconds"], said["longest"], tuple(said["rows"]))


def _backlog_from_json(said: Mapping[str, Any] | None) -> Backlog | None:
    if said is None:
        return None
    age = said["oldest_age_seconds"]
    return Backlog(int(said["rows"]), bool(said["exact"]), None if age is None else timedelta(seconds=age))


def _joined(stretches: tuple[Stretch, ...], batch: Stretch) -> tuple[Stretch, ...]:
    """The timeline with one batch more; where it is full, every two neighbours become one first."""
    if len(stretches) >= STRETCHES and stretches[-1].count == stretches[0].count:
        pairs = zip(stretches[::2], stretches[1::2], strict=True)
        stretches = tuple(one.with_next(other) for one, other in pairs)
    if stretches and stretches[-1].count < stretches[0].count:
        return (*stretches[:-1], stretches[-1].with_next(batch))
    return (*stretches, batch)


def _words(fact: BatchResized | RetryAwaited | BrakeOverridden | ReplicaBehind | WorkerLost | RowsKept) -> str:
    match fact:
        case BatchResized(batch_size=size, reason=None):
            return f"from here on {size:,} rows a batch again"
        case BatchResized(batch_size=size, reason=reason):
            return f"from here on {size:,} rows a batch, because of {_spaced(str(reason))}"
        case RetryAwaited(error=error, attempt=attempt, wait=wait):
            return f"try {attempt} failed, the next one comes after {wait.total_seconds():.1f} s: {error.message}"
        case BrakeOverridden(brake=brake, why=why):
            return f"the brake {brake} was overridden: {why}"
        case ReplicaBehind(replica=replica, lag=None):
            return f"waits for the replica {replica}, which does not catch up"
        case ReplicaBehind(replica=replica, lag=timedelta() as lag):
            return f"waits for the replica {replica}, which is {lag.total_seconds():.0f} s behind"
        case WorkerLost(error=error):
            return f"a connection is gone for good, the others go on: {error.message}"
        case RowsKept(rows=rows, error=error):
            return f"{rows:,} row{'' if rows == 1 else 's'} left where they are: {error.message}"
    raise AssertionError(fact)


def _spaced(name: str) -> str:
    return name.replace("_", " ")
