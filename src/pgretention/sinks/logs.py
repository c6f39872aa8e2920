"""The log of a run, one line an event: JSON for machines, aligned text for people (A-21, F-14, design section 6).

Lines carry counts, keys, names and words of our own, never what a row holds or what the server said of it. structlog
is imported when somebody logs: it takes a tenth of a second, and most commands never do.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TextIO, assert_never
from zoneinfo import ZoneInfo

from pgretention.clock import Clock, SystemClock
from pgretention.config import format_duration
from pgretention.errors import ConfigurationError
from pgretention.report import (
    BatchDone,
    BatchResized,
    BrakeOverridden,
    CatchingUp,
    Fact,
    HostFact,
    Outcome,
    ReplicaBehind,
    RetryAwaited,
    RowsKept,
    RunError,
    RunFinished,
    RunReport,
    RunScheduled,
    RunsMissed,
    RunStarted,
    Throttled,
    WorkerLost,
)
from pgretention.sinks import log_lines, log_names
from pgretention.sinks.log_names import Line, LogNames

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LEVELS: Final = {
    "debug": log_names.DEBUG,
    "info": log_names.INFO,
    "warning": log_names.WARNING,
    "error": log_names.ERROR,
}

MOST_KEYS: Final = 1000
"""Keys of a failed batch that one line names; more would be cut off somewhere on their way to a reader."""


MOST_KEPT: Final = 20
"""Lines of a run that say at their own level that a row stays."""


def configure(form: str, level: str, stream: TextIO | None = None, clock: Clock | None = None) -> LogSink:
    """Send every log line of this process to `stream`, stderr by default; returns the sink that writes of runs.

    `form` is `console` or `json`, `level` one of LEVELS. Colours only on a terminal, and none where NO_COLOR is set.
    Raises ConfigurationError.
    """
    import structlog  # noqa: PLC0415  slow to load, see above

    if form not in {"console", "json"}:
        raise ConfigurationError([f"log format {form}: must be console or json"])
    if level not in LEVELS:
        raise ConfigurationError([f"log level {level}: must be one of {', '.join(LEVELS)}"])
    stream = stream or stderr()
    styled = log_lines.coloured if _wants_colours(stream) else log_lines.uncoloured
    render = structlog.processors.JSONRenderer() if form == "json" else log_lines.console(styled)
    structlog.configure(
        processors=[log_lines.head(clock or SystemClock()), log_lines.plain, render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    return LogSink()


def logger() -> FilteringBoundLogger:
    """The log of this process; whoever has something to say that is no fact of a run calls `say`."""
    import structlog  # noqa: PLC0415  slow to load, see above

    if not structlog.is_configured():
        configure("console", "info")
    log: FilteringBoundLogger = structlog.get_logger()
    return log


def say(level: int, event: str, **fields: object) -> None:
    """Log something that is no fact of a run, and never raise: the log itself may be what is broken."""
    with suppress(Exception):
        logger().log(level, event, **fields)


class _Nowhere(io.StringIO):
    """Forgets what is written to it."""

    def write(self, text: str, /) -> int:
        return len(text)


def stderr() -> TextIO:
    """Standard error, or where the process was started without one a stream that forgets."""
    return _Nowhere() if sys.stderr is None else sys.stderr


def _wants_colours(stream: TextIO) -> bool:
    if not stream.isatty():
        return False
    from rich.console import Console  # noqa: PLC0415  knows NO_COLOR and TERM; structlog has loaded it anyway

    terminal = Console(stderr=True)
    return not terminal.no_color and not terminal.is_dumb_terminal


class LogSink:
    """Writes each fact of a run as one line, in the words of its job (`log_names`)."""

    def __init__(self) -> None:
        self._kept: Counter[str] = Counter()

    def __call__(self, fact: Fact) -> None:
        match fact:
            case RunStarted():
                _write(fact.job, log_names.of(fact.job).started, _started(fact))
            case BatchDone():
                _write(fact.job, log_names.of(fact.job).batch, _batch(fact))
            case RetryAwaited():
                _write(fact.job, log_names.of(fact.job).retry, _retry(fact))
            case BatchResized():
                _write(fact.job, log_names.of(fact.job).resized, _resized(fact))
            case BrakeOverridden() | ReplicaBehind() | Throttled():
                _write(fact.job, *_held_back(fact))
            case WorkerLost():
                _write(fact.job, log_names.of(fact.job).lost, _lost(fact))
            case RowsKept():
                self._write_kept(fact)
            case RunScheduled() | CatchingUp() | RunsMissed():
                _write(fact.job, *_between_runs(fact))
            case RunFinished(report):
                self._kept.pop(report.run_id, None)
                _write(report.job, _last_line(log_names.of(report.job), report.outcome), _finished(report))
            case _:
                assert_never(fact)

    def _write_kept(self, fact: RowsKept) -> None:
        """The first rows of a run at their level, those after MOST_KEPT at debug: their keys are in its last line."""
        self._kept[fact.run_id] += 1
        line = log_names.of(fact.job).kept
        if self._kept[fact.run_id] > MOST_KEPT:
            line = replace(line, level=log_names.DEBUG)
        _write(fact.job, line, _kept(fact))


def _write(job: str, line: Line, values: Mapping[str, object]) -> None:
    logger().log(line.level, line.event, job=job, **_fields(line, values))


def _between_runs(fact: HostFact) -> tuple[Line, Mapping[str, object]]:
    match fact:
        case RunScheduled():
            return log_names.SCHEDULED, _due(fact.due, fact.zone)
        case CatchingUp():
            return log_names.CATCHING_UP, _due(fact.due, fact.zone) | {"late": fact.late}
        case RunsMissed():
            missed = {"count": fact.count, "last_due": fact.last_due, "reason": fact.reason.value}
            return log_names.MISSED, missed
    assert_never(fact)


def _fields(line: Line, values: Mapping[str, object]) -> dict[str, object]:
    """The fields of a line; a value per table or reason becomes as many fields, by short names if those differ."""
    fields: dict[str, object] = {}
    for field, carried in line.fields.items():
        value = values[carried]
        if isinstance(value, Mapping):
            short = [str(table).rpartition(".")[2] for table in value]
            tables = short if len(set(short)) == len(short) else value
            fields |= {
                field.format(table=name, reason=name): each for name, each in zip(tables, value.values(), strict=True)
            }
        else:
            fields[field] = value
    return fields


def _last_line(names: LogNames, outcome: Outcome) -> Line:
    match outcome:
        case Outcome.COMPLETED | Outcome.LIMIT_REACHED | Outcome.STOPPED:
            return names.completed
        case Outcome.SKIPPED:
            return names.skipped
        case Outcome.REFUSED:
            return names.refused
        case Outcome.PARTIAL | Outcome.FAILED:
            return names.failed
    assert_never(outcome)


def _started(fact: RunStarted) -> dict[str, object]:
    return {
        "run_id": fact.run_id,
        "cutoff": fact.cutoff,
        "retention": format_duration(fact.retention),
        "retention_days": fact.retention.days,
        "batch_size": fact.batch_size,
        "backlog": fact.backlog.rows,
        "backlog_exact": fact.backlog.exact,
        "pooled": fact.pooled,
        # Behind a pooler a session's lock is worth nothing, so each batch's transaction takes it (design section 3).
        "lock": "transaction" if fact.pooled else "session",
    }


def _batch(fact: BatchDone) -> dict[str, object]:
    return {
        "run_id": fact.run_id,
        "batch_index": fact.index,
        "deleted": fact.deleted,
        "deleted_total": sum(fact.deleted.values()),
        "duration": fact.duration,
    }


def _retry(fact: RetryAwaited) -> dict[str, object]:
    return {"run_id": fact.run_id, "attempt": fact.attempt, "wait": fact.wait} | _why(fact.error)


def _resized(fact: BatchResized) -> dict[str, object]:
    reason = fact.reason.value if fact.reason else None
    return {"run_id": fact.run_id, "batch_size": fact.batch_size, "reason": reason}


def _held_back(fact: BrakeOverridden | ReplicaBehind | Throttled) -> tuple[Line, Mapping[str, object]]:
    names = log_names.of(fact.job)
    match fact:
        case BrakeOverridden():
            return names.overridden, {"run_id": fact.run_id, "brake": fact.brake, "why": fact.why}
        case ReplicaBehind():
            values = {"run_id": fact.run_id, "replica": fact.replica, "lag": fact.lag, "limit": fact.limit}
            return names.behind, values
        case Throttled():
            return names.throttled, {"run_id": fact.run_id, "reason": fact.reason.value, "wait": fact.wait}
    assert_never(fact)


def _lost(fact: WorkerLost) -> dict[str, object]:
    return {"run_id": fact.run_id} | _why(fact.error)


def _kept(fact: RowsKept) -> dict[str, object]:
    return {"run_id": fact.run_id, "rows": fact.rows} | _why(fact.error)


def _due(due: datetime, zone: str) -> dict[str, object]:
    # As text, since an instant is logged in UTC and this one is to be read on the wall.
    return {"due": due, "due_local": due.astimezone(ZoneInfo(zone)).isoformat(timespec="seconds"), "zone": zone}


def _why(error: RunError | None) -> dict[str, object]:
    keys = error.keys if error else ()
    return {
        "kind": error.kind.value if error else None,
        "sqlstate": error.sqlstate if error else None,
        "constraint": error.constraint if error else None,
        "error": error.message if error else None,
        "batch_index": error.batch if error else None,
        "batch_ids": list(keys[:MOST_KEYS]),
        "batch_ids_left_out": len(keys) - MOST_KEYS if len(keys) > MOST_KEYS else None,
    }


def _finished(report: RunReport) -> dict[str, object]:
    error, left = report.error, report.backlog_after
    return {
        "run_id": report.run_id,
        "outcome": report.outcome.value,
        "deleted": report.deleted,
        "deleted_total": sum(report.deleted.values()),
        "batches": report.batches,
        "has_more": report.has_more,
        "limit": report.limit.value if report.limit else None,
        "duration": report.duration,
        "throttled": report.throttled,
        "duration_ms": round(report.duration / timedelta(milliseconds=1)),
        "backlog_remaining": left.rows if left else None,
        "backlog_exact": left.exact if left else None,
        "reason": "another run holds the lock",
        "holders": report.holders,
        "reasons": error.message if error else None,
    } | _why(error)
