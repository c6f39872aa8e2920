"""A job: a named policy with the limits and the schedule of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import ceil

from pgretention.errors import PolicyError
from pgretention.policy import Policy
from pgretention.schedule import Schedule

LARGEST_BATCH = 50_000
"""Root rows; a larger batch holds its locks too long to be called small (A-07)."""

MOST_WORKERS = 32
"""Connections; whoever can use more of them would rather run on a second host."""

LONGEST_WAIT = timedelta(seconds=30)
"""Between two attempts, before luck has its say."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a run ends although rows are left, and how much one transaction takes (A-11, F-04).

    `batch_size` counts root rows, 1 to 50 000. `max_batches` None means no limit on the number of batches. `workers`
    is how many connections delete at once, 1 to 32; the other limits are for all of them together.
    """

    batch_size: int
    max_run_duration: timedelta
    max_batches: int | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= LARGEST_BATCH:
            raise PolicyError(f"batch size must lie between 1 and {LARGEST_BATCH}")
        if self.max_batches is not None and self.max_batches < 1:
            raise PolicyError("the number of batches of a run must be at least 1")
        if not 1 <= self.workers <= MOST_WORKERS:
            raise PolicyError(f"the number of workers must lie between 1 and {MOST_WORKERS}")
        if self.max_run_duration <= timedelta(0):
            raise PolicyError("the duration of a run must be above zero")

    def batches_for(self, rows: int) -> int:
        """How many batches so many root rows take."""
        return ceil(rows / self.batch_size)

    def runs_for(self, batches: int) -> int:
        """How many runs so many batches take, as far as the limit on batches goes."""
        return ceil(batches / (self.max_batches or max(1, batches)))


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a run tries again what failed for a passing reason, and after how long (A-16, design section 8).

    Counted anew after every batch that succeeds. The wait begins at `first_wait`, triples each time, and is drawn from
    half of that to one and a half, so that replicas which failed together do not come back together.
    """

    times: int = 0
    first_wait: timedelta = timedelta(seconds=1)

    def wait(self, attempt: int, luck: float) -> timedelta:
        """How long to wait before attempt `attempt`, from 1; `luck` lies between 0 and 1."""
        tripled: timedelta = self.first_wait * 3 ** (attempt - 1)
        return min(tripled, LONGEST_WAIT) * (0.5 + luck)


@dataclass(frozen=True, slots=True)
class Pace:
    """How much a run holds back for others; with the defaults not at all.

    `pause` lies between two batches. A run waits while a replica has not replayed what is older than `replica_lag`, and
    until what its batches wrote is below `wal_rate` bytes a second on average. Batches are made smaller until they
    take no longer than `batch_duration`.
    """

    pause: timedelta = timedelta(0)
    replica_lag: timedelta | None = None
    wal_rate: int | None = None
    batch_duration: timedelta | None = None


class Brake(StrEnum):
    """What keeps a run from beginning although the database would let it delete."""

    CLOCKS_APART = "clocks-apart"
    CUTOFF_JUMP = "cutoff-jump"
    EXPIRED_ROWS = "max-expired-rows"
    EXPIRED_SHARE = "max-expired-share"
    RETENTION = "minimum-retention"


@dataclass(frozen=True, slots=True)
class Safety:
    """When a run is refused although nothing is wrong with the database; see `brakes`.

    `expired_rows` and `expired_share`, 0 to 1, bound how many root rows may be expired when a run begins, `retention`
    how short the policy's may be; None leaves a brake off. Those in `overridden` are told and not held.
    """

    expired_rows: int | None = None
    expired_share: float | None = None
    retention: timedelta | None = None
    overridden: frozenset[Brake] = frozenset()


@dataclass(frozen=True, slots=True)
class Job:
    """What the command line and the worker run: `name` is the policy's.

    `promise` is how long after it expired a row is gone at the latest, as long as nothing is wrong.
    """

    policy: Policy
    limits: Limits
    schedule: Schedule
    retries: Retries = Retries()
    pace: Pace = Pace()
    safety: Safety = Safety()
    enabled: bool = True
    promise: timedelta = timedelta(days=1)

    @property
    def name(self) -> str:
        return self.policy.name
