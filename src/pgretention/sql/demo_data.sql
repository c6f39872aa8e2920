-- Realistic data for the demo: two years of it, half of it expired. The temporary table `demo` holds one row: how much
-- of everything, `today`, and `boundary`, the instant before which a row is expired today. All the rest comes from
-- numbers and from random() after setseed(), so the same seed gives the same data, moved in time. Chance puts nothing
-- within an hour of the boundary; the first three sessions and favorites are put there on purpose.

CREATE TEMP TABLE demo_sessions AS
WITH drawn AS MATERIALIZED (
    SELECT n,
           -- Now and then many sessions are closed at one instant, in one sweep.
           today - interval '730 days' * CASE WHEN n % 400 < 25 THEN n / 400 * 400.0 / sessions ELSE random() END AS at,
           random() * interval '45 minutes' AS lasted,
           n > 3 AND random() < 0.05 AS is_active,
           CASE WHEN random() < 0.4 THEN floor(random() * 4000)::int END AS user_n,
           floor(random() * 12000)::int AS guest_n,
           1 + floor(random() * 4)::int AS agent_n
      FROM demo, generate_series(1, sessions) n
)
SELECT n,
       md5('session ' || n)::uuid AS id,
       CASE WHEN n = 1 THEN boundary - interval '1 microsecond'
            WHEN n = 2 THEN boundary
            WHEN n = 3 THEN boundary + interval '10 minutes'
            WHEN abs(extract(epoch FROM at - boundary)) < 3600 THEN at + interval '2 hours'
            ELSE at
       END AS at,
       lasted, is_active, user_n, guest_n, agent_n
  FROM demo, drawn;

-- A session that nobody closed stays Active however old it is; it must survive.
INSERT INTO user_activity.sessions
       (id, user_id, anonymous_id, status, started_at, last_activity_at, ended_at, user_agent, created_at)
SELECT id, md5('user ' || user_n)::uuid, md5('guest ' || guest_n)::uuid,
       CASE WHEN is_active THEN 'Active' ELSE 'Inactive' END,
       at - lasted - interval '10 minutes', at - interval '10 minutes', CASE WHEN NOT is_active THEN at END,
       ('{Mozilla/5.0 (Windows NT 10.0; Win64; x64),Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X),'
        'Mozilla/5.0 (X11; Linux x86_64),Mozilla/5.0 (Linux; Android 15)}'::text[])[agent_n],
       at - lasted - interval '10 minutes'
  FROM demo_sessions
 ORDER BY at;

-- A view belongs to a session; popular objects are seen more often.
CREATE TEMP TABLE demo_views AS
WITH drawn AS MATERIALIZED (
    SELECT n, 1 + floor(random() * sessions)::int AS session_n, floor(random() ^ 2 * 2000)::int AS object_n,
           random() AS share, random() * interval '5 minutes' AS lasted, random() < 0.9 AS is_over
      FROM demo, generate_series(1, views) n
)
SELECT v.n, s.id AS session_id, md5('view ' || v.n)::uuid AS id, md5('object ' || object_n)::uuid AS object_id,
       s.at - interval '10 minutes' - s.lasted * share AS started_at, v.lasted, is_over
  FROM drawn v JOIN demo_sessions s ON s.n = session_n;

-- An event happens during a view and mostly points at it; a filter that was applied led to later views of its session.
CREATE TEMP TABLE demo_events AS
WITH drawn AS MATERIALIZED (
    SELECT n, 1 + floor(random() * views)::int AS view_n, random() < 0.7 AS points_at_view, random() AS share,
           1 + floor(random() * 5)::int AS type_n, floor(random() * 100)::int AS price
      FROM demo, generate_series(1, events) n
)
SELECT e.n, v.session_id, md5('event ' || e.n)::uuid AS id,
       CASE WHEN points_at_view THEN v.id END AS view_id,
       ('{filter_applied,gallery_opened,phone_shown,plan_opened,favorite_added}'::text[])[type_n] AS event_type,
       v.started_at + v.lasted * share AS occurred_at, price
  FROM drawn e JOIN demo_views v ON v.n = view_n;

-- Views and events point at each other, so both come in one statement: its end is when the references are checked.
WITH filters AS (
    SELECT DISTINCT ON (session_id) session_id, id FROM demo_events WHERE event_type = 'filter_applied'
     ORDER BY session_id, occurred_at, id
), views AS (
    INSERT INTO user_activity.property_object_views
           (id, session_id, property_object_id, apply_filter_event_id, started_at, ended_at)
    SELECT v.id, session_id, object_id, CASE WHEN v.n % 2 = 0 THEN f.id END, started_at,
           CASE WHEN is_over THEN started_at + lasted END
      FROM demo_views v LEFT JOIN filters f USING (session_id)
     ORDER BY started_at
)
INSERT INTO user_activity.action_events (id, session_id, event_type, property_object_view_id, occurred_at, payload)
SELECT id, session_id, event_type, view_id, occurred_at, jsonb_build_object('price_to', 5000000 + price * 100000)
  FROM demo_events
 ORDER BY occurred_at;

-- Statistics outlive the views they were counted from: some counts are higher than what is still there.
INSERT INTO user_activity.property_object_view_stats (property_object_id, views_count, total_duration)
SELECT object_id, 2 * count(*), 2 * sum(lasted) FROM demo_views GROUP BY object_id;

-- Favorites of guests and of accounts. Imported rows can hold the infinities: those are never expired.
WITH drawn AS MATERIALIZED (
    SELECT n, today - interval '730 days' * random() AS at, random() * interval '90 days' AS kept,
           n <= 5 OR random() < 0.6 AS is_guest, floor(random() * 4000)::int AS user_n,
           floor(random() * 12000)::int AS guest_n, floor(random() ^ 2 * 2000)::int AS object_n,
           random() < 0.2 AS has_note
      FROM demo, generate_series(1, favorites) n
), placed AS (
    SELECT *,
           CASE WHEN n = 1 THEN boundary - interval '1 microsecond'
                WHEN n = 2 THEN boundary
                WHEN n = 3 THEN boundary + interval '10 minutes'
                WHEN n = 4 THEN '-infinity'
                WHEN n = 5 THEN 'infinity'
                WHEN abs(extract(epoch FROM at - boundary)) < 3600 THEN at + interval '2 hours'
                ELSE at
           END AS updated_at
      FROM demo, drawn
)
INSERT INTO favorites.favorites (id, user_id, anonymous_id, property_object_id, note, created_at, updated_at)
SELECT md5('favorite ' || n)::uuid, CASE WHEN NOT is_guest THEN md5('user ' || user_n)::uuid END,
       md5('guest ' || guest_n)::uuid, md5('object ' || object_n)::uuid,
       CASE WHEN has_note THEN 'call on Monday, ask about parking place ' || n % 90 END, at - kept, updated_at
  FROM placed
 ORDER BY at;

DROP TABLE demo, demo_sessions, demo_views, demo_events;
