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

from pgretention.catalog import Catalog, TableFacts
from pgretention.errors import Refusal
from pgretention.policy import Child, Condition, Equals, IsNull, Policy, Table

_EXPIRY_TYPE = "timestamp with time zone"
_GUARD_TYPES = ("text", "character varying")  # those that equal a text exactly, blanks and case included
_ENUM, _COMPOSITE = "enum ", "composite "
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

    `delete` removes one claimed batch and answers one row: a count per table, in delete order.
    """

    policy: Policy
    key_type: str
    delete: sql.Composed

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
    reasons = _mismatches(policy, catalog)
    if reasons:
        raise Refusal(reasons)
    key_type = catalog.tables[policy.root].columns[policy.key]
    return Plan(policy=policy, key_type=key_type, delete=_delete(policy, key_type))


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


def _mismatches(policy: Policy, catalog: Catalog) -> list[str]:
    """Why this policy cannot be run on this database, one line a reason."""
    reasons = [reason for table in policy.tables for reason in _table_mismatches(table, catalog.tables.get(table))]
    root = catalog.tables.get(policy.root)
    if root is None or reasons:
        return reasons
    reasons += _root_mismatches(policy, root)
    for child in policy.children:
        reasons += _child_mismatches(child, catalog.tables[child.table], policy, root)
        reasons += _strangers(child, policy, catalog)
    return [*reasons, *_order_mismatches(policy, catalog), *_cascades(policy, catalog)]


def _table_mismatches(table: Table, facts: TableFacts | None) -> list[str]:
    if facts is None:
        return [f"{table}: no such table; create it, or point the connection at the database that has it"]
    if facts.kind != "table" or facts.has_inheritors:
        what = facts.kind if facts.kind != "table" else "table that others inherit from"
        return [f"{table}: is a {what}; only plain tables can be cleaned"]
    return [f"{table}: {hazard}" for hazard in facts.hazards]


def _root_mismatches(policy: Policy, root: TableFacts) -> list[str]:
    needed = (policy.key, policy.expiry, *(condition.column for condition in policy.guard))
    reasons = [
        f"{root.table}: has no column {column}, which the policy {policy.name} needs"
        for column in needed
        if column not in root.columns
    ]
    if reasons:
        return reasons
    if root.columns[policy.key] not in _KEY_TYPES:
        reasons.append(
            f"{root.table}.{policy.key}: is of type {root.columns[policy.key]}; a key must be {', '.join(_KEY_TYPES)}"
        )
    if policy.key not in root.unique:
        reasons.append(f"{root.table}.{policy.key}: is neither primary key nor NOT NULL and unique on its own")
    if root.columns[policy.expiry] != _EXPIRY_TYPE:
        found = root.columns[policy.expiry]
        reasons.append(
            f"{root.table}.{policy.expiry}: is of type {found}; only {_EXPIRY_TYPE} says which instant is meant"
        )
    for condition in policy.guard:
        found = root.columns[condition.column]
        if found.startswith(_COMPOSITE):
            reasons.append(f"{root.table}.{condition.column}: is of type {found}; it can be NULL and not NULL at once")
        if isinstance(condition, Equals) and found not in _GUARD_TYPES and not found.startswith(_ENUM):
            reasons.append(
                f"{root.table}.{condition.column}: is of type {found}; a guard needs text, varchar or an enum"
            )
    return reasons


def _child_mismatches(child: Child, facts: TableFacts, policy: Policy, root: TableFacts) -> list[str]:
    if child.root_key not in facts.columns:
        return [f"{child.table}: has no column {child.root_key}, which the policy {policy.name} needs"]
    if policy.key in root.columns and facts.columns[child.root_key] != root.columns[policy.key]:
        types = facts.columns[child.root_key], root.columns[policy.key]
        return [f"{child.table}.{child.root_key}: is of type {types[0]}, but {root.table}.{policy.key} of {types[1]}"]
    return []


def _strangers(child: Child, policy: Policy, catalog: Catalog) -> list[str]:
    """A child column that by its foreign key means something else than the root's key would take other rows along."""
    return [
        f"{child.table}.{child.root_key}: its foreign key {key.name} refers to {key.references} "
        f"({', '.join(key.referenced)}), not to {policy.root} ({policy.key})"
        for key in catalog.foreign_keys
        if key.table == child.table
        and key.columns == (child.root_key,)
        and (key.references, key.referenced) != (policy.root, (policy.key,))
    ]


def _order_mismatches(policy: Policy, catalog: Catalog) -> list[str]:
    """A table whose foreign key refuses the deletion of another's rows must come before that other one (A-02)."""
    place = {table: index for index, table in enumerate(policy.tables)}
    return [
        f"{key.table}: must be deleted before {key.references}, since its foreign key {key.name} is {key.on_delete}"
        for key in catalog.foreign_keys
        if key.refuses and place.get(key.table, -1) > place.get(key.references, len(place))
    ]


def _cascades(policy: Policy, catalog: Catalog) -> list[str]:
    """A foreign key that deletes rows of its own accord, other than those of a declared child, deletes too much."""
    declared = {(child.table, (child.root_key,)) for child in policy.children}
    return [
        f"{key.table}: its foreign key {key.name} to {key.references} is ON DELETE CASCADE and would delete rows that "
        f"the policy {policy.name} does not name; make it RESTRICT, or declare the table as a child"
        for key in catalog.foreign_keys
        if key.on_delete == "CASCADE"
        and key.references in policy.tables
        and not (key.references == policy.root and (key.table, key.columns) in declared)
    ]
