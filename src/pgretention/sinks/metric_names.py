"""What the metrics are called (A-22, F-15, design section 6): the family of every job, and each job's own.

A job that is not in the table has the common family only, so a new job needs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pgretention.jobs import activity_retention, guest_favorites_cleanup
from pgretention.sinks.measures import Measure


class Kind(StrEnum):
    """What a metric does with what is measured: adds it up, shows the latest, or sorts it into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, the measure that moves it, and its help text, which says meaning and unit.

    `only` is the one part of the measure that a job's own metric shows; without it that is all of them.
    """

    name: str
    kind: Kind
    measure: Measure
    about: str
    buckets: tuple[float, ...] = ()
    only: str | None = None


_RUN_BUCKETS: Final = (1, 5, 15, 30, 60, 120, 300, 540, 600, 900, 1200, 1500, 1620, 1800, 3600)
"""Seconds; 540 and 1620 are nine tenths of the jobs' default MaxRunDuration, where an alert asks for more time."""

_BATCH_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Seconds; a statement of a batch is given a minute at most."""

COMMON: Final = (
    Metric(
        "pgretention_runs_total",
        Kind.COUNTER,
        Measure.RUNS,
        "Runs that ended, by outcome.",
    ),
    Metric(
        "pgretention_run_duration_seconds",
        Kind.HISTOGRAM,
        Measure.RUN_SECONDS,
        "Duration of runs in seconds, without those that were skipped or refused.",
        _RUN_BUCKETS,
    ),
    Metric(
        "pgretention_errors_total",
        Kind.COUNTER,
        Measure.ERRORS,
        "Runs that failed, were refused or had to leave rows out, by kind of error.",
    ),
    Metric(
        "pgretention_missed_runs_total",
        Kind.COUNTER,
        Measure.MISSED,
        "Runs that were due and did not take place, by reason: too late, or the last one was still on.",
    ),
    Metric(
        "pgretention_deleted_rows_total",
        Kind.COUNTER,
        Measure.DELETED,
        "Rows whose deletion is committed, by table.",
    ),
    Metric(
        "pgretention_rows_kept_total",
        Kind.COUNTER,
        Measure.KEPT,
        "Expired root rows that the database would not delete, counted anew by each run that tried.",
    ),
    Metric(
        "pgretention_batch_duration_seconds",
        Kind.HISTOGRAM,
        Measure.BATCH_SECONDS,
        "Duration of committed batches in seconds, one transaction each.",
        _BATCH_BUCKETS,
    ),
    Metric(
        "pgretention_batch_size",
        Kind.GAUGE,
        Measure.BATCH_SIZE,
        "Root rows that a batch takes at most, as the latest run has it; 0 before the first.",
    ),
    Metric(
        "pgretention_retries_total",
        Kind.COUNTER,
        Measure.RETRIES,
        "Attempts that ended in a passing error and were followed by another one, by kind of error.",
    ),
    Metric(
        "pgretention_lost_workers_total",
        Kind.COUNTER,
        Measure.WORKERS_LOST,
        "Parallel connections of runs that were lost while the run went on without them.",
    ),
    Metric(
        "pgretention_throttled_seconds_total",
        Kind.COUNTER,
        Measure.THROTTLED,
        "Seconds that runs set out to wait between transactions, by reason.",
    ),
    Metric(
        "pgretention_backlog_rows",
        Kind.GAUGE,
        Measure.BACKLOG,
        "Expired root rows as last counted, or estimated where counting takes too long: at start and end of a run.",
    ),
    Metric(
        "pgretention_oldest_expired_age_seconds",
        Kind.GAUGE,
        Measure.OLDEST_AGE,
        "How far back the oldest expiry lies, in seconds, as last seen; 0 when nothing is expired.",
    ),
    Metric(
        "pgretention_drain_eta_seconds",
        Kind.GAUGE,
        Measure.DRAIN_ETA,
        "Seconds until nothing expired is left if all goes on as between the ends of the last two runs; "
        "+Inf when the backlog does not fall, NaN when a first run left rows.",
    ),
    Metric(
        "pgretention_last_success_timestamp_seconds",
        Kind.GAUGE,
        Measure.LAST_SUCCESS,
        "Unix time at which a run last ended as completed or limit_reached; 0 before the first.",
    ),
    Metric(
        "pgretention_next_run_timestamp_seconds",
        Kind.GAUGE,
        Measure.NEXT_RUN,
        "Unix time at which the next run is due.",
    ),
)
"""Of every job alike, with the label `job`."""

_ACTIVITY: Final = (
    Metric(
        "activity_retention_run_duration_seconds",
        Kind.HISTOGRAM,
        Measure.RUN_SECONDS,
        "Duration of runs in seconds, without those that were skipped or refused.",
        _RUN_BUCKETS,
    ),
    Metric(
        "activity_retention_deleted_sessions_total",
        Kind.COUNTER,
        Measure.DELETED,
        "Sessions whose deletion is committed.",
        only="user_activity.sessions",
    ),
    Metric(
        "activity_retention_deleted_property_object_views_total",
        Kind.COUNTER,
        Measure.DELETED,
        "Views of property objects whose deletion is committed.",
        only="user_activity.property_object_views",
    ),
    Metric(
        "activity_retention_deleted_action_events_total",
        Kind.COUNTER,
        Measure.DELETED,
        "Action events whose deletion is committed.",
        only="user_activity.action_events",
    ),
    Metric(
        "activity_retention_batches_processed_total",
        Kind.COUNTER,
        Measure.BATCHES,
        "Batches that are committed.",
    ),
    Metric(
        "activity_retention_eligible_backlog",
        Kind.GAUGE,
        Measure.BACKLOG_BEFORE,
        "Expired sessions at the start of the latest run, estimated where counting takes too long.",
    ),
    Metric(
        "activity_retention_lock_contention_total",
        Kind.COUNTER,
        Measure.RUNS,
        "Runs that were skipped because another one held the lock.",
        only="skipped",
    ),
)

_GUEST: Final = (
    Metric(
        "favorites_guest_cleanup_deleted_total",
        Kind.COUNTER,
        Measure.DELETED,
        "Favorites of guests whose deletion is committed.",
        only="favorites.favorites",
    ),
    Metric(
        "favorites_guest_cleanup_run_duration_ms",
        Kind.HISTOGRAM,
        Measure.RUN_MILLISECONDS,
        "Duration of runs in milliseconds, without those that were skipped or refused.",
        tuple(1000 * seconds for seconds in _RUN_BUCKETS),
    ),
    Metric(
        "favorites_guest_cleanup_batches_total",
        Kind.COUNTER,
        Measure.BATCHES,
        "Batches that are committed.",
    ),
    Metric(
        "favorites_guest_cleanup_errors_total",
        Kind.COUNTER,
        Measure.ERRORS,
        "Runs that failed, were refused or had to leave rows out.",
    ),
    Metric(
        "favorites_guest_cleanup_backlog",
        Kind.GAUGE,
        Measure.BACKLOG_AFTER,
        "Expired favorites of guests after the latest run, estimated where counting takes too long.",
    ),
)

OWN: Final[Mapping[str, tuple[Metric, ...]]] = {
    activity_retention.NAME: _ACTIVITY,
    guest_favorites_cleanup.NAME: _GUEST,
}
"""By job: the names that its specification gives to what it measures; without labels."""
