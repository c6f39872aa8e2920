"""What a run would do now, found out without doing it: every look is a READ ONLY transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from pgretention import backlog, catalog, db, plan
from pgretention.errors import Fault, FaultKind
from pgretention.job import Job
from pgretention.plan import Plan
from pgretention.session import Session, connect


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows of a table would go if nothing limited the run; estimated where counting takes too long."""

    table: str
    rows: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """The statements of a run, their order, its limits and what it would delete at `cutoff`.

    `rows` stands in delete order, the root last. `span` are the oldest and the newest expiry of what would go, as
    texts; None where there is nothing, or where looking takes too long. `statements` are pasteable into psql once its
    variables are set. `as_of` is the instant that was asked about, None for now.
    """

    job: Job
    cutoff: datetime
    as_of: datetime | None
    rows: tuple[Rows, ...]
    span: tuple[str, str] | None
    statements: Mapping[str, str]
    pooled: bool

    @property
    def batches(self) -> int:
        """How many batches everything expired now would take."""
        return self.job.limits.batches_for(self.rows[-1].rows)

    @property
    def runs(self) -> int:
        """How many runs that would take, as far as the limit on batches goes; their duration is not foreseen."""
        return self.job.limits.runs_for(self.batches)


def look(job: Job, dsn: str, as_of: datetime | None = None) -> Preview:
    """Read the catalog, the server's clock and the counts; raises Refusal or Fault as a run would end in them.

    With `as_of`, an aware instant, it is what a run would do then with the rows of now.
    """
    with connect(dsn, f"pgretention/{job.name}/plan") as session:
        with db.looking(session, backlog.MEASURING) as connection:
            statements = plan.build(job.policy, catalog.read(connection, job.policy.tables))
            cutoff = as_of - job.policy.retention if as_of else backlog.read_cutoff(connection, job.policy.retention)
        return Preview(
            job=job,
            cutoff=cutoff,
            as_of=as_of,
            rows=_rows(session, statements, cutoff),
            span=_span(session, statements, cutoff),
            statements=texts(statements, job.limits.batch_size),
            pooled=session.pooled,
        )


def _rows(session: Session, statements: Plan, cutoff: datetime) -> tuple[Rows, ...]:
    policy = statements.policy
    queries = [(child.table, statements.expired_children(child)) for child in policy.children]
    queries.append((policy.root, statements.expired))
    return tuple(Rows(str(table), *backlog.count(session, query, cutoff)) for table, query in queries)


def _span(session: Session, statements: Plan, cutoff: datetime) -> tuple[str, str] | None:
    try:
        with db.looking(session, backlog.MEASURING) as connection:
            row = connection.execute(statements.span, {"cutoff": cutoff}).fetchone()
    except Fault as fault:
        if fault.kind is not FaultKind.STATEMENT_TIMEOUT:
            raise
        return None
    oldest, newest = cast("tuple[str | None, str | None]", row)
    return (oldest, newest) if oldest is not None and newest is not None else None


def texts(statements: Plan, batch_size: int) -> dict[str, str]:
    """The statements of a batch by title, as a person would write them: placeholders are psql variables."""
    return {
        title: re.sub(r"%\((\w+)\)s", r":'\1'", statement.as_string())
        for title, statement in {
            "claim the first batch": statements.claim_first(batch_size),
            "claim every further batch, after the last row of the one before": statements.claim_next(batch_size),
            "delete the claimed batch, in the same transaction": statements.delete,
        }.items()
    }
