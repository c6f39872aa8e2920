"""docs/reference/traces.md names every attribute and event of a span, and none that there is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from pgretention.errors import FaultKind
from pgretention.report import (
    BatchDone,
    BatchResized,
    BrakeOverridden,
    ReplicaBehind,
    RetryAwaited,
    RowsKept,
    RunFinished,
    RunStarted,
    TooLong,
    WorkerLost,
)
from pgretention.sinks import trace_names
from tests.support.facts import FOREIGN_KEY, JOBS, RUN, stories

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "traces.md").read_text("utf-8")
SECOND = timedelta(seconds=1)
ON_THE_WAY = (
    RetryAwaited("job", RUN, FOREIGN_KEY, 1, SECOND),
    RowsKept("job", RUN, 1, FOREIGN_KEY),
    WorkerLost("job", RUN, FOREIGN_KEY),
    BatchResized("job", RUN, 10, TooLong.BATCH_DURATION),
    BatchResized("job", RUN, 10, FaultKind.STATEMENT_TIMEOUT),
    BrakeOverridden("job", RUN, "cutoff-jump", "why"),
    ReplicaBehind("job", RUN, "standby", SECOND, SECOND),
)


def carried() -> Iterator[str]:
    for job in JOBS:
        yield from trace_names.run(job.name, RUN)
        for facts in stories(job).values():
            for fact in facts:
                match fact:
                    case RunStarted():
                        yield from trace_names.started(fact)
                    case BatchDone():
                        yield from trace_names.batch(fact)
                    case RunFinished(report):
                        yield from trace_names.finished(report)
                    case _:
                        pass
    for each in ON_THE_WAY:
        yield from trace_names.event(each)[1]


def test_the_page_names_every_attribute_and_no_other() -> None:
    tables = "|".join(re.escape(str(table)) for job in JOBS for table in job.policy.tables)
    told = re.sub(rf"({tables})\b", "{table}", "\n".join(carried()))
    told = re.sub(r"throttled\.\w+", "throttled.{reason}", told)
    rows = [line.split("|")[1:-1] for line in PAGE.partition("## The span of a run")[2].splitlines() if "| `" in line]
    written = {name for row in rows for cell in row for name in re.findall(r"`([^`]+)`", cell)}
    events = {trace_names.event(each)[0] for each in ON_THE_WAY}
    outcomes_and_jobs = {"batch"}
    assert written - events - outcomes_and_jobs == set(told.splitlines())
    assert events <= written


def test_no_attribute_holds_a_key() -> None:
    for job in JOBS:
        for facts in stories(job).values():
            for fact in facts:
                if isinstance(fact, RunFinished):
                    values = trace_names.finished(fact.report).values()
                    assert not any(str(key) == str(value) for key in FOREIGN_KEY.keys for value in values)
