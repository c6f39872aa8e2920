from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pgretention.app import default
from pgretention.config import load
from pgretention.errors import FaultKind
from pgretention.job import Job
from pgretention.report import (
    Backlog,
    BatchResized,
    Fact,
    MissReason,
    Outcome,
    RetryAwaited,
    RowsKept,
    RunError,
    RunFinished,
    RunScheduled,
    RunsMissed,
)
from pgretention.sinks import measures
from pgretention.sinks.measures import Left, drain_eta
from pgretention.sinks.metric_names import COMMON, OWN, Kind
from pgretention.sinks.metrics import Metrics
from tests.support.facts import (
    ABOUT,
    ACTIVITY,
    DRAINED,
    FOREIGN_KEY,
    GUEST,
    JOBS,
    NOW,
    RUN,
    SOME_LEFT,
    THIRD,
    StandingClock,
    batch,
    finished,
    started,
    stories,
)
from tests.support.scrapes import scraped, told

EACH_JOB = pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
EACH_STORY = pytest.mark.parametrize("story", stories(JOBS[0]))

OF_ACTIVITY = {
    "activity_retention_run_duration_seconds": "histogram",
    "activity_retention_deleted_sessions_total": "counter",
    "activity_retention_deleted_property_object_views_total": "counter",
    "activity_retention_deleted_action_events_total": "counter",
    "activity_retention_batches_processed_total": "counter",
    "activity_retention_eligible_backlog": "gauge",
    "activity_retention_lock_contention_total": "counter",
}
OF_GUESTS = {
    "favorites_guest_cleanup_deleted_total": "counter",
    "favorites_guest_cleanup_run_duration_ms": "histogram",
    "favorites_guest_cleanup_batches_total": "counter",
    "favorites_guest_cleanup_errors_total": "counter",
    "favorites_guest_cleanup_backlog": "gauge",
}
OF_EVERY_JOB = {
    "pgretention_runs_total": "counter",
    "pgretention_deleted_rows_total": "counter",
    "pgretention_batch_duration_seconds": "histogram",
    "pgretention_backlog_rows": "gauge",
    "pgretention_oldest_expired_age_seconds": "gauge",
    "pgretention_last_success_timestamp_seconds": "gauge",
    "pgretention_next_run_timestamp_seconds": "gauge",
    "pgretention_errors_total": "counter",
    "pgretention_throttled_seconds_total": "counter",
    "pgretention_drain_eta_seconds": "gauge",
}
"""The names of the contract, typed out of it."""

FURTHER = {
    "pgretention_run_duration_seconds": "histogram",
    "pgretention_missed_runs_total": "counter",
    "pgretention_rows_kept_total": "counter",
    "pgretention_retries_total": "counter",
    "pgretention_lost_workers_total": "counter",
    "pgretention_batch_size": "gauge",
}


def after(facts: list[Fact], *jobs: Job) -> Callable[[str], float]:
    """The value of a series by its name, and labels besides the job after a colon."""
    values = told(facts, *jobs, clock=StandingClock())

    def value(name: str) -> float:
        name, _, label = name.partition(":")
        if not name.startswith("pgretention_"):
            return values[name]
        return values[f'{name}{{job="{jobs[0].name}"{"," if label else ""}{label}}}']

    return value


def types(exposition: str) -> dict[str, str]:
    found = [line.split()[2:] for line in exposition.splitlines() if line.startswith("# TYPE ")]
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.req("A-22", "F-15")
def test_every_name_of_the_contract_is_there_with_its_type_and_no_other_is_unaccounted_for() -> None:
    content, _ = Metrics((ACTIVITY, GUEST), StandingClock()).exposition("")
    assert types(content.decode()) == OF_ACTIVITY | OF_GUESTS | OF_EVERY_JOB | FURTHER


@pytest.mark.req("A-22", "F-15")
def test_every_series_is_there_at_zero_before_anything_happens() -> None:
    values = told([], *JOBS, clock=StandingClock())
    assert set(values.values()) == {0}
    for name in OF_ACTIVITY | OF_GUESTS:
        assert {name, f"{name}_count"} & values.keys(), name
    for job in JOBS:
        for name in OF_EVERY_JOB | FURTHER:
            assert [series for series in values if series.startswith(name) and f'job="{job.name}"' in series], name


@EACH_JOB
@EACH_STORY
def test_no_fact_makes_a_series_that_was_not_there_before(job: Job, story: str) -> None:
    before = told([], *JOBS, clock=StandingClock())
    strangers = stories(replace(job, policy=replace(job.policy, name="somebody-else's")))[story]
    assert told(stories(job)[story], *JOBS, clock=StandingClock()).keys() == before.keys()
    assert told(strangers, *JOBS, clock=StandingClock()) == before


@EACH_JOB
@EACH_STORY
def test_what_one_job_does_moves_nothing_of_another(job: Job, story: str) -> None:
    values = told(stories(job)[story], *JOBS, clock=StandingClock())
    own = [metric.name for metric in OWN.get(job.name, ())]
    moved = [series for series, value in values.items() if value]
    assert [series for series in moved if f'job="{job.name}"' not in series and not series.startswith(tuple(own))] == []


@EACH_JOB
def test_a_job_has_its_own_names_only_where_it_runs(job: Job) -> None:
    content, _ = Metrics([job], StandingClock()).exposition("")
    own: dict[str, dict[str, str]] = {ACTIVITY.name: OF_ACTIVITY, GUEST.name: OF_GUESTS}
    assert types(content.decode()) == own.get(job.name, {}) | OF_EVERY_JOB | FURTHER


@pytest.mark.req("A-22", "F-15")
@EACH_JOB
@EACH_STORY
def test_rows_and_batches_are_those_of_the_committed_batches_and_runs_those_that_ended(job: Job, story: str) -> None:
    facts = stories(job)[story]
    value = after(facts, job)
    report = facts[-1].report if isinstance(facts[-1], RunFinished) else None
    assert report is not None
    assert {t: value(f'pgretention_deleted_rows_total:table="{t}"') for t in report.deleted} == report.deleted
    assert value("pgretention_batch_duration_seconds_count") == report.batches
    assert value("pgretention_batch_duration_seconds_sum") == 0.25 * report.batches
    runs = {outcome: value(f'pgretention_runs_total:outcome="{outcome.value}"') for outcome in Outcome}
    assert runs == {outcome: outcome is report.outcome for outcome in Outcome}
    errors = {kind: value(f'pgretention_errors_total:kind="{kind.value}"') for kind in FaultKind}
    assert errors == {kind: report.error is not None and kind is report.error.kind for kind in FaultKind}


@EACH_JOB
def test_nothing_is_counted_before_a_batch_is_committed_nor_again_at_the_end(job: Job) -> None:
    metrics, table = Metrics([job], StandingClock()), str(job.policy.root)
    seen = []
    for fact in (started(job), batch(job), batch(job, 2, 1000), finished(job, rows=6000, batches=2, left=DRAINED)):
        metrics(fact)
        seen.append(scraped(metrics)[f'pgretention_deleted_rows_total{{job="{job.name}",table="{table}"}}'])
    assert seen == [0, 5000, 6000, 6000]


@pytest.mark.req("A-22")
def test_activity_retention_counts_by_its_own_names() -> None:
    value = after([*stories(ACTIVITY)["limit reached"], *stories(ACTIVITY)["skipped"]], ACTIVITY)
    assert value("activity_retention_deleted_sessions_total") == 6000
    assert value("activity_retention_deleted_property_object_views_total") == 12_000
    assert value("activity_retention_deleted_action_events_total") == 18_000
    assert value("activity_retention_batches_processed_total") == 2
    assert value("activity_retention_eligible_backlog") == 10_000, "at the start of the run, not at its end"
    assert value("activity_retention_lock_contention_total") == 1
    assert value("activity_retention_run_duration_seconds_count") == 1
    assert value("activity_retention_run_duration_seconds_sum") == 12.345678


@pytest.mark.req("F-15")
def test_guest_favorites_cleanup_counts_by_its_own_names() -> None:
    value = after([*stories(GUEST)["failed"], *stories(GUEST)["limit reached"], *stories(GUEST)["refused"]], GUEST)
    assert value("favorites_guest_cleanup_deleted_total") == 12_000
    assert value("favorites_guest_cleanup_batches_total") == 4
    assert value("favorites_guest_cleanup_errors_total") == 2
    assert value("favorites_guest_cleanup_backlog") == 4000, "after the run"
    assert value("favorites_guest_cleanup_run_duration_ms_count") == 2
    assert value("favorites_guest_cleanup_run_duration_ms_sum") == pytest.approx(2 * 12_345.678)


@pytest.mark.req("F-15")
def test_the_backlog_after_a_run_stays_what_it_was_when_a_run_could_not_measure_it() -> None:
    value = after([*stories(GUEST)["limit reached"], *stories(GUEST)["unreachable"]], GUEST)
    assert value("favorites_guest_cleanup_backlog") == value("pgretention_backlog_rows") == 4000


@EACH_JOB
@pytest.mark.parametrize("story", ["skipped", "skipped behind a pooler", "refused"])
def test_a_run_that_did_not_take_place_has_no_duration(job: Job, story: str) -> None:
    assert after(stories(job)[story], job)("pgretention_run_duration_seconds_count") == 0


@EACH_JOB
def test_the_backlog_is_what_was_last_counted_or_estimated(job: Job) -> None:
    for fact, rows in ((started(job), 10_000), (finished(job, left=ABOUT), 4000), (finished(job, left=DRAINED), 0)):
        assert after([started(job, 7), fact], job)("pgretention_backlog_rows") == rows


def test_the_oldest_age_is_zero_when_nothing_is_expired_and_stays_where_nobody_could_look() -> None:
    days = timedelta(days=1).total_seconds()
    for left, age in ((SOME_LEFT, 380 * days), (ABOUT, 400 * days), (DRAINED, 0)):
        value = after([started(THIRD), finished(THIRD, left=left)], THIRD)
        assert value("pgretention_oldest_expired_age_seconds") == age


@pytest.mark.parametrize("outcome", Outcome)
def test_only_a_run_that_drained_or_reached_a_limit_is_a_success(outcome: Outcome) -> None:
    error = FOREIGN_KEY if outcome in {Outcome.FAILED, Outcome.PARTIAL, Outcome.REFUSED} else None
    value = after([finished(ACTIVITY, outcome, error=error)], ACTIVITY)
    good = outcome in {Outcome.COMPLETED, Outcome.LIMIT_REACHED}
    assert value("pgretention_last_success_timestamp_seconds") == (NOW.timestamp() if good else 0)


def test_a_failure_does_not_move_the_last_success() -> None:
    clock = StandingClock()
    metrics = Metrics([ACTIVITY], clock)
    metrics(finished(ACTIVITY, left=DRAINED))
    clock.at += timedelta(days=1)
    metrics(finished(ACTIVITY, Outcome.FAILED, error=FOREIGN_KEY))
    last = scraped(metrics)['pgretention_last_success_timestamp_seconds{job="activity-retention"}']
    assert last == NOW.timestamp()


def test_what_a_run_does_about_trouble_is_counted() -> None:
    deadlock = RunError(FaultKind.DEADLOCK, "the server broke a deadlock by giving up this transaction")
    value = after(
        [
            started(ACTIVITY),
            RetryAwaited(ACTIVITY.name, RUN, deadlock, attempt=1, wait=timedelta(seconds=0.5)),
            RetryAwaited(ACTIVITY.name, RUN, deadlock, attempt=2, wait=timedelta(seconds=3)),
            RowsKept(ACTIVITY.name, RUN, 2, FOREIGN_KEY),
            RowsKept(ACTIVITY.name, RUN, 5000, FOREIGN_KEY),
        ],
        ACTIVITY,
    )
    assert value('pgretention_retries_total:kind="deadlock"') == 2
    assert value('pgretention_throttled_seconds_total:reason="backoff"') == 3.5
    assert value("pgretention_rows_kept_total") == 5002
    assert value('pgretention_errors_total:kind="deadlock"') == 0, "the run has not failed"


def test_the_size_of_a_batch_is_that_of_the_latest_run() -> None:
    smaller = BatchResized(ACTIVITY.name, RUN, 2500, FaultKind.STATEMENT_TIMEOUT)
    for facts, size in (
        ([started(ACTIVITY)], 5000),
        ([started(ACTIVITY), smaller], 2500),
        ([started(ACTIVITY), smaller, finished(ACTIVITY)], 2500),
        ([started(ACTIVITY), smaller, finished(ACTIVITY), started(ACTIVITY)], 5000),
    ):
        assert after([*facts], ACTIVITY)("pgretention_batch_size") == size


def test_the_next_run_and_those_that_were_missed_are_told() -> None:
    due = datetime(2026, 3, 2, 3, 0, tzinfo=UTC)
    value = after(
        [
            RunsMissed(GUEST.name, 3, NOW, MissReason.LATE),
            RunsMissed(GUEST.name, 1, NOW, MissReason.OVERLAP),
            RunsMissed(GUEST.name, 1, NOW, MissReason.OVERLAP),
            RunScheduled(GUEST.name, due, "UTC"),
        ],
        GUEST,
    )
    assert value('pgretention_missed_runs_total:reason="late"') == 3
    assert value('pgretention_missed_runs_total:reason="overlap"') == 2
    assert value("pgretention_next_run_timestamp_seconds") == due.timestamp()


@pytest.mark.parametrize(
    ("before", "now", "eta"),
    [
        (None, Left(0, 100), 0),
        (Left(0, 0), Left(0, 100), 0),
        (None, Left(500, 100), math.nan),
        (Left(600, 0), Left(500, 100), 500),
        (Left(1500, 0), Left(500, 100), 50),
        (Left(500, 0), Left(500, 100), math.inf),
        (Left(400, 0), Left(500, 100), math.inf),
        (Left(600, 100), Left(500, 100), math.nan),
    ],
)
def test_the_time_to_drain_is_what_is_left_over_the_net_of_two_runs(before: Left | None, now: Left, eta: float) -> None:
    assert drain_eta(before, now) == pytest.approx(eta, nan_ok=True)


def test_the_time_to_drain_goes_by_the_last_two_runs_that_measured_what_they_left() -> None:
    clock = StandingClock()
    metrics = Metrics([ACTIVITY, GUEST], clock)
    seen = []
    for job, left in ((ACTIVITY, 6000), (GUEST, 10), (ACTIVITY, None), (ACTIVITY, 4000), (ACTIVITY, 5000)):
        clock.wait(1000)
        metrics(finished(job, left=None if left is None else Backlog(left, exact=True, oldest_age=None)))
        seen.append(scraped(metrics)['pgretention_drain_eta_seconds{job="activity-retention"}'])
    assert seen == pytest.approx([math.nan, math.nan, math.nan, 6000, math.inf], nan_ok=True)


def test_the_bounds_of_the_histograms_have_the_default_limits_among_them() -> None:
    settings = load(None, {}, ())
    buckets = {metric.name: metric.buckets for metric in (*COMMON, *OWN[ACTIVITY.name], *OWN[GUEST.name])}
    activity = settings.activity_retention.max_run_duration.total_seconds()
    guests = settings.guest_favorites.max_run_duration.total_seconds()
    for limit in activity, guests:
        assert {limit, 0.9 * limit} <= set(buckets["pgretention_run_duration_seconds"])
        assert {limit, 0.9 * limit} <= set(buckets["activity_retention_run_duration_seconds"])
        assert {1000 * limit, 900 * limit} <= set(buckets["favorites_guest_cleanup_run_duration_ms"])


def test_every_job_that_has_names_of_its_own_is_a_job_and_its_tables_are_the_policy_s() -> None:
    for name, metrics in OWN.items():
        for metric in metrics:
            assert metric.only is None or metric.only in measures.parts(metric.measure, default(name).job)


def test_every_metric_says_what_it_means_and_a_duration_its_unit() -> None:
    for metric in (*COMMON, *OWN[ACTIVITY.name], *OWN[GUEST.name]):
        assert metric.about.endswith(".")
        assert (metric.kind is Kind.COUNTER) is metric.name.endswith("_total")
        assert "milliseconds" in metric.about or not metric.name.endswith("_ms")
        assert "econds" in metric.about or "Unix time" in metric.about or "_seconds" not in metric.name


def test_facts_from_several_threads_are_all_counted() -> None:
    metrics = Metrics(JOBS, StandingClock())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(metrics, [batch(job, rows=1) for job in JOBS for _ in range(500)]))
    values = scraped(metrics)
    assert [values[f'pgretention_batch_duration_seconds_count{{job="{job.name}"}}'] for job in JOBS] == [500] * 3


def test_there_is_nothing_of_the_process_nor_when_a_series_was_created() -> None:
    for accept in "", "application/openmetrics-text; version=1.0.0":
        content, _ = Metrics(JOBS, StandingClock()).exposition(accept)
        assert not any(word in content.decode() for word in ("_created", "process_", "python_"))


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text; version=x", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain; version=1..0", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
        ),
    ],
)
def test_the_format_is_what_was_asked_for_or_the_plain_one(accept: str, content_type: str) -> None:
    content, answered = Metrics(JOBS, StandingClock()).exposition(accept)
    assert answered == content_type
    assert content.endswith(b"# EOF\n") is ("openmetrics" in content_type)
