"""The statements by which the application makes rows, and the ways to date them."""

from __future__ import annotations

INSTANT = {
    "expired": "now() - interval '365 days' - %(seconds)s * interval '10 days'",
    "edge": "now() - interval '365 days' + (%(seconds)s - 5) * interval '1 second'",
    "fresh": "now() - %(seconds)s * interval '1 day'",
    "infinity": "timestamptz 'infinity'",
    "-infinity": "timestamptz '-infinity'",
    "far": "timestamptz '24989-01-01 00:00:00+00'",
    "ancient": "timestamptz '0044-03-15 00:00:00+00 BC'",
    "none": "NULL::timestamptz",
}
"""Ways to date a row; `seconds` lies between 0 and 30."""

DATES = ("expired", "edge", "fresh", "infinity", "-infinity", "far", "ancient", "none")
SESSION_ODDS = (60, 14, 12, 1, 1, 1, 2, 2)
FAVORITE_ODDS = (60, 14, 12, 1, 1, 1, 2, 0)

SESSION = """
    INSERT INTO user_activity.sessions
           (id, user_id, anonymous_id, status, started_at, last_activity_at, ended_at, user_agent)
    VALUES (%(id)s, %(person)s, %(person)s, %(status)s, now(), now(), {}, %(text)s)
"""
VIEW = """
    INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
    VALUES (%s, %s, %s, now())
"""
VIEW_AFTER = """
    INSERT INTO user_activity.property_object_views
           (id, session_id, property_object_id, apply_filter_event_id, started_at)
    VALUES (%s, %s, %s, %s, now())
"""
EVENT = """
    INSERT INTO user_activity.action_events
           (id, session_id, event_type, property_object_view_id, occurred_at, payload)
    VALUES (%s, %s, 'click', %s, now(), %s)
"""
FAVORITE = """
    INSERT INTO favorites.favorites (id, user_id, anonymous_id, property_object_id, note, updated_at)
    VALUES (%(id)s, %(user)s, %(person)s, %(id)s, %(text)s, {})
"""

MANY = """
    WITH old AS (
        SELECT gen_random_uuid() AS id, n FROM generate_series(1, %(number)s) AS n
    ), sessions AS (
        INSERT INTO user_activity.sessions
               (id, user_id, status, started_at, last_activity_at, ended_at, user_agent)
        SELECT id, %(person)s, 'Inactive', now(), now(), now() - interval '400 days' - n * interval '1 second', %(text)s
          FROM old
    ), views AS (
        INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
        SELECT gen_random_uuid(), id, id, now() FROM old WHERE n %% 2 = 0
    ), favorites AS (
        INSERT INTO favorites.favorites (id, anonymous_id, property_object_id, note, updated_at)
        SELECT id, %(person)s, id, %(text)s, now() - interval '400 days' - n * interval '1 second' FROM old
    )
    INSERT INTO user_activity.action_events (id, session_id, event_type, occurred_at, payload)
    SELECT gen_random_uuid(), id, 'click', now(), jsonb_build_object('typed', %(text)s::text) FROM old WHERE n %% 3 = 0
"""
"""A backlog; it keeps our processes busy while the rest goes on."""
