"""Rows with content that must not be seen outside the database, and what SQL says of them."""

from __future__ import annotations

from uuid import UUID

from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from tests.support import rows
from tests.support.gates import one
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS

TEXT = "nobody-may-read-this"
PERSON = UUID("5ec2e75e-c2e7-45ec-a2e7-5ec2e75ec2e7")

HIDDEN = (TEXT, str(PERSON))

EXPIRED = {
    str(EVENTS): """
        SELECT count(*) FROM user_activity.action_events e JOIN user_activity.sessions s ON s.id = e.session_id
         WHERE s.status = 'Inactive' AND s.ended_at < now() - interval '365 days'
    """,
    str(VIEWS): """
        SELECT count(*) FROM user_activity.property_object_views v JOIN user_activity.sessions s ON s.id = v.session_id
         WHERE s.status = 'Inactive' AND s.ended_at < now() - interval '365 days'
    """,
    str(SESSIONS): """
        SELECT count(*) FROM user_activity.sessions WHERE status = 'Inactive' AND ended_at < now() - interval '365 days'
    """,
    str(FAVORITES): """
        SELECT count(*) FROM favorites.favorites WHERE user_id IS NULL AND updated_at < now() - interval '365 days'
    """,
}
"""Written by hand from the specifications: shares nothing with the statements that delete."""


def expired(connection: Connection[TupleRow]) -> dict[str, object]:
    """How many rows a run with default settings has to delete from each table."""
    return {table: one(connection, query) for table, query in EXPIRED.items()}


def session(connection: Connection[TupleRow], ended_at: rows.Instant, views: int = 1, events: int = 1) -> UUID:
    """A session of somebody, with views and events."""
    key = rows.session(connection, ended_at, user_id=PERSON, anonymous_id=PERSON, user_agent=TEXT)
    seen = [rows.view(connection, key) for _ in range(views)]
    for number in range(events):
        view = seen[number % views] if seen else None
        rows.event(connection, key, property_object_view_id=view, payload=Jsonb({"typed": TEXT}))
    return key


def favorite(connection: Connection[TupleRow], updated_at: rows.Instant, **columns: object) -> UUID:
    return rows.favorite(connection, updated_at, anonymous_id=PERSON, note=TEXT, **columns)


def old_sessions(connection: Connection[TupleRow], count: int) -> list[UUID]:
    """From the oldest on, with a view and an event each."""
    return [session(connection, f"2020-01-{day:02}") for day in range(1, count + 1)]


def old_favorites(connection: Connection[TupleRow], count: int) -> list[UUID]:
    """From the oldest on."""
    return [favorite(connection, f"2020-01-{day:02}") for day in range(1, count + 1)]


def left(connection: Connection[TupleRow]) -> set[object]:
    """The sessions that are left, each with its view and event."""
    sessions = rows.ids(connection, SESSIONS)
    assert rows.ids(connection, EVENTS, "session_id") == rows.ids(connection, VIEWS, "session_id") == sessions
    return sessions


def plant(connection: Connection[TupleRow]) -> None:
    """Rows on both sides of a year ago, and some that nothing may ever delete; of each table another number."""
    expired_day, kept_day = (str(one(connection, f"SELECT now() - interval '{days} days'")) for days in (366, 364))
    for number in range(7):
        session(connection, expired_day, views=number % 3, events=number)
    for _ in range(5):
        favorite(connection, expired_day)
    for instant in kept_day, "infinity":
        session(connection, instant, views=2, events=3)
        favorite(connection, instant)
    rows.event(connection, rows.active_session(connection, user_agent=TEXT), payload=Jsonb({"typed": TEXT}))
    for _ in range(3):
        favorite(connection, rows.OLD, user_id=PERSON)
