"""The exact statements of a run, made from a policy and the catalog: values to execute, print and compare in tests.

Every statement that finds or deletes rows repeats the same condition: all guards, `expiry < cutoff` with the cutoff as
a bound parameter, and `expiry > '-infinity'`, since the infinities are never expired. No statement says now().

Operators, functions and types are named with their schema. Otherwise one in `public` that fits a column's type better
would be called in their place and decide what is expired (chapter 10.2). The search_path itself is left as it is,
because the triggers of the tables run under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import LiteralString

from psycopg import sql

from pgretention import fit
from pgretention.catalog import Catalog
from pgretention.errors import Refusal
from pgretention.policy import Child, Condition, Equals, IsNull, Policy, Table

_KEY_TYPES = {
    "uuid": sql.SQL("pg_catalog.uuid"),
    "bigint": sql.SQL("pg_catalog.int8"),
    "integer": sql.SQL("pg_catalog.int4"),
    "smallint": sql.SQL("pg_catalog.int2"),
    "text": sql.SQL("pg_catalog.text"),
}


CUTOFF: LiteralString = "SELECT pg_catalog.now() OPERATOR(pg_catalog.-) %s"
"""The instant before which a row is expired, given the retention: by the server's clock, read once a run (A-06)."""


PLANNER: Mapping[LiteralString, str] = MappingProxyType(
    {
        "plan_cache_mode": "force_generic_plan",
        "enable_sort": "off",
        "enable_seqscan": "off",
        "jit": "off",
    }
)
"""How the planner is told to run a batch, since its guesses go wrong just where rows are being deleted by the thousand.

Without a look at the values it takes ten look-ups for 5000 keys and not a scan of the table, whatever BatchSize; and a
claim reads the index in its order rather than sort what statistics from before the run make it expect. Where there is
no such index both are still possible, only dearer (chapter 20.7).
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The statements of one policy on one database, with `psycopg` placeholders for what changes in a run.

    `delete` removes one claimed batch and answers one row: a count per table, in delete order. `declared` are the
    foreign keys, as (table, name), that cannot refuse it, since it deletes the rows they protect.
    """

    policy: Policy
    key_type: str
    delete: sql.Composed
    declared: frozenset[tuple[str, str]]

    def claim_first(self, batch_size: int) -> sql.Composed:
        """Lock up to `batch_size` expired root rows, from the oldest on, skipping those somebody else has locked.

        Answers one row: how many, their addresses and keys as array texts, and the last one's expiry and key as
        texts, so that dates Python cannot hold pass through unharmed. The limit is written out, since the planner
        takes an unknown one for a tenth of the table.
        """
        return _claim(self.policy, _expired(self.policy), batch_size)

    def claim_next(self, batch_size: int) -> sql.Composed:
        """The same for the rows that come after the cursor.

        The cursor stands in the place of -infinity: with two lower bounds PostgreSQL 18 starts to read the index at
        the wrong one, and walks over the entries of everything deleted before.
        """
        cursor = sql.SQL(
            "({}, {}) OPERATOR(pg_catalog.>) (%(after_expiry)s::pg_catalog.timestamptz, %(after_key)s::{})"
        ).format(sql.Identifier(self.policy.expiry), sql.Identifier(self.policy.key), _KEY_TYPES[self.key_type])
        return _claim(self.policy, _all_of([*_overdue(self.policy), cursor]), batch_size)

    @property
    def hold(self) -> sql.Composed:
        """Keep every table's definition as it is until the end of the transaction; writers are not in its way.

        The lock is the one a DELETE takes, and stands against ALTER TABLE, ADD FOREIGN KEY and CREATE TRIGGER
        (chapter 13.3.1).
        """
        tables = sql.SQL(", ").join(sql.SQL("ONLY {}").format(_name(table)) for table in self.policy.tables)
        return sql.SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(tables)

    @property
    def expired(self) -> sql.Composed:
        """The expired root rows themselves, without columns: to be counted, or estimated."""
        return sql.SQL("SELECT FROM ONLY {root}\n WHERE {expired}").format(
            root=_name(self.policy.root), expired=_expired(self.policy)
        )

    @property
    def oldest_age(self) -> sql.Composed:
        """How many seconds before the instant `now` the oldest expiry lies; answers no row when nothing is expired."""
        return sql.SQL(
            "SELECT extract(epoch FROM %(now)s OPERATOR(pg_catalog.-) {expiry})::pg_catalog.float8\n"
            "  FROM ONLY {root}\n WHERE {expired}\n ORDER BY {expiry}, {key}\n LIMIT 1"
        ).format(
            key=sql.Identifier(self.policy.key),
            expiry=sql.Identifier(self.policy.expiry),
            root=_name(self.policy.root),
            expired=_expired(self.policy),
        )

    @property
    def span(self) -> sql.Composed:
        """The oldest and the newest expiry of the expired root rows, as texts; NULL when there are none."""
        return sql.SQL(
            "SELECT pg_catalog.min({expiry})::pg_catalog.text, pg_catalog.max({expiry})::pg_catalog.text\n"
            "  FROM ONLY {root}\n WHERE {expired}"
        ).format(expiry=sql.Identifier(self.policy.expiry), root=_name(self.policy.root), expired=_expired(self.policy))

    def expired_children(self, child: Child) -> sql.Composed:
        """The rows of a child table that belong to expired root rows, without columns."""
        return sql.SQL(
            "SELECT FROM ONLY {child}\n WHERE {root_key} IN (SELECT {key} FROM ONLY {root} WHERE {expired})"
        ).format(
            child=_name(child.table),
            root_key=sql.Identifier(child.root_key),
            key=sql.Identifier(self.policy.key),
            root=_name(self.policy.root),
            expired=_expired(self.policy),
        )


def build(policy: Policy, catalog: Catalog) -> Plan:
    """The plan of a policy on the database the catalog describes; raises Refusal with every reason found."""
    reasons = fit.reasons_against(policy, catalog)
    if reasons:
        raise Refusal(reasons)
    key_type = catalog.tables[policy.root].columns[policy.key]
    declared = {(child.table, (child.root_key,)) for child in policy.children}
    keys = [key for key in catalog.foreign_keys if (key.table, key.columns) in declared]
    return Plan(
        policy=policy,
        key_type=key_type,
        delete=_delete(policy, key_type),
        declared=frozenset((str(key.table), key.name) for key in keys if key.references == policy.root),
    )


def _claim(policy: Policy, condition: sql.Composed, batch_size: int) -> sql.Composed:
    return sql.SQL(
        "WITH claimed (address, key, expiry) AS MATERIALIZED (\n"
        "    SELECT ctid, {key}, {expiry}\n"
        "      FROM ONLY {root}\n"
        "     WHERE {condition}\n"
        "     ORDER BY {expiry}, {key}\n"
        "     LIMIT {batch_size}\n"
        "       FOR UPDATE SKIP LOCKED\n"
        ")\n"
        "SELECT pg_catalog.count(*),\n"
        "       pg_catalog.array_agg(address)::pg_catalog.text, pg_catalog.array_agg(key)::pg_catalog.text,\n"
        "       (pg_catalog.array_agg(expiry))[pg_catalog.count(*)]::pg_catalog.text,\n"
        "       (pg_catalog.array_agg(key))[pg_catalog.count(*)]::pg_catalog.text\n"
        "  FROM claimed"
    ).format(
        key=sql.Identifier(policy.key),
        expiry=sql.Identifier(policy.expiry),
        root=_name(policy.root),
        condition=condition,
        batch_size=sql.Literal(batch_size),
    )


def _delete(policy: Policy, key_type: str) -> sql.Composed:
    """One statement for the whole batch: children in policy order, then the root rows.

    PostgreSQL runs data-modifying CTEs in no promised order (chapter 7.8.4), so each one here waits for the count of
    the one before: the count is a one-time filter, read before the scan of the next table begins, and it cannot be
    known before every row of the previous table is deleted. That the SET NULL triggers run when all of it is done,
    and find nothing left to rewrite, is what makes one statement cheaper than three.

    Root rows are found by the address under which the claim locked them: a locked row cannot move or change before
    the transaction ends. Guard and cutoff stand here once more all the same, as one condition that no index can serve:
    with statistics from when nothing was expired the planner would rather look for all expired rows than for these.
    """
    conditions = [
        sql.SQL("{} OPERATOR(pg_catalog.=) ANY (%(keys)s::{}[])").format(
            sql.Identifier(child.root_key), _KEY_TYPES[key_type]
        )
        for child in policy.children
    ]
    locked = sql.SQL("ctid OPERATOR(pg_catalog.=) ANY (%(addresses)s::pg_catalog.tid[])\n           AND ({}) IS TRUE")
    conditions.append(locked.format(_expired(policy)))
    steps = [
        _step(place, table, condition)
        for place, (table, condition) in enumerate(zip(policy.tables, conditions, strict=True), start=1)
    ]
    counts = sql.SQL(", ").join(
        sql.SQL("(SELECT rows FROM {})").format(sql.Identifier(f"counted_{place}"))
        for place in range(1, len(steps) + 1)
    )
    return sql.SQL("WITH {steps}\nSELECT {counts}").format(steps=sql.SQL(",\n").join(steps), counts=counts)


def _step(place: int, table: Table, condition: sql.Composed) -> sql.Composed:
    wait = sql.Composed([])
    if place > 1:
        wait = sql.SQL("\n           AND (SELECT rows FROM {}) OPERATOR(pg_catalog.>=) 0").format(
            sql.Identifier(f"counted_{place - 1}")
        )
    return sql.SQL(
        "{deleted} AS (\n"
        "    DELETE FROM ONLY {table}\n"
        "     WHERE {condition}{wait}\n"
        " RETURNING 1\n"
        "), {counted} AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM {deleted})"
    ).format(
        deleted=sql.Identifier(f"deleted_{place}"),
        counted=sql.Identifier(f"counted_{place}"),
        table=_name(table),
        condition=condition,
        wait=wait,
    )


def _expired(policy: Policy) -> sql.Composed:
    """The whole condition: a row for which it does not hold is never deleted."""
    return _all_of(
        [*_overdue(policy), sql.SQL("{} OPERATOR(pg_catalog.>) '-infinity'").format(sql.Identifier(policy.expiry))]
    )


def _overdue(policy: Policy) -> list[sql.Composed]:
    before_cutoff = sql.SQL("{} OPERATOR(pg_catalog.<) %(cutoff)s").format(sql.Identifier(policy.expiry))
    return [*(_condition(condition) for condition in policy.guard), before_cutoff]


def _all_of(conditions: list[sql.Composed]) -> sql.Composed:
    return sql.SQL(" AND ").join(conditions)


def _condition(condition: Condition) -> sql.Composed:
    match condition:
        case Equals(column, value):
            return sql.SQL("{} OPERATOR(pg_catalog.=) {}").format(sql.Identifier(column), sql.Literal(value))
        case IsNull(column):
            return sql.SQL("{} IS NULL").format(sql.Identifier(column))


def _name(table: Table) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)
