"""What keeps a run from beginning although the database would let it delete: signs that the cutoff, or a setting, is
not what somebody meant.

Each brake is held before the first row is touched, and ends the run as refused with one sentence on what to do. Where
Safety:Override names a brake, what it would have held for is told, and the run goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor
from typing import cast

from psycopg import sql

from pgretention import backlog, db
from pgretention.batch import Target
from pgretention.clock import Clock
from pgretention.course import Course
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.job import Brake
from pgretention.report import BrakeOverridden
from pgretention.session import Session

CLOCKS_APART = timedelta(minutes=5)
"""How far the clocks of server and host may be apart before one of them is taken to be wrong."""

JUMP = timedelta(days=1)
"""How much later than the last run's a cutoff may be, beyond the time that has passed."""


_ROUNDING = 1e-9
"""So that 29 of 100 rows are a share of 0.29, which no float is exactly."""


@dataclass(frozen=True, slots=True)
class _Held:
    brake: Brake
    why: str


def hold(run: Course, session: Session, target: Target, apart: timedelta) -> None:
    """Raise Refusal where a brake holds; say which ones were overridden. Raises Fault.

    `apart` is how far the server's clock is from this host's, at the least.
    """
    held = [*_by_the_clocks(run, target, apart), *_by_retention(run), *_by_rows(run, session, target)]
    overridden = run.job.safety.overridden
    for each in held:
        if each.brake in overridden:
            run.say(BrakeOverridden(run.job.name, run.run_id, each.brake, each.why))
    reasons = [
        f"{each.why}; if that is meant, for one run: --set Safety:Override={each.brake}"
        for each in held
        if each.brake not in overridden
    ]
    if reasons:
        raise Refusal(reasons)


def apart(server: datetime, earliest: datetime, clock: Clock) -> timedelta:
    """How far the server's clock is from this host's, at the least: it was read between `earliest` and now."""
    return max(earliest - server, server - clock.now(), timedelta(0))


def _by_the_clocks(run: Course, target: Target, apart: timedelta) -> Iterator[_Held]:
    if apart > CLOCKS_APART:
        yield _Held(
            Brake.CLOCKS_APART,
            f"the clocks of this host and of the server are {_rounded(apart)} apart, and one of them is wrong: "
            "put it right (timedatectl)",
        )
    previous = run.conditions.previous
    if previous is not None:
        jump = target.cutoff - previous.cutoff - previous.ago
        if jump > JUMP:
            yield _Held(
                Brake.CUTOFF_JUMP,
                f"the cutoff is {_rounded(jump)} later than the last run and the time since then explain: "
                "look at the server's clock, and restart the worker when it is right",
            )


def _by_retention(run: Course) -> Iterator[_Held]:
    least, retention = run.job.safety.retention, run.job.policy.retention
    if least is not None and retention < least:
        yield _Held(
            Brake.RETENTION,
            f"rows would be kept for {_rounded(retention)} only, and MinimumRetention is {_rounded(least)}: "
            "see which of the two settings is wrong",
        )


def _by_rows(run: Course, session: Session, target: Target) -> Iterator[_Held]:
    safety = run.job.safety
    if safety.expired_rows is not None:
        why = f"more than {safety.expired_rows:,} rows are expired, which is MaxExpiredRows"
        yield from _counted(Brake.EXPIRED_ROWS, safety.expired_rows, why, run, session, target)
    if safety.expired_share is not None:
        rows = _size(run, session, target.cutoff)
        limit = floor(rows * safety.expired_share + _ROUNDING)
        why = (
            f"more than {safety.expired_share * 100:.6g}% of about {rows:,} rows are expired, which is MaxExpiredShare"
        )
        yield from _counted(Brake.EXPIRED_SHARE, limit, why, run, session, target)


def _counted(brake: Brake, limit: int, why: str, run: Course, session: Session, target: Target) -> Iterator[_Held]:
    more = _more_than(limit, run, session, target)
    if more is None:
        why = f"whether more than {limit:,} rows are expired could not be counted in time"
    if more is not False:
        yield _Held(brake, f"{why}: see with `pgretention plan {run.job.name}`")


def _more_than(limit: int, run: Course, session: Session, target: Target) -> bool | None:
    """Whether more rows than that are expired; None where counting so far takes longer than a batch may."""
    first = sql.SQL("SELECT count(*) FROM ({} LIMIT {}) AS first").format(
        target.statements.expired, sql.Literal(limit + 1)
    )
    try:
        with db.looking(session, run.time_for(1)) as connection:
            row = connection.execute(first, {"cutoff": target.cutoff}).fetchone()
    except Fault as fault:
        if fault.kind is not FaultKind.STATEMENT_TIMEOUT or run.stop.requested:
            raise
        return None
    return cast("tuple[int]", row)[0] > limit


def _size(run: Course, session: Session, cutoff: datetime) -> int:
    """How many rows the root table has, estimated where counting takes too long."""
    root = run.job.policy.root
    rows = sql.SQL("SELECT FROM ONLY {}").format(sql.Identifier(root.schema, root.name))
    return backlog.count(session, rows, cutoff, min(backlog.MEASURING, run.time_left() / 4))[0]


def _rounded(length: timedelta) -> str:
    """For people: in days, hours or minutes."""
    for unit, name in ((timedelta(days=1), "days"), (timedelta(hours=1), "hours"), (timedelta(minutes=1), "minutes")):
        if length >= 2 * unit:
            return f"{length / unit:,.4g} {name}"
    return f"{length.total_seconds():,.0f} s"
