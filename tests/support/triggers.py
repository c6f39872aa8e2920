"""A few lines of plpgsql that run when a row of a table is deleted, as the tables' owner and not as the worker."""

from __future__ import annotations

import itertools
from typing import LiteralString
from uuid import UUID

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.policy import Table

_numbers = itertools.count(1)


def on_delete(
    connection: Connection[TupleRow],
    table: Table,
    body: LiteralString,
    *,
    key: UUID | None = None,
) -> sql.Identifier:
    """Run the body for every row that is deleted, or only for the one with that key; answers the trigger's name."""
    name = sql.Identifier(f"on_delete_{next(_numbers)}")
    only = sql.SQL("") if key is None else sql.SQL("WHEN (OLD.id = {})").format(sql.Literal(key))
    connection.execute(
        sql.SQL(
            """
            CREATE FUNCTION public.{name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
            $$ BEGIN {body}; RETURN OLD; END $$;
            CREATE TRIGGER {name} BEFORE DELETE ON {table} FOR EACH ROW {only} EXECUTE FUNCTION public.{name}();
            """
        ).format(
            name=name,
            body=sql.SQL(body),
            table=sql.Identifier(table.schema, table.name),
            only=only,
        )
    )
    return name


def drop(connection: Connection[TupleRow], table: Table, name: sql.Identifier) -> None:
    connection.execute(sql.SQL("DROP TRIGGER {} ON {}").format(name, sql.Identifier(table.schema, table.name)))
