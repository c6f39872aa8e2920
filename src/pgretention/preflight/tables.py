"""What the tables of a policy and those around them would do to a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from psycopg import sql

from pgretention import fit, shape
from pgretention.catalog import Catalog
from pgretention.plan import Plan
from pgretention.policy import Equals, Policy, Table
from pgretention.preflight.finding import LARGE, Finding, Severity, quoted, quoted_name, statement
from pgretention.session import Connection

_COUNTED = 1000
"""Rows without an expiry that are counted; more of them are as many."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key that a deletion meets: from `columns` of `table`, which holds about `rows`, to `references`."""

    name: str
    table: Table
    columns: tuple[str, ...]
    references: Table
    on_delete: str
    rows: int
    indexed: bool


def misfits(policy: Policy, catalog: Catalog, role: str) -> Iterator[Finding]:
    """Everything for which a run would be refused, but for what `undeclared` finds too."""
    for reason in fit.reasons_against(policy, catalog):
        name, _, why = reason.partition(": ")
        if "ON DELETE CASCADE" not in why:
            yield Finding(Severity.ERROR, "refused", name, why, _way_out(name, why, role))


def _way_out(name: str, why: str, role: str) -> str:
    """What puts a table right for which a run is refused, as SQL where that is known."""
    literal = sql.Literal(name).as_string()
    if "row-level security" in why:
        return f"ALTER ROLE {quoted_name(role)} BYPASSRLS;"
    if "rewrite rules" in why:
        schema, _, table = name.partition(".")
        where = f"schemaname = {sql.Literal(schema).as_string()} AND tablename = {sql.Literal(table).as_string()}"
        drop = "format('DROP RULE %I ON %I.%I;', rulename, schemaname, tablename)"
        return f"SELECT {drop} FROM pg_rules WHERE {where};"  # noqa: S608  printed, not executed
    if "inherit" in why:
        alter = "format('ALTER TABLE %s NO INHERIT %s;', inhrelid::regclass, inhparent::regclass)"
        return f"SELECT {alter} FROM pg_inherits WHERE inhparent = {literal}::regclass;"  # noqa: S608  as above
    return "put that right: no run begins before"


def references(connection: Connection, policy: Policy) -> list[Reference]:
    """Every foreign key that a deletion of the policy's rows meets."""
    return [
        Reference(
            str(name),
            Table(str(schema), str(table)),
            tuple(cast("list[str]", columns)),
            Table(str(to_schema), str(to_table)),
            str(on_delete),
            cast("int", rows),
            bool(indexed),
        )
        for name, schema, table, columns, to_schema, to_table, on_delete, rows, indexed in connection.execute(
            statement("references"), names(policy)
        )
    ]


def size_of(connection: Connection, table: Table) -> int:
    """About how many rows a table has, by the planner's statistics, or by 100 bytes a row where there are none."""
    row = connection.execute(
        "SELECT CASE WHEN c.reltuples >= 0 THEN c.reltuples ELSE pg_relation_size(c.oid) / 100 END::bigint"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        [table.schema, table.name],
    ).fetchone()
    return cast("tuple[int]", row)[0]


def names(policy: Policy) -> dict[str, list[str]]:
    """The tables of a policy as the looks in `sql/` are given them."""
    return {"schemas": [table.schema for table in policy.tables], "names": [table.name for table in policy.tables]}


def undeclared(policy: Policy, met: list[Reference]) -> Iterator[Finding]:
    """Rows elsewhere that no policy names and that a deletion would be stopped by, change or delete."""
    declared = {(child.table, (child.root_key,)) for child in policy.children}
    for key in met:
        inside = key.table in policy.tables and key.references in policy.tables
        about = f"{key.table} ({', '.join(key.columns)})"
        if (key.table, key.columns) in declared:
            continue
        if key.on_delete in {"RESTRICT", "NO ACTION"} and (not inside or key.table == key.references):
            yield Finding(
                Severity.WARNING,
                "undeclared-reference",
                about,
                f"its foreign key {key.name} to {key.references} is {key.on_delete}: rows that it refers to stay, are "
                "found by dividing batches, and end the run as partial",
                f"-- how many rows refer to one:\nSELECT count(*) FROM {quoted(key.table)} WHERE {_set(key)};",
            )
        elif key.on_delete in {"SET NULL", "SET DEFAULT"} and not inside:
            yield Finding(
                Severity.WARNING,
                "undeclared-set-null",
                about,
                f"its foreign key {key.name} to {key.references} is {key.on_delete}: a run changes rows of a table "
                f"that the policy {policy.name} does not name",
                "-- nothing, if that is meant; to keep what is referred to instead, for as long as it is:\n"
                + _other_rule(key),
            )
        elif key.on_delete == "CASCADE":
            yield Finding(
                Severity.ERROR,
                "undeclared-cascade",
                about,
                f"its foreign key {key.name} to {key.references} is ON DELETE CASCADE: it deletes rows that the policy "
                f"{policy.name} does not name, as many as there are",
                "-- after this what is referred to stays, and runs are partial, until the rows here are gone:\n"
                + _other_rule(key),
            )


def unindexed(met: list[Reference]) -> Iterator[Finding]:
    """For each deleted row PostgreSQL looks for rows that refer to it; without an index it reads the whole table."""
    for key in met:
        if not key.indexed:
            severity = Severity.ERROR if key.rows > LARGE else Severity.NOTE
            yield Finding(
                severity,
                "unindexed-reference",
                f"{key.table} ({', '.join(key.columns)})",
                f"no index begins with what its foreign key {key.name} looks for, so each row deleted from "
                f"{key.references} reads all of its {key.rows:,} rows",
                f"CREATE INDEX CONCURRENTLY ON {quoted(key.table, *key.columns)};",
            )


def unclaimable(connection: Connection, statements: Plan, rows: int) -> Iterator[Finding]:
    """A claim that cannot read an index in its order sorts all that is expired, for every batch.

    The transaction has the planner's settings of a batch.
    """
    explain = sql.SQL("EXPLAIN (FORMAT JSON) {}").format(statements.claim_first(1000))
    row = connection.execute(explain, {"cutoff": "2020-01-01"}).fetchone()
    found = shape.nodes(cast("tuple[list[shape.Node]]", row)[0][0]["Plan"])
    if shape.reads_everything(list(found)):
        policy = statements.policy
        columns = quoted(policy.root, policy.expiry, policy.key)
        guard = sql.SQL(" AND ").join(_guard(policy)).as_string()
        yield Finding(
            Severity.ERROR if rows > LARGE else Severity.NOTE,
            "no-claim-index",
            str(policy.root),
            f"no index has its rows in the order ({policy.expiry}, {policy.key}) in which they are claimed, so each "
            f"batch reads all of its {rows:,} rows",
            f"CREATE INDEX CONCURRENTLY ON {columns}" + (f" WHERE {guard};" if guard else ";"),
        )


def triggers(connection: Connection, policy: Policy) -> Iterator[Finding]:
    """Functions of others that a deletion calls."""
    for schema, table, name, before, function in connection.execute(statement("triggers"), names(policy)):
        about = f"{schema}.{table}, trigger {name}"
        if before:
            why = "it runs before each row is deleted: where it returns NULL the row stays, and the run fails at once"
            severity = Severity.WARNING
        else:
            why = "it runs for what is deleted; what it deletes or writes itself is neither limited nor counted"
            severity = Severity.NOTE
        yield Finding(severity, "trigger", about, why, f"\\sf {function}")


def never_expiring(connection: Connection, policy: Policy) -> Iterator[Finding]:
    """Rows that the guard lets go and that have no expiry."""
    unset = sql.SQL("({expiry} IS NULL OR {expiry} = '-infinity')").format(expiry=sql.Identifier(policy.expiry))
    root = sql.Identifier(policy.root.schema, policy.root.name)
    which = sql.SQL(" AND ").join([*_guard(policy), unset])
    query = sql.SQL("SELECT count(*) FROM (SELECT FROM ONLY {} WHERE {} LIMIT {}) AS found")
    row = connection.execute(query.format(root, which, sql.Literal(_COUNTED))).fetchone()
    found = cast("tuple[int]", row)[0]
    if found:
        many = f"{_COUNTED:,} or more" if found == _COUNTED else f"{found:,}"
        yield Finding(
            Severity.WARNING,
            "no-expiry",
            f"{policy.root}.{policy.expiry}",
            f"is NULL or -infinity in {many} rows that the guard lets go: they never expire",
            sql.SQL("SELECT count(*) FROM {} WHERE {};").format(root, which).as_string(),
        )


def _guard(policy: Policy) -> list[sql.Composed]:
    return [
        sql.SQL("{} = {}").format(sql.Identifier(condition.column), sql.Literal(condition.value))
        if isinstance(condition, Equals)
        else sql.SQL("{} IS NULL").format(sql.Identifier(condition.column))
        for condition in policy.guard
    ]


def _set(key: Reference) -> str:
    return " AND ".join(f"{sql.Identifier(column).as_string()} IS NOT NULL" for column in key.columns)


def _other_rule(key: Reference) -> str:
    """In place of what the key does now; gives up soon where somebody holds the table, since others queue behind."""
    table = quoted(key.table)
    constraint = sql.Identifier(key.name).as_string()
    columns = ", ".join(sql.Identifier(column).as_string() for column in key.columns)
    new = f"FOREIGN KEY ({columns}) REFERENCES {quoted(key.references)} ON DELETE RESTRICT NOT VALID"
    return (
        "SET lock_timeout = '2s';\n"
        f"ALTER TABLE {table} DROP CONSTRAINT {constraint}, ADD CONSTRAINT {constraint} {new};\n"
        f"ALTER TABLE {table} VALIDATE CONSTRAINT {constraint};"
    )
