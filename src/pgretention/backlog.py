"""What is expired, and how much of it, told within a bounded time: counted where that is quick, else estimated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

from psycopg import sql

from pgretention import db
from pgretention.errors import Fault, FaultKind
from pgretention.plan import CUTOFF, Plan
from pgretention.report import Backlog
from pgretention.session import Connection, Session

MEASURING = timedelta(seconds=2)
"""Counting longer than this would hold back the run it is for; the bound is per statement."""


def read_cutoff(connection: Connection, retention: timedelta) -> datetime:
    """The instant before which a row is expired: the server's now() minus the retention, in UTC (A-06)."""
    row = connection.execute(CUTOFF, [retention]).fetchone()
    return cast("tuple[datetime]", row)[0].astimezone(UTC)


def measure(session: Session, plan: Plan, cutoff: datetime, within: timedelta) -> Backlog:
    """The backlog at `cutoff`, and how far back the oldest expiry in it lies; raises Fault.

    Each of the three looks this may take is given up after `within`, or MEASURING if that is shorter.
    """
    limit = min(MEASURING, within)
    rows, exact = count(session, plan.expired, cutoff, limit)
    return Backlog(rows=rows, exact=exact, oldest_age=_oldest_age(session, plan, cutoff, limit))


def count(session: Session, rows: sql.Composed, cutoff: datetime, limit: timedelta = MEASURING) -> tuple[int, bool]:
    """How many rows a query gives, and True; or the planner's estimate, and False, when counting takes too long."""
    binds = {"cutoff": cutoff}
    try:
        with db.looking(session, limit) as connection:
            counted = connection.execute(sql.SQL("SELECT count(*) FROM ({}) AS counted").format(rows), binds).fetchone()
            return cast("tuple[int]", counted)[0], True
    except Fault as fault:
        if fault.kind is not FaultKind.STATEMENT_TIMEOUT:
            raise
    with db.looking(session, MEASURING) as connection:
        explain = sql.SQL("EXPLAIN (FORMAT JSON) {}").format(rows)
        explained = cast("tuple[list[dict[str, dict[str, float]]]]", connection.execute(explain, binds).fetchone())
    return int(explained[0][0]["Plan"]["Plan Rows"]), False


def _oldest_age(session: Session, plan: Plan, cutoff: datetime, limit: timedelta) -> timedelta | None:
    binds = {"cutoff": cutoff, "now": cutoff + plan.policy.retention}
    try:
        with db.looking(session, limit) as connection:
            row = connection.execute(plan.oldest_age, binds).fetchone()
    except Fault as fault:
        if fault.kind is not FaultKind.STATEMENT_TIMEOUT:
            raise
        return None
    return None if row is None else timedelta(seconds=cast("float", row[0]))
