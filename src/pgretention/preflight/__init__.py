"""What would go wrong in a run, found before it: every look is a READ ONLY transaction.

Severity follows the damage. An error stops a job: rows would be lost that no policy names, or a batch has no bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pgretention import backlog, catalog, db, plan
from pgretention.clock import Clock
from pgretention.errors import Fault, FaultKind, Refusal
from pgretention.job import Job
from pgretention.preflight import server, tables
from pgretention.preflight.finding import Finding, Severity, sorted_findings
from pgretention.preflight.tables import Reference
from pgretention.session import Session, connect

__all__ = ["Finding", "Reference", "Severity", "application_name", "findings", "inspect", "references"]


def inspect(job: Job, dsn: str, clock: Clock, *, older_than: server.Old = server.OLD) -> tuple[Finding, ...]:
    """Everything that a run of the job would meet on this database, the worst first; deletes nothing. Raises Fault.

    `older_than` is how old something has to be to count as what keeps dead rows.
    """
    with connect(dsn, application_name(job)) as session:
        return findings(job, session, clock, older_than)


def application_name(job: Job) -> str:
    """What the connection of a check is called."""
    return f"pgretention/{job.name}/check"


def references(job: Job, session: Session) -> tuple[Reference, ...]:
    """Every foreign key that a deletion of the job's rows meets, whoever declared it."""
    with db.looking(session, backlog.MEASURING) as connection:
        return tuple(tables.references(connection, job.policy))


def findings(job: Job, session: Session, clock: Clock, older_than: server.Old = server.OLD) -> tuple[Finding, ...]:
    """The same on a connection that is open."""
    policy = job.policy
    with db.looking(session, backlog.MEASURING) as connection:
        found = [*server.pooler(session, policy), *server.clocks_and_settings(connection, clock, job.safety)]
        found += [*server.horizon(connection, older_than), *server.unseen(connection)]
        found += server.replicas(connection, job.pace)
        read = catalog.read(connection, policy.tables)
        met = tables.references(connection, policy)
        misfits = list(tables.misfits(policy, read, connection.info.user))
        found += [*misfits, *tables.undeclared(policy, met), *tables.unindexed(met)]
        found += tables.triggers(connection, policy)
        if not any("no such table" in finding.why or "has no column" in finding.why for finding in misfits):
            found += server.privileges(connection, policy)
    found += _by_reading_rows(session, job)
    return sorted_findings(found)


def _by_reading_rows(session: Session, job: Job) -> Iterator[Finding]:
    """Looks that need the privileges of a run and tables as the policy has them, and may take too long."""
    policy = job.policy
    unseen = []
    try:
        with db.looking(session, backlog.MEASURING, plan.PLANNER) as connection:
            read = catalog.read(connection, policy.tables)
            # A cascade, which is found already, would refuse the plan; the claim is the same with it.
            keys = tuple(key for key in read.foreign_keys if key.on_delete != "CASCADE")
            statements = plan.build(policy, replace(read, foreign_keys=keys))
            size = tables.size_of(connection, policy.root)
            yield from list(tables.unclaimable(connection, statements, size))
    except (Refusal, Fault) as error:
        _unless_expected(error)
        unseen.append("whether an index serves the claims")
    try:
        with db.looking(session, backlog.MEASURING) as connection:
            yield from list(tables.never_expiring(connection, policy))
    except (Refusal, Fault) as error:
        _unless_expected(error)
        unseen.append("whether rows have no expiry")
    if unseen:
        why = f"could not be looked at: {' and '.join(unseen)}"
        fix = "put right what else is found, or look when the server is less busy, then check again"
        yield Finding(Severity.NOTE, "not-looked-at", str(policy.root), why, fix)


def _unless_expected(error: Refusal | Fault) -> None:
    """Raise what nothing that is found explains."""
    expected = {FaultKind.PRIVILEGE, FaultKind.STATEMENT_TIMEOUT, FaultKind.DATABASE}
    if isinstance(error, Fault) and error.kind not in expected:
        raise error
