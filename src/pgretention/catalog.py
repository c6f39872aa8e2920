"""What PostgreSQL's catalog says about the tables of a policy: columns, uniqueness and foreign keys, as plain values.

Read with the schema named in every look-up, so a search_path changes nothing. Source: PostgreSQL documentation,
chapter "System Catalogs" (pg_class, pg_attribute, pg_index, pg_constraint, pg_inherits).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from pgretention import db
from pgretention.policy import Table
from pgretention.session import Connection

_RELKINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "rules": "table with rewrite rules",
}


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table: `kind` in words, `columns` by name with their type, `unique` the columns unique on their own.

    `hazards` are sentences about what would make a deletion from it wrong whatever the policy says.
    """

    table: Table
    kind: str
    has_inheritors: bool
    columns: Mapping[str, str]
    unique: frozenset[str]
    hazards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key from or to one of the policy's tables; `on_delete` in SQL's words."""

    name: str
    table: Table
    columns: tuple[str, ...]
    references: Table
    referenced: tuple[str, ...]
    on_delete: str

    @property
    def refuses(self) -> bool:
        """Whether it refuses the deletion of a referenced row instead of acting on the referencing one."""
        return self.on_delete in {"RESTRICT", "NO ACTION"}


@dataclass(frozen=True, slots=True)
class Catalog:
    """The facts about the tables asked for; a table that does not exist is not in `tables`."""

    tables: Mapping[Table, TableFacts]
    foreign_keys: tuple[ForeignKey, ...]


def read(connection: Connection, tables: Iterable[Table]) -> Catalog:
    """Look the tables up; needs no privilege on them."""
    facts: dict[Table, TableFacts] = {}
    binds = _binds(tables)
    rows = connection.execute(db.statement("catalog_tables"), binds)
    for schema, name, kind, inheritors, columns, unique, hazards in rows:
        table = Table(str(schema), str(name))
        facts[table] = TableFacts(
            table=table,
            kind=_RELKINDS.get(str(kind), f"relation of kind {kind!s}"),
            has_inheritors=bool(inheritors),
            columns=cast("dict[str, str]", columns),
            unique=frozenset(cast("list[str]", unique)),
            hazards=tuple(cast("list[str]", hazards)),
        )
    keys = [
        ForeignKey(
            name=str(name),
            table=Table(str(schema), str(referencing)),
            columns=tuple(cast("list[str]", columns)),
            references=Table(str(to_schema), str(to_table)),
            referenced=tuple(cast("list[str]", referenced)),
            on_delete=str(on_delete),
        )
        for name, schema, referencing, columns, to_schema, to_table, referenced, on_delete in connection.execute(
            db.statement("catalog_foreign_keys"), binds
        )
    ]
    return Catalog(facts, tuple(keys))


def fingerprint(connection: Connection, tables: Iterable[Table]) -> int:
    """A number that changes when the definition of one of the tables does, as cheap as a batch needs it."""
    row = connection.execute(db.statement("catalog_fingerprint"), _binds(tables)).fetchone()
    return cast("tuple[int]", row)[0]


def _binds(tables: Iterable[Table]) -> dict[str, list[str]]:
    schemas, names = zip(*((table.schema, table.name) for table in tables), strict=True)
    return {"schemas": list(schemas), "names": list(names)}
