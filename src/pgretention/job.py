"""A job: a named policy with the limits and the schedule of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pgretention.errors import PolicyError
from pgretention.policy import Policy
from pgretention.schedule import Schedule

LARGEST_BATCH = 50_000
"""Root rows; a larger batch holds its locks too long to be called small (A-07)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a run ends although rows are left, and how much one transaction takes (A-11, F-04).

    `batch_size` counts root rows, 1 to 50 000. `max_batches` None means no limit on the number of batches.
    """

    batch_size: int
    max_run_duration: timedelta
    max_batches: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= LARGEST_BATCH:
            raise PolicyError(f"batch size must lie between 1 and {LARGEST_BATCH}")
        if self.max_batches is not None and self.max_batches < 1:
            raise PolicyError("the number of batches of a run must be at least 1")
        if self.max_run_duration <= timedelta(0):
            raise PolicyError("the duration of a run must be above zero")


@dataclass(frozen=True, slots=True)
class Job:
    """What the command line and the worker run: `name` is the policy's."""

    policy: Policy
    limits: Limits
    schedule: Schedule
    enabled: bool = True

    @property
    def name(self) -> str:
        return self.policy.name
