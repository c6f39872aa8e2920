"""What every sink promises: it takes every fact of every run, never raises, and gives away nothing it should not."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pgretention.errors import FaultKind
from pgretention.job import Job
from pgretention.report import (
    Backlog,
    BatchDone,
    BatchResized,
    Fact,
    MissReason,
    Outcome,
    RetryAwaited,
    RowsKept,
    RunError,
    RunFinished,
    RunReport,
    RunScheduled,
    RunsMissed,
    RunStarted,
    WorkerLost,
)
from pgretention.sinks import log_names, logs, progress, summary
from pgretention.sinks.bar import Bar
from pgretention.sinks.fan_out import Sink, fan_out
from pgretention.sinks.history import History
from pgretention.sinks.metrics import Metrics
from pgretention.sinks.records import RunRecord
from tests.support.facts import ACTIVITY, FOREIGN_KEY, GUEST, JOBS, NOW, RUN, StandingClock, stories

SINKS = (
    "json log",
    "console log",
    "progress bar",
    "progress in a pipe",
    "summary",
    "metrics",
    "history",
    "all at once",
)


@dataclass
class Written:
    """Where a sink under test writes."""

    stream: io.StringIO
    sink: Sink

    def tell(self, facts: list[Fact]) -> str:
        for fact in facts:
            self.sink(fact)
        return self.stream.getvalue()


def make(name: str, job: Job, stack: ExitStack) -> Written:
    """The sink of that name, listening to that job; what it needs is given back when the stack closes."""
    stream = io.StringIO()
    stack.callback(structlog.reset_defaults)
    match name:
        case "json log" | "console log":
            return Written(stream, logs.configure(name.removesuffix(" log"), "debug", stream))
        case "progress bar":
            console = Console(file=stream, force_terminal=True, width=100, _environ={})
            return Written(stream, stack.enter_context(Bar(job, console, StandingClock(), lambda: False)))
        case "progress in a pipe":
            stack.enter_context(redirect_stderr(stream))
            return Written(stream, stack.enter_context(progress.shown(job)))
        case "summary":
            return Written(stream, lambda fact: _summarize(fact, job, stream))
        case "metrics":
            metrics = Metrics([job], StandingClock())
            return Written(stream, lambda fact: _scrape(fact, metrics, stream))
        case "history":
            history = History([job], StandingClock())
            return Written(stream, lambda fact: _remember(fact, history, job, stream))
        case _:
            others = [make(other, job, stack) for other in SINKS if other != name]
            return Written(stream, fan_out([other.sink for other in others]))


def _summarize(fact: Fact, job: Job, stream: io.StringIO) -> None:
    if isinstance(fact, RunFinished):
        stream.write(summary.text(fact.report, job.limits))


def _scrape(fact: Fact, metrics: Metrics, stream: io.StringIO) -> None:
    metrics(fact)
    content, _ = metrics.exposition("")
    stream.write(content.decode())


def _remember(fact: Fact, history: History, job: Job, stream: io.StringIO) -> None:
    history(fact)
    known = history.of(job.name)
    for run in (*known.runs, *([known.running] if known.running else [])):
        text = json.dumps(run.as_json())
        assert RunRecord.from_json(json.loads(text)) == run
        stream.write(text)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", SINKS)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("story", stories(JOBS[0]))
def test_every_fact_of_every_outcome_is_taken(name: str, job: Job, story: str, stack: ExitStack) -> None:
    make(name, job, stack).tell(stories(job)[story])


@pytest.mark.parametrize("outcome", Outcome)
def test_no_outcome_is_missing_from_the_stories(outcome: Outcome) -> None:
    ends = [story[-1] for story in stories(ACTIVITY).values()]
    assert outcome in {end.report.outcome for end in ends if isinstance(end, RunFinished)}


anything = st.text(max_size=20)
rows = st.integers(0, 10**12)
spans = st.timedeltas(timedelta(0), timedelta(days=10_000))
tables = st.dictionaries(anything, rows, max_size=4)
backlogs = st.builds(Backlog, rows=rows, exact=st.booleans(), oldest_age=st.none() | spans)
errors = st.builds(
    RunError,
    kind=st.sampled_from(FaultKind),
    message=anything,
    sqlstate=st.none() | anything,
    constraint=st.none() | anything,
    keys=st.lists(anything, max_size=20).map(tuple),
    batch=st.none() | rows,
)
instants = st.datetimes(timezones=st.timezones())
reports = st.builds(
    RunReport,
    job=anything,
    run_id=anything,
    outcome=st.sampled_from(Outcome),
    cutoff=st.none() | instants,
    deleted=tables,
    batches=rows,
    has_more=st.booleans(),
    backlog_before=st.none() | backlogs,
    backlog_after=st.none() | backlogs,
    duration=spans,
    error=st.none() | errors,
)
starts = st.builds(
    RunStarted,
    job=anything,
    run_id=anything,
    cutoff=instants,
    retention=spans,
    batch_size=rows,
    backlog=backlogs,
    pooled=st.booleans(),
)
batches = st.builds(BatchDone, job=anything, run_id=anything, index=rows, deleted=tables, duration=spans)
troubles = (
    st.builds(RetryAwaited, job=anything, run_id=anything, error=errors, attempt=rows, wait=spans)
    | st.builds(
        BatchResized, job=anything, run_id=anything, batch_size=rows, reason=st.none() | st.sampled_from(FaultKind)
    )
    | st.builds(WorkerLost, job=anything, run_id=anything, error=errors)
    | st.builds(RowsKept, job=anything, run_id=anything, rows=rows, error=errors)
)
dues = st.timedeltas(timedelta(0), timedelta(days=36_500)).map(lambda later: NOW + later)
waits = st.builds(RunScheduled, job=anything, due=dues, zone=st.timezone_keys()) | st.builds(
    RunsMissed, job=anything, count=rows, last_due=dues, reason=st.sampled_from(MissReason)
)


@pytest.mark.parametrize("name", SINKS)
@given(facts=st.lists(starts | batches | troubles | waits | st.builds(RunFinished, reports), min_size=1, max_size=4))
def test_no_fact_can_be_so_odd_that_a_sink_raises(name: str, facts: list[Fact]) -> None:
    with ExitStack() as stack:
        make(name, ACTIVITY, stack).tell(facts)


def log_lines(job: Job, story: str, stack: ExitStack) -> list[dict[str, Any]]:
    return [json.loads(line) for line in make("json log", job, stack).tell(stories(job)[story]).splitlines()]


@pytest.mark.req("A-21", "F-14")
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("story", stories(JOBS[0]))
def test_the_log_says_each_fact_once_with_the_fields_of_its_event_and_no_other(
    job: Job, story: str, stack: ExitStack
) -> None:
    said = log_lines(job, story, stack)
    assert len(said) == len(stories(job)[story])
    names = log_names.of(job.name)
    events = {line.event: line for line in (getattr(names, field.name) for field in fields(names))}
    end = stories(job)[story][-1]
    assert isinstance(end, RunFinished)
    for written in said:
        expected = {"timestamp", "level", "event", "job"}
        for field in events[written["event"]].fields:
            each = end.report.throttled if "{reason}" in field else [table.name for table in job.policy.tables]
            expected |= {field.format(table=name, reason=name) for name in each}
        assert set(written) == expected


@pytest.mark.req("A-21", "F-14")
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("story", stories(JOBS[0]))
def test_every_log_line_names_its_job_and_run(job: Job, story: str, stack: ExitStack) -> None:
    for written in log_lines(job, story, stack):
        assert written["job"] == job.name
        assert RUN in {written.get("run_id"), written.get("jobRunId")}


@pytest.mark.req("A-21", "F-14")
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("story", stories(JOBS[0]))
def test_only_what_went_wrong_is_an_error(job: Job, story: str, stack: ExitStack) -> None:
    end = stories(job)[story][-1]
    assert isinstance(end, RunFinished)
    wrong = end.report.outcome in {Outcome.FAILED, Outcome.PARTIAL, Outcome.REFUSED}
    levels = [fields["level"] for fields in log_lines(job, story, stack)]
    assert (levels[-1] == "error") is wrong
    assert "error" not in levels[:-1]


@pytest.mark.req("A-22", "F-15")
@pytest.mark.parametrize("name", ["progress bar", "progress in a pipe", "metrics"])
@pytest.mark.parametrize("job", [ACTIVITY, GUEST], ids=lambda job: job.name)
def test_progress_and_metrics_show_neither_keys_nor_what_the_server_said(name: str, job: Job, stack: ExitStack) -> None:
    shown = make(name, job, stack).tell(stories(job)["failed"])
    assert not any(word in shown for word in (*FOREIGN_KEY.keys, "23503", "fkey", RUN))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("story", stories(JOBS[0]))
def test_the_summary_is_plain_text_of_a_few_lines_that_begin_with_the_job(
    job: Job, story: str, stack: ExitStack
) -> None:
    said = make("summary", job, stack).tell(stories(job)[story])
    assert said.startswith(f"{job.name}: ")
    assert said.replace("\n", "").isprintable()
    assert len(said.splitlines()) <= 12
