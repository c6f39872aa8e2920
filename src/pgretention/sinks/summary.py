"""The result of a run for people: what it did, what is left, why it ended and what to do next. Plain text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from math import ceil
from typing import Final, assert_never

from pgretention.config import format_duration
from pgretention.errors import FaultKind
from pgretention.job import Limits
from pgretention.report import Backlog, Limit, Outcome, RunError, RunReport
from pgretention.sinks.pace import took

_SHOWN_KEYS: Final = 3

_TRY_LATER: Final = "run again; should it keep happening, choose an hour when fewer others use these tables"
_REMEDIES: Final = {
    FaultKind.CONNECTION: "see that the server can be reached, and that user, password and database are right",
    FaultKind.COMMIT_UNKNOWN: "run again; that batch is gone entirely or not at all, and the run takes what is left",
    FaultKind.SERIALIZATION: _TRY_LATER,
    FaultKind.DEADLOCK: _TRY_LATER,
    FaultKind.LOCK_TIMEOUT: _TRY_LATER,
    FaultKind.CANCELLED: _TRY_LATER,
    FaultKind.STATEMENT_TIMEOUT: "lower BatchSize and see that every referencing column has an index, then run again",
    FaultKind.FOREIGN_KEY: "decide about the rows that still refer to this batch, or add their table to the policy",
    FaultKind.PRIVILEGE: "grant what `pgretention schema --role NAME` prints, then run again",
    FaultKind.READ_ONLY: "point the connection at the primary, then run again",
    FaultKind.CLAIM_MISMATCH: "look at the triggers and row-level security of these tables before running again",
    FaultKind.REFUSED: "put that right and run again",
    FaultKind.CONFIGURATION: "put that right and run again",
    FaultKind.DATABASE: "look the SQLSTATE up in appendix A of the PostgreSQL manual, and see the server's log",
    FaultKind.INTERNAL: "this is a fault of pgretention; what was committed is consistent, and running again is safe",
}


def text(report: RunReport, limits: Limits | None = None) -> str:
    """The lines to print for a finished run; given its `limits`, they say which of them it ran into."""
    told = [f"{report.job}: {_outcome(report)}"]
    told += [f"  {name:<9} {said}" for name, said in _facts(report, limits)]
    return "\n".join(printable(line) for line in told)


def remedy(kind: FaultKind) -> str:
    """What to do about an error of this kind."""
    return _REMEDIES[kind]


def _outcome(report: RunReport) -> str:
    nothing = "" if any(report.deleted.values()) else ", nothing was deleted"
    match report.outcome:
        case Outcome.COMPLETED:
            empty = nothing and report.backlog_after is not None and report.backlog_after.rows == 0
            return "completed, nothing was expired" if empty else f"completed{nothing}"
        case Outcome.LIMIT_REACHED:
            return f"ended at a limit with rows left{nothing}"
        case Outcome.STOPPED:
            return f"stopped with rows left{nothing}"
        case Outcome.SKIPPED:
            return "skipped, another run holds the lock"
        case Outcome.REFUSED:
            return f"refused{nothing}"
        case Outcome.PARTIAL:
            return "the database kept every row that was tried" if nothing else "deleted all but the rows below"
        case Outcome.FAILED:
            return f"failed{nothing}" if nothing else "failed; what is counted here stays deleted"
    assert_never(report.outcome)


def _facts(report: RunReport, limits: Limits | None) -> Iterator[tuple[str, str]]:
    yield from _deleted(report)
    if report.cutoff is not None:
        yield "cutoff", f"{report.cutoff.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        yield "left", _left(report, report.backlog_after)
    if report.error is not None:
        yield from _why(report.error)
    elif report.outcome is Outcome.LIMIT_REACHED:
        yield "why", f"{_limit(report, limits)} is reached"
    elif report.holders is not None:
        yield "lock", f"held by {report.holders}"
    elif report.outcome is Outcome.STOPPED:
        yield "why", "a stop was asked for"
    for place, advice in enumerate(_next(report, limits)):
        yield "" if place else "next", advice
    yield "run", report.run_id


def _deleted(report: RunReport) -> Iterator[tuple[str, str]]:
    if not report.batches:
        return
    width = max((len(f"{rows:,}") for rows in report.deleted.values()), default=0)
    for place, (table, rows) in enumerate(report.deleted.items()):
        yield "" if place else "deleted", f"{rows:>{width},} {table}"
    batches = "1 batch" if report.batches == 1 else f"{report.batches:,} batches"
    yield "in", f"{batches}, {took(report.duration)}"
    if report.throttled:
        yield "waited", ", ".join(f"{took(wait)} for {reason}" for reason, wait in report.throttled.items())


def _left(report: RunReport, left: Backlog | None) -> str:
    if left is None:
        return "unknown, it could not be measured"
    if left.exact and left.rows == 0:
        return "nothing expired"
    root, _ = _root(report)
    oldest = "" if left.oldest_age is None else f", the oldest {_age(left.oldest_age)} old"
    locked = ", in use by somebody else" if report.outcome is Outcome.COMPLETED and left.exact else ""
    return f"{'' if left.exact else 'about '}{left.rows:,} expired {root}{oldest}{locked}"


def _limit(report: RunReport, limits: Limits | None) -> str:
    if report.limit is None or limits is None:
        return report.limit or "a limit of the run"
    value = limits.max_batches if report.limit is Limit.BATCHES else format_duration(limits.max_run_duration)
    return f"{report.limit} ({value})"


def _why(error: RunError) -> Iterator[tuple[str, str]]:
    yield "why", error.message
    codes = {"SQLSTATE": error.sqlstate, "constraint": error.constraint}
    if known := [f"{name} {code}" for name, code in codes.items() if code]:
        yield "", ", ".join(known)
    if error.keys:
        more = len(error.keys) - _SHOWN_KEYS
        rest = f" and {more:,} more; --json lists them all" if more > 0 else ""
        yield "rows", ", ".join(error.keys[:_SHOWN_KEYS]) + rest


def _next(report: RunReport, limits: Limits | None) -> list[str]:
    """What to do about it, if there is anything to be done."""
    left = report.backlog_after
    match report.outcome:
        case Outcome.COMPLETED:
            return [] if left is None or left.rows == 0 else ["the next run takes what is left"]
        case Outcome.LIMIT_REACHED:
            return [
                f"the next run goes on from here{_runs_to_come(report)}",
                f"should the backlog grow, {_raise(limits)}",
            ]
        case Outcome.STOPPED:
            return ["the next run goes on from here"]
        case Outcome.SKIPPED:
            return ["nothing: the other run does the work; if there is none, look for a session that kept the lock"]
        case Outcome.REFUSED | Outcome.PARTIAL | Outcome.FAILED:
            return [remedy(report.error.kind)] if report.error else []
    assert_never(report.outcome)


def _runs_to_come(report: RunReport) -> str:
    """How many runs like this one would delete what is left."""
    (_, rows), left = _root(report), report.backlog_after
    if left is None or not rows:
        return ""
    runs, about = ceil(left.rows / rows), "" if left.exact else "about "
    return f"; {about}{runs:,} more run{' like this empties' if runs == 1 else 's like this empty'} it"


def _root(report: RunReport) -> tuple[str, int]:
    """The root table, which comes last in delete order, and how many of its rows are gone."""
    return [("rows", 0), *report.deleted.items()][-1]


def _raise(limits: Limits | None) -> str:
    if limits is not None and limits.max_batches is None:
        return "raise MaxRunDuration"
    return "raise MaxBatchesPerRun, MaxRunDuration or BatchSize"


def _age(age: timedelta) -> str:
    return f"{age.days:,} days" if age.days > 1 else format_duration(age)


def printable(line: str) -> str:
    """A line that cannot move the cursor: a key is a text somebody else has chosen."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
