"""One batch, one transaction: lock expired root rows, delete their children and them, prove the count, commit.

Why each line of the deleting path is there. A deleted row cannot be brought back, so nothing here is left to luck:

- A batch first locks its root rows, at most as many as it is asked for, oldest first, in a statement of its own. FOR
  UPDATE makes PostgreSQL look at the newest version of each row, so one that was touched a moment ago no longer meets
  the condition and stays (F-13). SKIP LOCKED steps around rows somebody else is using, another run of ours included.
- While a root row is locked nobody can add a child to it, since the foreign key check of the newcomer waits for us.
  The deleting statement comes after the claim and sees every child there will ever be.
- Before that, every table is held in its present definition, and that must be the one the plan was made for. A foreign
  key with CASCADE, a trigger or another type added since the run began would make other statements of these.
- Children are found by the keys just claimed, never by their own age; root rows by the address under which they are
  locked, with every guard and the cutoff repeated (F-02). Whatever is not claimed is not touched.
- As many root rows must go as were claimed, and never more than were asked for. Anything else, a trigger that swallows
  deletions say, rolls the batch back.
- Deferred constraints are checked before COMMIT, while a timeout can still end it and an error still has a name.
- Whether the run may still delete at all is asked in the transaction itself, before anything else (A-09): see
  `exclusive`.
- An error rolls back the batch it happened in, and nothing else (A-12).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from psycopg import sql

from pgretention import backlog, catalog, db, plan
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.exclusive import Entry
from pgretention.plan import Plan
from pgretention.policy import Policy
from pgretention.session import Connection, Session
from pgretention.window import Asking, Claim, Cursor


@dataclass(frozen=True, slots=True)
class Target:
    """What a run deletes: the statements, the cutoff they are bound to, the definition of the tables they are for."""

    statements: Plan
    cutoff: datetime
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch: what it had claimed, None if nothing was there, and a count per table in delete order."""

    claim: Claim | None
    deleted: dict[str, int]


_LOOK_FOR = "look for a BEFORE DELETE trigger that returns NULL and for row-level security"


class Barred(Exception):
    """This batch may not be deleted: another run is on, or this one is over."""


class RolledBack(Exception):
    """Nothing of a batch is deleted; why, and what it had claimed by then."""

    def __init__(self, fault: Fault, claim: Claim | None) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.claim = claim


def aim(session: Session, policy: Policy) -> Target:
    """What is deleted from now on; raises Refusal where that would not be what the policy says, and Fault."""
    with db.looking(session, backlog.MEASURING) as connection:
        fingerprint = catalog.fingerprint(connection, policy.tables)
        statements = plan.build(policy, catalog.read(connection, policy.tables))
        return Target(statements, backlog.read_cutoff(connection, policy.retention), fingerprint)


def claiming_after(cursor: Cursor | None, target: Target, size: int) -> tuple[sql.Composed, dict[str, object]]:
    """The statement that claims so many root rows after the cursor, from the oldest on without one, and its binds."""
    if cursor is None:
        return target.statements.claim_first(size), {"cutoff": target.cutoff}
    after = {"after_expiry": cursor.expiry, "after_key": cursor.key}
    return target.statements.claim_next(size), {"cutoff": target.cutoff, **after}


def claim_and_delete(
    session: Session,
    target: Target,
    asking: Asking,
    *,
    entry: Entry,
    time: Callable[[int], timedelta],
    forced: Callable[[], bool],
) -> Batch:
    """Delete the expired root rows that are asked for with their children, as far as nobody else has locked them.

    `entry` tells whether the run may delete at all, `time` how long a statement over so many root rows may take, and
    `forced` whether even this batch is to be given up. What is claimed is told before anything is deleted.
    Raises RolledBack, Barred, and Refusal when a table is no longer what the plan was made for.
    """
    statements, policy = target.statements, target.statements.policy
    claiming, binds = claiming_after(asking.cursor, target, asking.size)
    claim: Claim | None = None
    try:
        with db.transaction(session, time(asking.size), plan.PLANNER) as connection:
            if not entry(connection):
                raise Barred
            connection.execute(statements.hold)
            _same_definition(connection, target)
            rows, addresses, keys, last_expiry, last_key = cast(
                "tuple[int, str, str, str, str]", connection.execute(claiming, binds).fetchone()
            )
            if rows == 0:
                asking.claimed(None)
                return Batch(None, {})
            _prove_count(rows, at_most=asking.size)
            claim = Claim(rows, keys, Cursor(last_expiry, last_key))
            asking.claimed(claim)
            _go_on_unless(forced)
            db.tighten(session, time(rows))
            binds = {"cutoff": target.cutoff, "addresses": addresses, "keys": keys}
            counts = cast("tuple[int, ...]", connection.execute(statements.delete, binds).fetchone())
            prove_deleted(counts[-1], rows)
            db.tighten(session, time(rows))  # less time is left by now, and a trigger may have set what it likes
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except Fault as fault:
        raise RolledBack(plainly(fault, target), claim) from None
    return Batch(claim, {str(table): count for table, count in zip(policy.tables, counts, strict=True)})


def _same_definition(connection: Connection, target: Target) -> None:
    if catalog.fingerprint(connection, target.statements.policy.tables) != target.fingerprint:
        raise Refusal(["the definition of a table changed while the run was on; look at the change, then run again"])


def _go_on_unless(forced: Callable[[], bool]) -> None:
    """A cancellation that arrived between two statements had nothing to cancel; this is where it is heard."""
    if forced():
        raise Fault(FaultKind.CANCELLED, "stopped before anything of this batch was deleted")


def _prove_count(claimed: int, *, at_most: int) -> None:
    if claimed > at_most:
        raise Fault(FaultKind.CLAIM_MISMATCH, f"{claimed} rows claimed where at most {at_most} were asked for")


def prove_deleted(deleted: int, claimed: int) -> None:
    """Raise Fault where other rows went than were claimed, or fewer."""
    if deleted != claimed:
        raise Fault(FaultKind.CLAIM_MISMATCH, f"{claimed} rows claimed but {deleted} deleted; {_LOOK_FOR}")


def plainly(fault: Fault, target: Target) -> Fault:
    """A declared foreign key that refuses means that children were not deleted although they were told to go."""
    if fault.kind is FaultKind.FOREIGN_KEY and (fault.table, fault.constraint) in target.statements.declared:
        words = f"rows of {fault.table} are still there after their deletion; {_LOOK_FOR}"
        return Fault(FaultKind.CLAIM_MISMATCH, words, sqlstate=fault.sqlstate, constraint=fault.constraint)
    return fault
