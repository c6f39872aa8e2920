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
- Behind a pooler the next transaction can be on another server connection, so there an exclusive job's lock is taken
  anew inside every batch's transaction (A-09).
- An error rolls back the batch it happened in, and nothing else (A-12).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from pgretention import catalog, db, plan
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.plan import Plan
from pgretention.session import Connection, Session
from pgretention.window import Claim, Cursor


@dataclass(frozen=True, slots=True)
class Target:
    """What a run deletes: the statements, the cutoff they are bound to, the definition of the tables they are for."""

    statements: Plan
    cutoff: datetime
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch: how many root rows, a count per table in delete order, and the last root row."""

    rows: int
    deleted: dict[str, int]
    last: Cursor | None


_LOOK_FOR = "look for a BEFORE DELETE trigger that returns NULL and for row-level security"

NOTHING = Batch(0, {}, None)
"""Nothing was there to claim."""


class LockTaken(Exception):
    """Another run holds the lock that this batch's transaction asked for."""


class RolledBack(Exception):
    """Nothing of a batch is deleted; why, and what it had claimed by then."""

    def __init__(self, fault: Fault, claim: Claim | None) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.claim = claim


def claim_and_delete(
    session: Session,
    target: Target,
    size: int,
    cursor: Cursor | None,
    *,
    time: Callable[[int], timedelta],
    forced: Callable[[], bool],
) -> Batch:
    """Delete up to `size` expired root rows that come after `cursor`, with their children.

    `time` tells how long a statement over so many root rows may take; `forced` whether even this batch is to be given
    up. Raises RolledBack, LockTaken, and Refusal when a table is no longer what the plan was made for.
    """
    statements, policy = target.statements, target.statements.policy
    binds: dict[str, object] = {"cutoff": target.cutoff}
    claiming = statements.claim_first(size)
    if cursor is not None:
        claiming = statements.claim_next(size)
        binds |= {"after_expiry": cursor.expiry, "after_key": cursor.key}
    claim: Claim | None = None
    try:
        with db.transaction(session, time(size), plan.PLANNER) as connection:
            if session.pooled and policy.lock is not None:
                _take(connection, policy.lock)
            connection.execute(statements.hold)
            _same_definition(connection, target)
            claimed, addresses, keys, last_expiry, last_key = cast(
                "tuple[int, str, str, str, str]", connection.execute(claiming, binds).fetchone()
            )
            if claimed == 0:
                return NOTHING
            _prove_count(claimed, at_most=size)
            claim = Claim(claimed, keys, Cursor(last_expiry, last_key))
            _go_on_unless(forced)
            db.tighten(session, time(claimed))
            binds = {"cutoff": target.cutoff, "addresses": addresses, "keys": keys}
            counts = cast("tuple[int, ...]", connection.execute(statements.delete, binds).fetchone())
            _prove_deleted(counts[-1], claimed)
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except Fault as fault:
        raise RolledBack(_plainly(fault, target), claim) from None
    return Batch(claimed, {str(table): rows for table, rows in zip(policy.tables, counts, strict=True)}, claim.last)


def _take(connection: Connection, lock: str) -> None:
    if not db.try_lock(connection, lock, for_transaction=True):
        raise LockTaken


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


def _prove_deleted(deleted: int, claimed: int) -> None:
    if deleted != claimed:
        raise Fault(FaultKind.CLAIM_MISMATCH, f"{claimed} rows claimed but {deleted} deleted; {_LOOK_FOR}")


def _plainly(fault: Fault, target: Target) -> Fault:
    """A declared foreign key that refuses means that children were not deleted although they were told to go."""
    if fault.kind is FaultKind.FOREIGN_KEY and (fault.table, fault.constraint) in target.statements.declared:
        words = f"rows of {fault.table} are still there after their deletion; {_LOOK_FOR}"
        return Fault(FaultKind.CLAIM_MISMATCH, words, sqlstate=fault.sqlstate, constraint=fault.constraint)
    return fault
