"""Rows of the reference schema, one call each: what a test does not name is unremarkable and expired."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from pgretention.policy import Table

OLD = "2020-01-01 00:00:00+00"
"""Expired under every retention that a test uses."""

SESSIONS = Table("user_activity", "sessions")
VIEWS = Table("user_activity", "property_object_views")
EVENTS = Table("user_activity", "action_events")
STATS = Table("user_activity", "property_object_view_stats")
FAVORITES = Table("favorites", "favorites")

Instant = datetime | str | None


def insert(connection: Connection[TupleRow], table: Table, **columns: object) -> UUID:
    """One row; an `id` is made up where none is given."""
    columns.setdefault("id", uuid4())
    connection.execute(
        sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table.schema, table.name),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(map(sql.Placeholder, columns)),
        ),
        columns,
    )
    key = columns["id"]
    assert isinstance(key, UUID)
    return key


def session(
    connection: Connection[TupleRow], ended_at: Instant = OLD, status: str = "Inactive", **columns: object
) -> UUID:
    began = {"started_at": OLD, "last_activity_at": OLD, "user_id": uuid4()}
    return insert(connection, SESSIONS, **{**began, "ended_at": ended_at, "status": status, **columns})


def active_session(connection: Connection[TupleRow], **columns: object) -> UUID:
    return session(connection, ended_at=None, status="Active", **columns)


def view(connection: Connection[TupleRow], session_id: UUID, **columns: object) -> UUID:
    required = {"session_id": session_id, "property_object_id": uuid4(), "started_at": OLD}
    return insert(connection, VIEWS, **{**required, **columns})


def event(connection: Connection[TupleRow], session_id: UUID, **columns: object) -> UUID:
    required = {"session_id": session_id, "event_type": "click", "occurred_at": OLD}
    return insert(connection, EVENTS, **{**required, **columns})


def favorite(connection: Connection[TupleRow], updated_at: Instant = OLD, **columns: object) -> UUID:
    """A guest's, unless a user_id is given."""
    required = {"anonymous_id": uuid4(), "property_object_id": uuid4()}
    return insert(connection, FAVORITES, **{**required, "updated_at": updated_at, **columns})


def ids(connection: Connection[TupleRow], table: Table, key: str = "id") -> set[object]:
    """The keys of every row there is."""
    query = sql.SQL("SELECT {} FROM {}").format(sql.Identifier(key), sql.Identifier(table.schema, table.name))
    return {row[0] for row in connection.execute(query)}


def allow_any_dates(connection: Connection[TupleRow]) -> None:
    """Lets Active sessions have an end and Inactive ones none, which the reference schema forbids."""
    connection.execute("ALTER TABLE user_activity.sessions DROP CONSTRAINT sessions_inactive_has_ended_at")
