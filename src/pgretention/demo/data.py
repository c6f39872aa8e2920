"""What the throw-away database holds: two years of sessions and favorites, the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention import schema

TABLES = (
    sql.Identifier("user_activity", "sessions"),
    sql.Identifier("user_activity", "property_object_views"),
    sql.Identifier("user_activity", "action_events"),
    sql.Identifier("user_activity", "property_object_view_stats"),
    sql.Identifier("favorites", "favorites"),
)


@dataclass(frozen=True, slots=True)
class Amount:
    """How many rows of each kind; the statistics follow from the views."""

    sessions: int = 20_000
    views: int = 60_000
    events: int = 160_000
    favorites: int = 50_000


SMALL = Amount(sessions=1_000, views=2_000, events=5_000, favorites=2_000)
FULL = Amount()


def create(connection: Connection[TupleRow]) -> None:
    """The reference schema of every domain, in an empty database."""
    for domain in schema.DOMAINS:
        connection.execute(schema.ddl(domain).encode())


def load(connection: Connection[TupleRow], retention: timedelta, amount: Amount = FULL, seed: float = 0.5) -> None:
    """Rows for the empty tables of the reference schema, on both sides of `retention` ago; about half are expired.

    `seed` is setseed's, from -1 to 1. The connection is in autocommit, since the tables are vacuumed at the end.
    """
    with connection.transaction():
        connection.execute("SELECT setseed(%s)", [seed])
        connection.execute(
            sql.SQL(
                "CREATE TEMP TABLE demo AS SELECT now() AS today, now() - {retention} AS boundary,"
                " {sessions} AS sessions, {views} AS views, {events} AS events, {favorites} AS favorites"
            ).format(
                retention=retention,
                sessions=amount.sessions,
                views=amount.views,
                events=amount.events,
                favorites=amount.favorites,
            )
        )
        connection.execute(files("pgretention").joinpath("sql", "demo_data.sql").read_bytes())
    connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.SQL(", ").join(TABLES)))
