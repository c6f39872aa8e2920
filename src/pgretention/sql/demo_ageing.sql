-- A few rows that have just expired, so that there is something to delete in every run of the demo that stays up:
-- sessions with two events and a view each, and favorites of guests.

WITH sessions AS (
    INSERT INTO user_activity.sessions (id, anonymous_id, status, started_at, last_activity_at, ended_at)
    SELECT gen_random_uuid(), gen_random_uuid(), 'Inactive', at - interval '20 minutes', at - interval '5 minutes', at
      FROM (SELECT now() - %(retention)s - random() * interval '10 minutes' AS at
              FROM generate_series(1, %(sessions)s)) ended
    RETURNING id, started_at
), views AS (
    INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
    SELECT gen_random_uuid(), id, gen_random_uuid(), started_at FROM sessions
), events AS (
    INSERT INTO user_activity.action_events (id, session_id, event_type, occurred_at)
    SELECT gen_random_uuid(), id, 'plan_opened', started_at FROM sessions, generate_series(1, 2)
)
INSERT INTO favorites.favorites (id, anonymous_id, property_object_id, created_at, updated_at)
SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), at, at
  FROM (SELECT now() - %(retention)s - random() * interval '10 minutes' AS at
          FROM generate_series(1, %(favorites)s)) touched;
