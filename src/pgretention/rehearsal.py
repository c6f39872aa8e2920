"""Batches as a run would delete them, each rolled back: what they cost, told before anything is gone.

The statements are those of a run, in transactions with the limits of a run, under the lock of a run. None of them is
ever committed. What stays is what PostgreSQL leaves behind of any transaction that is rolled back: dead versions of
rows that ON DELETE SET NULL had changed, for vacuum to remove, and numbers drawn from sequences by triggers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Final, cast

from pgretention import backlog, catalog, db, exclusive, plan, shape
from pgretention.batch import Target, aim, claiming_after, plainly, prove_deleted
from pgretention.clock import Clock
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.exclusive import Entry, entered
from pgretention.job import LARGEST_BATCH, Job
from pgretention.report import Backlog
from pgretention.session import Connection, Session, connect
from pgretention.window import Cursor

STATEMENT: Final = timedelta(minutes=1)
"""How long one statement may take, as in a run."""

TARGET: Final = timedelta(seconds=1)
"""How long a batch is to take where the settings do not say."""

_MEASURED: Final = "ANALYZE, BUFFERS, WAL, VERBOSE, FORMAT JSON"


@dataclass(frozen=True, slots=True)
class Check:
    """A trigger that a batch fired, a foreign key's or somebody's own: how often and how long in all."""

    name: str
    table: str
    calls: int
    took: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """A batch that was deleted and rolled back.

    `rows` counts what went by table, in delete order. `wal` is bytes, others' among them; buffers are pages of 8 kB
    that the deletion looked at; `locks` are the strongest lock on each table. `refused` says why the database would
    not delete it.
    """

    claimed: int
    claiming: timedelta
    deleting: timedelta = timedelta(0)
    rows: Mapping[str, int] = field(default_factory=dict)
    wal: int = 0
    buffers_hit: int = 0
    buffers_read: int = 0
    checks: tuple[Check, ...] = ()
    locks: tuple[str, ...] = ()
    refused: str | None = None

    @property
    def took(self) -> timedelta:
        """All of it but the COMMIT."""
        return self.claiming + self.deleting


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What some batches would have cost, and what that means for everything that is expired."""

    job: Job
    cutoff: datetime
    backlog: Backlog
    batches: tuple[Rehearsed, ...]

    @property
    def per_row(self) -> timedelta | None:
        """Time for each root row; None when nothing was deleted."""
        done = [batch for batch in self.batches if batch.refused is None]
        claimed = sum(batch.claimed for batch in done)
        return sum((batch.took for batch in done), timedelta(0)) / claimed if claimed else None

    @property
    def batches_needed(self) -> int:
        """For everything that is expired."""
        return self.job.limits.batches_for(self.backlog.rows)

    @property
    def drained_in(self) -> timedelta | None:
        """How long deleting all that would take, waits between batches not counted."""
        return None if self.per_row is None else self.per_row * self.backlog.rows

    @property
    def runs_needed(self) -> int | None:
        """With the limits of the job."""
        limits, drained_in = self.job.limits, self.drained_in
        if drained_in is None:
            return None
        return max(ceil(drained_in / limits.max_run_duration), limits.runs_for(self.batches_needed))

    @property
    def target(self) -> timedelta:
        """How long a batch is to take."""
        return self.job.pace.batch_duration or TARGET

    @property
    def fitting(self) -> int | None:
        """The BatchSize with which a batch would take that long, as far as it is allowed."""
        return None if not self.per_row else max(1, min(LARGEST_BATCH, int(self.target / self.per_row)))

    def as_json(self) -> dict[str, object]:
        """Ready for `json.dumps`."""
        return {
            "job": self.job.name,
            "cutoff": self.cutoff.isoformat(),
            "backlog": self.backlog.rows,
            "backlog_exact": self.backlog.exact,
            "batches": [
                {
                    "claimed": batch.claimed,
                    "rows": dict(batch.rows),
                    "claim_seconds": round(batch.claiming.total_seconds(), 6),
                    "delete_seconds": round(batch.deleting.total_seconds(), 6),
                    "wal_bytes": batch.wal,
                    "buffers_hit": batch.buffers_hit,
                    "buffers_read": batch.buffers_read,
                    "triggers": [
                        {
                            "name": check.name,
                            "table": check.table,
                            "calls": check.calls,
                            "seconds": round(check.took.total_seconds(), 6),
                        }
                        for check in batch.checks
                    ],
                    "locks": list(batch.locks),
                    "refused": batch.refused,
                }
                for batch in self.batches
            ],
            "batches_needed": self.batches_needed,
            "runs_needed": self.runs_needed,
            "drained_in_seconds": None if self.drained_in is None else round(self.drained_in.total_seconds(), 3),
            "target_batch_seconds": self.target.total_seconds(),
            "fitting_batch_size": self.fitting,
        }


def rehearse(job: Job, dsn: str, clock: Clock, *, batches: int) -> Rehearsal:
    """Delete so many batches, oldest first, and roll each of them back.

    Raises Refusal where the tables are not what the policy says or another run is on, and Fault. Brakes hold runs only.
    """
    policy = job.policy
    with (
        connect(dsn, f"pgretention/{job.name}/rehearse") as session,
        entered(session, policy.lock) as entry,
    ):
        if entry is None:
            raise Refusal([_elsewhere(session, job)])
        target = aim(session, policy)
        expired = backlog.measure(session, target.statements, target.cutoff, backlog.MEASURING)
        done: list[Rehearsed] = []
        cursor: Cursor | None = None
        while len(done) < batches:
            batch, cursor = _rehearse(session, target, job.limits.batch_size, cursor, entry, clock)
            if batch is None:
                break
            done.append(batch)
    return Rehearsal(job, target.cutoff, expired, tuple(done))


def _elsewhere(session: Session, job: Job) -> str:
    holders = exclusive.holders(session, job.policy.lock) if job.policy.lock else None
    return f"another run of {job.name} is on{f', {holders}' if holders else ''}; rehearse when it is over"


def _rehearse(
    session: Session, target: Target, size: int, cursor: Cursor | None, entry: Entry, clock: Clock
) -> tuple[Rehearsed | None, Cursor | None]:
    """One batch after the cursor, and the cursor after it; None when nothing is left."""
    statements = target.statements
    claiming, binds = claiming_after(cursor, target, size)
    batch: Rehearsed | None = None
    try:
        with db.undone(session, STATEMENT, plan.PLANNER) as connection:
            if not entry(connection):
                raise Refusal(["another run has begun; rehearse when it is over"])
            connection.execute(statements.hold)
            if catalog.fingerprint(connection, statements.policy.tables) != target.fingerprint:
                raise Refusal(["the definition of a table has just been changed; look at it, then rehearse again"])
            written, began = db.written(connection), clock.monotonic()
            rows, addresses, keys, expiry, key = cast(
                "tuple[int, str, str, str, str]", connection.execute(claiming, binds).fetchone()
            )
            if rows == 0:
                return None, cursor
            claimed, cursor = clock.monotonic(), Cursor(expiry, key)
            batch = Rehearsed(claimed=rows, claiming=timedelta(seconds=claimed - began))
            db.tighten(session, STATEMENT)
            values = {"cutoff": target.cutoff.isoformat(), "addresses": addresses, "keys": keys}
            batch = _deleted(connection, batch, target, values)
            took = timedelta(seconds=clock.monotonic() - claimed)
            batch = replace(batch, deleting=took, wal=db.written(connection) - written, locks=_locks(connection))
    except Fault as fault:
        if batch is None or fault.kind is not FaultKind.FOREIGN_KEY:
            raise
        told = plainly(fault, target)
        if told.kind is not FaultKind.FOREIGN_KEY:
            raise told from None
        by = f"{told}: {told.constraint}" if told.constraint else str(told)
        return replace(batch, refused=f"a run would divide it, since {by}"), cursor
    return batch, cursor


def _deleted(connection: Connection, batch: Rehearsed, target: Target, values: Mapping[str, str]) -> Rehearsed:
    """The batch as it is when it is deleted, with what EXPLAIN measured; raises Fault where not all of it went."""
    with shape.prepared(connection, target.statements.delete, values) as execute:
        explained = shape.node_of(connection, execute, _MEASURED)
    connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    rows = {
        f"{node['Schema']}.{node['Relation Name']}": int(node["Actual Rows"])
        for node in shape.nodes(explained["Plan"])
        if node["Node Type"] == "ModifyTable"
    }
    policy = target.statements.policy
    prove_deleted(rows[str(policy.root)], batch.claimed)
    return replace(
        batch,
        rows={str(table): rows[str(table)] for table in policy.tables},
        buffers_hit=explained["Plan"]["Shared Hit Blocks"],
        buffers_read=explained["Plan"]["Shared Read Blocks"],
        checks=tuple(
            Check(
                trigger.get("Constraint Name") or trigger["Trigger Name"],
                trigger["Relation"],
                int(trigger["Calls"]),
                timedelta(milliseconds=trigger["Time"]),
            )
            for trigger in explained["Triggers"]
        ),
    )


def _locks(connection: Connection) -> tuple[str, ...]:
    rows = connection.execute(db.statement("rehearsal_locks"))
    return tuple(str(lock) for (lock,) in rows)
