"""What the server, the role and whoever else is connected would do to a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from pgretention import brakes, schema
from pgretention.clock import Clock
from pgretention.job import Brake, Pace, Safety
from pgretention.policy import Policy
from pgretention.preflight.finding import Finding, Severity, quoted_name, statement
from pgretention.preflight.tables import names
from pgretention.session import Connection, Session

OLDEST_SERVER = 150000
"""The first major version that everything here is tested on, as server_version_num."""

CLOCKS_NOTED = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Old:
    """What is older keeps dead rows for longer than a run needs them gone: by time, or where there is none by how many
    transactions have begun since.
    """

    time: timedelta = timedelta(minutes=5)
    transactions: int = 100_000


OLD = Old()

_KEPT = {
    "rows": (
        "old-snapshot",
        "keeps vacuum from removing what a run deletes: tables and indexes do not get smaller, and reads get slower",
    ),
    "WAL": ("idle-slot", "keeps the WAL that a run writes, until the disk is full"),
}

_OID = """(SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE format('"%%s"."%%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""')) = %s)"""
"""By its name, since a cast to regclass needs USAGE on the schema."""

_GRANT = re.compile(r"GRANT (?P<what>.+) ON (?P<schema>SCHEMA )?(?P<where>\S+) TO ")


def pooler(session: Session, policy: Policy) -> Iterator[Finding]:
    """Where the lock is taken, and that there is one connection."""
    if session.pooled:
        lock = "each batch takes the job's lock for its transaction, and " if policy.lock else ""
        why = f"a pooler stands in between: {lock}what a session would keep is not relied on"
        fix = "for Workers of more than 1, and for a lock that lasts a whole run, connect to the server itself"
        yield Finding(Severity.NOTE, "pooler", "the connection", why, fix)


def clocks_and_settings(connection: Connection, clock: Clock, safety: Safety) -> Iterator[Finding]:
    """The server's version, its clock against this host's, and timeouts that are shorter than ours need to be."""
    before = clock.now()
    row = connection.execute(statement("server")).fetchone()
    after = clock.now()
    version, seconds, timeouts = cast("tuple[int, float, list[str]]", row)
    if version < OLDEST_SERVER:
        why = f"is PostgreSQL {version // 10000}: nothing here is tested on it"
        yield Finding(Severity.WARNING, "old-server", "the server", why, "use PostgreSQL 15 or newer")
    here = before.timestamp() + (after - before).total_seconds() / 2
    apart = timedelta(seconds=abs(here - seconds))
    if apart > CLOCKS_NOTED:
        refused = apart > brakes.CLOCKS_APART and Brake.CLOCKS_APART not in safety.overridden
        severity = Severity.ERROR if refused else Severity.WARNING
        why = (
            f"differs from this host's by {apart.total_seconds():,.0f} s: rows expire by the server's clock, and runs "
            "begin by the host's"
        )
        yield Finding(severity, "clocks-apart", "the server's clock", why, "find out which one is wrong: timedatectl")
    for setting in timeouts:
        why = "is set for this role, database or server; a run is not affected, since it sets its own"
        yield Finding(Severity.NOTE, "timeout", setting, why, "nothing, as far as pgretention goes")


def privileges(connection: Connection, policy: Policy) -> Iterator[Finding]:
    """What the role may not do although a run needs it, and what it may although no run does."""
    row = connection.execute(statement("role"), names(policy)).fetchone()
    role, superuser, owned = cast("tuple[str, bool, list[str]]", row)
    for grant in schema.grants([policy], role).splitlines():
        found = _GRANT.match(grant)
        missing = _missing(connection, found) if found else []
        if found and missing:
            why = f"the role {role} lacks what a run needs: {', '.join(missing)}"
            yield Finding(Severity.ERROR, "missing-privilege", found["where"].replace('"', ""), why, grant)
    if superuser or owned:
        may = "is a superuser" if superuser else f"owns or may truncate {', '.join(owned)}"
        why = f"{may}: a mistake in a setting could do more than any run does"
        fix = "pgretention schema --role NAME   -- prints the grants of a role that can do nothing else"
        yield Finding(Severity.WARNING, "too-many-privileges", f"role {role}", why, fix)


def _missing(connection: Connection, grant: re.Match[str]) -> list[str]:
    """Of what a grant gives, the privileges that the role does not have."""
    asked: list[tuple[str, str, tuple[str, ...]]] = []
    if grant["schema"]:
        asked.append(("USAGE", "has_schema_privilege(%s, %s)", (_bare(grant["where"]), "USAGE")))
    else:
        for privilege, columns in re.findall(r"(\w+)(?: \(([^)]*)\))?", grant["what"]):
            if not columns:
                asked.append((privilege, f"has_table_privilege({_OID}, %s)", (grant["where"], privilege)))
                continue
            asked += [
                (
                    f"{privilege} ({column})",
                    f"has_column_privilege({_OID}, %s, %s)",
                    (grant["where"], _bare(column), privilege),
                )
                for column in columns.split(", ")
            ]
    return [
        name
        for name, call, binds in asked
        if connection.execute(f"SELECT {call}".encode(), binds).fetchone() != (True,)
    ]


def _bare(identifier: str) -> str:
    return identifier.strip('"').replace('""', '"')


def unseen(connection: Connection) -> Iterator[Finding]:
    """Whether the role sees who has an old transaction."""
    row = connection.execute(
        "SELECT current_user::text, pg_has_role('pg_read_all_stats', 'USAGE'), count(*) FILTER (WHERE state IS NULL)"
        " FROM pg_stat_activity WHERE usename IS DISTINCT FROM current_user AND datname IS NOT NULL"
    ).fetchone()
    role, sees, others = cast("tuple[str, bool, int]", row)
    if others and not sees:
        why = f"does not see how old the transactions of {others} sessions of other roles are: an old one keeps rows"
        yield Finding(
            Severity.NOTE,
            "unseen-transactions",
            f"role {role}",
            why,
            f"GRANT pg_read_all_stats TO {quoted_name(role)};",
        )


def replicas(connection: Connection, pace: Pace) -> Iterator[Finding]:
    """Whether the role sees how far replicas are behind, where a run is to wait for them."""
    if pace.replica_lag is None:
        return
    row = connection.execute(
        "SELECT current_user::text, pg_has_role('pg_read_all_stats', 'USAGE'), count(*) FROM pg_stat_replication"
    ).fetchone()
    role, sees, count = cast("tuple[str, bool, int]", row)
    if not sees:
        severity = Severity.ERROR if count else Severity.WARNING
        why = f"MaxReplicaLag is set, and the role {role} cannot see how far replicas are behind"
        yield Finding(severity, "unseen-replicas", f"role {role}", why, f"GRANT pg_monitor TO {quoted_name(role)};")


def horizon(connection: Connection, old: Old) -> Iterator[Finding]:
    """Who keeps what a run deletes from being removed by vacuum, and the WAL it writes from being recycled."""
    binds = {"older_than": old.time.total_seconds(), "transactions": old.transactions}
    for kept, who, fix in connection.execute(statement("horizon"), binds):
        code, why = _KEPT[str(kept)]
        yield Finding(Severity.WARNING, code, str(who), why, str(fix))
