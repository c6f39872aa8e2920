"""The data of the demo has something of every kind on both sides of the line, and is the same for the same seed."""

from __future__ import annotations

from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.demo import data
from tests.databases import Database

YEAR = timedelta(days=365)


def numbers(connection: Connection[TupleRow], query: LiteralString) -> dict[str, object]:
    """The one row that a query answers, by the names of its columns."""
    cursor = connection.execute(query)
    row = cursor.fetchone()
    assert row is not None
    assert cursor.description is not None
    return {column.name: value for column, value in zip(cursor.description, row, strict=True)}


def test_there_are_as_many_rows_as_asked_for(admin: Connection[TupleRow]) -> None:
    data.load(admin, YEAR, data.SMALL)
    query: LiteralString = """
        SELECT (SELECT count(*) FROM user_activity.sessions) AS sessions,
               (SELECT count(*) FROM user_activity.property_object_views) AS views,
               (SELECT count(*) FROM user_activity.action_events) AS events,
               (SELECT count(*) FROM favorites.favorites) AS favorites
    """
    found = numbers(admin, query)
    assert data.Amount(**{name: int(str(count)) for name, count in found.items()}) == data.SMALL


def test_there_is_something_of_every_kind_that_has_to_go_or_to_stay(admin: Connection[TupleRow]) -> None:
    data.load(admin, YEAR, data.SMALL)
    query: LiteralString = """
        WITH s AS (SELECT *, now() - interval '365 days' AS cutoff FROM user_activity.sessions),
             f AS (SELECT *, now() - interval '365 days' AS cutoff FROM favorites.favorites)
        SELECT (SELECT count(*) FROM s WHERE status = 'Inactive' AND ended_at < cutoff) AS expired,
               (SELECT count(*) FROM s WHERE status = 'Inactive' AND ended_at >= cutoff) AS fresh,
               (SELECT count(*) FROM s WHERE status = 'Active' AND last_activity_at < cutoff) AS old_but_active,
               (SELECT count(*) - count(DISTINCT ended_at) FROM s WHERE status = 'Inactive') AS ended_together,
               (SELECT count(*) FROM s WHERE user_id IS NULL) AS sessions_of_guests,
               (SELECT count(*) FROM s WHERE user_id IS NOT NULL) AS sessions_of_accounts,
               (SELECT count(*) FROM f WHERE user_id IS NULL AND updated_at < cutoff) AS guests_expired,
               (SELECT count(*) FROM f WHERE user_id IS NULL AND updated_at >= cutoff) AS guests_fresh,
               (SELECT count(*) FROM f WHERE user_id IS NOT NULL AND updated_at < cutoff) AS accounts_old,
               (SELECT count(*) FROM f WHERE updated_at IN ('-infinity', 'infinity')) AS without_a_date,
               (SELECT count(*) FROM f WHERE note IS NOT NULL) AS notes,
               (SELECT count(*) FROM user_activity.property_object_views v
                  JOIN user_activity.action_events e
                    ON v.apply_filter_event_id = e.id AND e.property_object_view_id = v.id) AS both_ways,
               (SELECT count(*) FROM user_activity.action_events WHERE property_object_view_id IS NULL) AS loose,
               (SELECT count(*) FROM user_activity.property_object_view_stats) AS stats
    """
    assert [name for name, count in numbers(admin, query).items() if not count] == []


def test_every_reference_stays_within_its_session(admin: Connection[TupleRow]) -> None:
    data.load(admin, YEAR, data.SMALL)
    query: LiteralString = """
        SELECT count(*) FILTER (WHERE e.session_id <> v.session_id) AS strays, count(*) > 0 AS some
          FROM user_activity.property_object_views v JOIN user_activity.action_events e
            ON e.id = v.apply_filter_event_id OR v.id = e.property_object_view_id
    """
    assert numbers(admin, query) == {"strays": 0, "some": True}


def test_near_the_line_there_is_only_what_was_put_there(admin: Connection[TupleRow]) -> None:
    line = numbers(admin, "SELECT now() - interval '365 days' AS line")["line"]
    data.load(admin, YEAR, data.SMALL)
    near = admin.execute(
        """
        SELECT at - min(at) OVER (PARTITION BY kind)
          FROM (SELECT 's' AS kind, ended_at AS at FROM user_activity.sessions WHERE ended_at IS NOT NULL
                 UNION ALL SELECT 'f', updated_at FROM favorites.favorites WHERE isfinite(updated_at)) AS rows
         WHERE abs(extract(epoch FROM at - %s)) < 1800
         ORDER BY kind, at
        """,
        [line],
    ).fetchall()
    put = [timedelta(0), timedelta(microseconds=1), timedelta(minutes=10, microseconds=1)]
    assert [row[0] for row in near] == 2 * put


def fingerprint(connection: Connection[TupleRow]) -> dict[str, object]:
    """Everything but the instants themselves, which follow the clock: ids, references, content and durations."""
    query: LiteralString = """
        SELECT (SELECT sum(hashtextextended(concat_ws(' ', id, user_id, anonymous_id, status, user_agent,
                       round(extract(epoch FROM ended_at - started_at))), 0)) FROM user_activity.sessions) AS sessions,
               (SELECT sum(hashtextextended(concat_ws(' ', id, session_id, property_object_id, apply_filter_event_id,
                       ended_at - started_at), 0)) FROM user_activity.property_object_views) AS views,
               (SELECT sum(hashtextextended(concat_ws(' ', id, session_id, event_type, property_object_view_id,
                       payload), 0)) FROM user_activity.action_events) AS events,
               (SELECT sum(hashtextextended(t::text, 0)) FROM user_activity.property_object_view_stats t) AS stats,
               (SELECT sum(hashtextextended(concat_ws(' ', id, user_id, anonymous_id, property_object_id, note), 0))
                  FROM favorites.favorites) AS favorites
    """
    return numbers(connection, query)


def test_the_same_seed_gives_the_same_data_and_another_gives_other_data(admin: Connection[TupleRow]) -> None:
    found = []
    for seed in 0.25, 0.25, 0.75:
        data.load(admin, YEAR, data.SMALL, seed)
        found.append(fingerprint(admin))
        admin.execute("TRUNCATE user_activity.sessions, user_activity.property_object_view_stats CASCADE")
        admin.execute("TRUNCATE favorites.favorites")
    first, same, other = found
    assert first == same
    assert not first.items() & other.items()


def test_the_schema_is_created_in_an_empty_database_once(database: Database) -> None:
    with database.connect() as connection:
        connection.execute("DROP SCHEMA user_activity, favorites CASCADE")
        data.create(connection)
        assert numbers(connection, "SELECT count(*) FROM user_activity.sessions") == {"count": 0}
        with pytest.raises(psycopg.errors.DuplicateSchema):
            data.create(connection)


def test_the_tables_are_vacuumed_and_analyzed(admin: Connection[TupleRow]) -> None:
    data.load(admin, YEAR, data.SMALL)
    query: LiteralString = """
        SELECT count(*) FILTER (WHERE relallvisible < relpages OR reltuples <= 0) AS neglected, count(*) AS tables
          FROM pg_class
         WHERE relkind = 'r' AND relnamespace IN ('user_activity'::regnamespace, 'favorites'::regnamespace)
    """
    assert numbers(admin, query) == {"neglected": 0, "tables": 5}
