"""A trace of each run: a span for the run, one below it for each batch (A-23, F-16), sent by OTLP over HTTP.

Where to is said by the standard variables OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. Without
one nothing is traced, and OpenTelemetry, which the extra `otel` installs, is not even loaded. Spans carry counts and
names, and of an error its kind, SQLSTATE and constraint, never what a row holds. A collector that is away costs a run
nothing and the end of the process FLUSHING seconds at most.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pgretention import __version__
from pgretention.clock import Clock
from pgretention.report import (
    BatchDone,
    BatchResized,
    BrakeOverridden,
    Fact,
    Outcome,
    ReplicaBehind,
    RetryAwaited,
    RowsKept,
    RunFinished,
    RunReport,
    RunStarted,
    WorkerLost,
)
from pgretention.sinks import logs, trace_names
from pgretention.sinks.log_names import WARNING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Span, Tracer

FLUSHING: Final = 3
"""Seconds that the end of a process may take for what is not sent yet."""

_ASKING: Final = 2
"""Seconds for a request to the collector: less, so that what is lost at the end is still told."""

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SECOND: Final = 1_000_000_000
_WRONG: Final = frozenset({Outcome.FAILED, Outcome.PARTIAL, Outcome.REFUSED})


@contextmanager
def sent(environment: Mapping[str, str], clock: Clock, *, continued: bool) -> Generator[list[Traces]]:
    """While inside, runs are traced, if the environment says where to: yields the sink, or none.

    With `continued` the run belongs to the trace that TRACEPARENT names (W3C Trace Context).
    """
    if not wanted(environment):
        yield []
        return
    if find_spec("opentelemetry.sdk") is None:
        logs.say(WARNING, "no traces", reason='OpenTelemetry is not installed: pip install "pgretention[otel]"')
        yield []
        return
    with _provider(environment) as tracer:
        yield [Traces(tracer, _parent(environment) if continued else None, clock)]


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a collector, and does not switch traces off."""
    off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return not off and any(environment.get(name) for name in _ENDPOINTS)


class Traces:
    """A sink that makes spans of the facts of runs; of several runs at once too."""

    def __init__(self, tracer: Tracer, parent: Context | None, clock: Clock) -> None:
        self._tracer = tracer
        self._clock = clock
        self._parent = parent
        self._runs: dict[str, Span] = {}

    def __call__(self, fact: Fact) -> None:
        now = round(self._clock.now().timestamp() * 1e6) * 1000
        match fact:
            case RunStarted():
                self._runs[fact.run_id] = self._begin(fact.job, fact.run_id, now, trace_names.started(fact))
            case BatchDone():
                self._batch(fact, now)
            case RunFinished(report):
                self._end(report, now)
            case RetryAwaited() | RowsKept() | WorkerLost() | BatchResized() | BrakeOverridden() | ReplicaBehind():
                span = self._runs.get(fact.run_id)
                if span is not None:
                    span.add_event(*trace_names.event(fact), timestamp=now)
            case _:
                pass  # said by the worker between runs, or a wait, of which the run has the sum

    def _begin(self, job: str, run_id: str, at: int, values: trace_names.Values) -> Span:
        named = trace_names.run(job, run_id)
        return self._tracer.start_span(job, self._parent, attributes={**named, **values}, start_time=at)

    def _batch(self, fact: BatchDone, now: int) -> None:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415  an extra

        run = self._runs.get(fact.run_id)
        if run is None:
            return
        began = now - round(fact.duration.total_seconds() * _SECOND)
        values = trace_names.batch(fact)
        span = self._tracer.start_span("batch", set_span_in_context(run), attributes=values, start_time=began)
        span.end(now)

    def _end(self, report: RunReport, now: int) -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415  an extra

        span = self._runs.pop(report.run_id, None)
        if span is None:  # it never began to delete
            began = now - round(report.duration.total_seconds() * _SECOND)
            span = self._begin(report.job, report.run_id, began, {})
        for name, value in trace_names.finished(report).items():
            span.set_attribute(name, value)
        if report.outcome in _WRONG:
            span.set_status(Status(StatusCode.ERROR, report.error.kind.value if report.error else None))
        span.end(now)


def _parent(environment: Mapping[str, str]) -> Context:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415  an extra

    names = ("TRACEPARENT", "TRACESTATE")
    carrier = {name.lower(): environment[name] for name in names if environment.get(name)}
    return TraceContextTextMapPropagator().extract(carrier)


@contextmanager
def _provider(environment: Mapping[str, str]) -> Generator[Tracer]:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  an extra
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  an extra
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415  an extra

    # What they say of a collector that is away would stand between lines of ours.
    for library in "opentelemetry", "urllib3", "requests":
        logging.getLogger(library).setLevel(logging.CRITICAL + 1)
    name = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": "pgretention"}
    # Whoever leaves has waited for the threads long enough: shutdown_on_exit would wait for them once more.
    resource = Resource.create({**name, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    complaint = _Complaint()
    provider.add_span_processor(BatchSpanProcessor(_complaining(OTLPSpanExporter(timeout=_ASKING), complaint)))
    try:
        yield provider.get_tracer("pgretention", __version__)
    finally:
        ending = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(FLUSHING)
        complaint.silence()


class _Complaint:
    """Says once that spans are lost, and not while the interpreter ends: it would be aborted with its log in hand."""

    def __init__(self) -> None:
        self._said = False
        self._saying = threading.Lock()

    def say(self) -> None:
        with self._saying:
            if not self._said:
                self._said = True
                logs.say(WARNING, "traces lost", reason="the collector does not take them; runs go on")

    def silence(self) -> None:
        """Say nothing from now on; a log that nobody reads is not waited for."""
        self._said = True
        if self._saying.acquire(timeout=1.0):
            self._saying.release()


def _complaining(exporter: SpanExporter, complaint: _Complaint) -> SpanExporter:
    """The exporter, which complains in our own log when spans are lost."""
    from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415  an extra

    export = exporter.export

    def export_and_tell(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = export(spans)
        if result is not SpanExportResult.SUCCESS:
            complaint.say()
        return result

    exporter.export = export_and_tell  # type: ignore[method-assign]
    return exporter
