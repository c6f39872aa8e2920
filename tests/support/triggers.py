"""A few lines of plpgsql that run when a row of a table is deleted, as the tables' owner and not as the worker."""

from __future__ import annotations

import itertools
from typing import LiteralString
from uuid import UUID

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.policy import Table

_numbers = itertools.count(1)

QUOTING: dict[str, LiteralString] = {
    "message": "RAISE 'gone: %', OLD",
    "detail, hint": "RAISE 'no' USING DETAIL = OLD::text, HINT = OLD::text",
    "foreign key": "RAISE '%', OLD USING ERRCODE = '23503', DETAIL = OLD::text",
    "restrict": "RAISE '%', OLD USING ERRCODE = '23001'",
    "serialization": "RAISE '%', OLD USING ERRCODE = '40001'",
    "deadlock": "RAISE '%', OLD USING ERRCODE = '40P01'",
    "lock timeout": "RAISE '%', OLD USING ERRCODE = '55P03'",
    "statement timeout": "RAISE '%', OLD USING ERRCODE = '57014'",
    "privilege": "RAISE '%', OLD USING ERRCODE = '42501'",
    "connection": "RAISE '%', OLD USING ERRCODE = '08006'",
    "conversion": "PERFORM OLD::text::integer",
    "unique": "INSERT INTO public.copies VALUES (OLD::text), (OLD::text)",
    "check": "INSERT INTO public.copies VALUES (repeat(OLD::text, 100))",
    "dynamic statement": "EXECUTE format('SELECT %L FROM no_such_table', OLD)",
    "context": "PERFORM 1 / (length(OLD::text) - length(OLD::text))",
    "warning first": "RAISE WARNING '%', OLD; RAISE 'no'",
}
"""Bodies that fail, each with the whole row in what the server says of it."""


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


def make_room_for_copies(connection: Connection[TupleRow]) -> None:
    """The table that "unique" and "check" put rows into."""
    connection.execute("CREATE TABLE public.copies (words text UNIQUE, CONSTRAINT short CHECK (length(words) < 1000))")
