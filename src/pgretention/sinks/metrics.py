"""The metrics of the jobs in a process, for Prometheus to collect (A-22, F-15, design section 6).

They move when a fact is heard and at no other time, so a scrape touches neither a database nor a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    push_to_gateway,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder

from pgretention.clock import Clock
from pgretention.job import Job
from pgretention.report import Fact, RunFinished, RunReport
from pgretention.sinks.measures import LABELS, Left, Measure, Measured, drain_eta, measured, parts, succeeded
from pgretention.sinks.metric_names import COMMON, OWN, Kind, Metric

PUSHING: Final = 3.0
"""Seconds that a Pushgateway may take to connect, and to answer."""

Move = Callable[[float], None]
_Moves = defaultdict[tuple[str, Measure, str], list[Move]]


class Metrics:
    """A sink that keeps the metrics of these jobs, each at 0 until something happens.

    Every series there can be is there from the start, so their number is bounded; facts of other jobs move nothing.
    There are no `_created` series, and none of this process or of Python.
    """

    def __init__(self, jobs: Iterable[Job], clock: Clock) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not say that it returns nothing
        self._clock = clock
        self._registry = CollectorRegistry()
        self._moves: _Moves = defaultdict(list)
        self._left: dict[str, Left] = {}
        jobs = tuple(jobs)
        for metric in COMMON:
            _add_common(metric, jobs, self._registry, self._moves)
        for job in jobs:
            for metric in OWN.get(job.name, ()):
                _add_own(metric, job, self._registry, self._moves)

    def __call__(self, fact: Fact) -> None:
        job = fact.report.job if isinstance(fact, RunFinished) else fact.job
        for each in measured(fact):
            self._move(job, each)
        if isinstance(fact, RunFinished):
            for each in self._by_the_clock(fact.report):
                self._move(job, each)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All metrics as text with its content type, in the format that an HTTP Accept header asks for, or the plain
        one where it asks for none of ours.
        """
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number
            encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
        return encode(self._registry), content_type

    def push(self, address: str, group: str) -> None:
        """Put all metrics into a Pushgateway, in place of what the group had there; raises OSError where it is away.

        The gateway gives every metric the label `job` with the name of the group.
        """
        push_to_gateway(address, group, self._registry, timeout=PUSHING)

    def _move(self, job: str, moved: Measured) -> None:
        for move in self._moves.get((job, moved.measure, moved.part), ()):
            move(moved.value)

    def _by_the_clock(self, report: RunReport) -> Iterator[Measured]:
        if succeeded(report.outcome):
            yield Measured(Measure.LAST_SUCCESS, self._clock.now().timestamp())
        if report.backlog_after is not None:
            left = Left(report.backlog_after.rows, self._clock.monotonic())
            yield Measured(Measure.DRAIN_ETA, drain_eta(self._left.get(report.job), left))
            self._left[report.job] = left


def _add_common(metric: Metric, jobs: Sequence[Job], registry: CollectorRegistry, moves: _Moves) -> None:
    label = LABELS.get(metric.measure)
    made = _make(metric, registry, ("job",) if label is None else ("job", label))
    for job in jobs:
        for part in parts(metric.measure, job):
            values = {"job": job.name} if label is None else {"job": job.name, label: part}
            moves[job.name, metric.measure, part].append(_move_of(made.labels(**values)))


def _add_own(metric: Metric, job: Job, registry: CollectorRegistry, moves: _Moves) -> None:
    move = _move_of(_make(metric, registry, ()))
    for part in (metric.only,) if metric.only is not None else parts(metric.measure, job):
        moves[job.name, metric.measure, part].append(move)


def _make(metric: Metric, registry: CollectorRegistry, labels: Sequence[str]) -> Counter | Gauge | Histogram:
    match metric.kind:
        case Kind.COUNTER:
            return Counter(metric.name, metric.about, labels, registry=registry)
        case Kind.GAUGE:
            return Gauge(metric.name, metric.about, labels, registry=registry)
        case Kind.HISTOGRAM:
            return Histogram(metric.name, metric.about, labels, registry=registry, buckets=metric.buckets)


def _move_of(series: Counter | Gauge | Histogram) -> Move:
    match series:
        case Counter():
            return series.inc
        case Gauge():
            return series.set
        case Histogram():
            return series.observe
