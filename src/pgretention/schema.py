"""What a database has to offer, as SQL for whoever owns it: the reference schema, and the grants a worker needs.

No run executes any of this: the domains own their tables, pgretention only deletes from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.resources import files

from psycopg import sql

from pgretention.errors import ConfigurationError
from pgretention.policy import Policy, Table

_FILES = {"user-activity": "user_activity.sql", "favorites": "favorites.sql"}

DOMAINS = tuple(_FILES)
"""The domains whose reference schema is in this package (design section 7)."""

_LONGEST_NAME = 63  # bytes; PostgreSQL silently cuts longer identifiers off (chapter 4.1.1)


def check_domains(names: Iterable[str]) -> tuple[str, ...]:
    """The domains of these names, each once, or all when none is named; raises ConfigurationError for any other."""
    chosen = tuple(dict.fromkeys(names)) or DOMAINS
    unknown = [name for name in chosen if name not in _FILES]
    if unknown:
        choice = ", ".join(DOMAINS)
        raise ConfigurationError([f"schema {name!r}: no such domain; choose from {choice}" for name in unknown])
    return chosen


def domain_of(policy: Policy) -> str:
    """The domain that owns the tables of a shipped policy, as DOMAINS spells it."""
    return policy.root.schema.replace("_", "-")


def ddl(domain: str) -> str:
    """The reference schema of a domain as a script of statements; raises ConfigurationError for an unknown one."""
    check_domains([domain])
    return files("pgretention").joinpath("sql", _FILES[domain]).read_text(encoding="utf-8")


def grants(policies: Iterable[Policy], role: str) -> str:
    """The least that a role needs to run these policies, as a script; the role itself is not created (F-06).

    Policy by policy, since each may have a database of its own. Raises ConfigurationError for what is no role's name.
    """
    _require_role(role)
    worker = sql.Identifier(role)
    lines = [
        "-- What a role needs to run pgretention, and no more. Create the role first:",
        f"--   CREATE ROLE {worker.as_string()} LOGIN;",
        "-- UPDATE (key) is for FOR UPDATE alone: pgretention never changes a row.",
    ]
    for policy in policies:
        name = " ".join(policy.name.split())  # a line break would end the comment and begin a statement
        lines += ["", f"-- {name}", *(grant.as_string() for grant in _grants(policy, worker))]
    return "\n".join(lines) + "\n"


def _grants(policy: Policy, worker: sql.Identifier) -> Iterator[sql.Composed]:
    """USAGE on the schemas; DELETE on each table, and SELECT on the columns that find its rows, in delete order.

    The root's rows are found by their address `ctid` and locked by FOR UPDATE, which asks for UPDATE on some column
    (PostgreSQL documentation, SELECT, "The Locking Clause"): the key is the one that nobody can change unnoticed.
    """
    for schema in dict.fromkeys(table.schema for table in policy.tables):
        yield sql.SQL("GRANT USAGE ON SCHEMA {} TO {};").format(sql.Identifier(schema), worker)
    for child in policy.children:
        yield sql.SQL("GRANT DELETE, SELECT ({}) ON {} TO {};").format(
            sql.Identifier(child.root_key), _name(child.table), worker
        )
    columns = ("ctid", policy.key, policy.expiry, *(condition.column for condition in policy.guard))
    yield sql.SQL("GRANT DELETE, SELECT ({}), UPDATE ({}) ON {} TO {};").format(
        sql.SQL(", ").join(map(sql.Identifier, dict.fromkeys(columns))),
        sql.Identifier(policy.key),
        _name(policy.root),
        worker,
    )


def _name(table: Table) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)


def _require_role(role: str) -> None:
    if role in {"public", "none"}:  # GRANT takes these words for everybody and nobody even when they are quoted
        raise ConfigurationError([f"role {role!r}: is a word of SQL and no role's name; choose another"])
    if not role or not role.isprintable() or len(role.encode()) > _LONGEST_NAME:
        raise ConfigurationError(
            [f"role {role!r}: a name is 1 to {_LONGEST_NAME} bytes long and holds no control characters"]
        )
