-- Three views and eight events for each session. Every twentieth session is Active, however old it is.
-- Views and events point at each other: the triggers that would check it row by row are off while they are written.
SET LOCAL session_replication_role = replica;

INSERT INTO user_activity.sessions
       (id, user_id, anonymous_id, status, started_at, last_activity_at, ended_at, user_agent, created_at)
SELECT md5('session ' || n)::uuid, CASE WHEN mod(n, 5) < 2 THEN md5('user ' || mod(n, 4000))::uuid END,
       md5('guest ' || mod(n, 12000))::uuid, CASE WHEN mod(n, 20) = 0 THEN 'Active' ELSE 'Inactive' END,
       at - interval '30 minutes', at - interval '10 minutes', CASE WHEN mod(n, 20) > 0 THEN at END,
       'Mozilla/5.0 (X11; Linux x86_64)', at - interval '30 minutes'
  FROM times
 ORDER BY n;

INSERT INTO user_activity.property_object_views
       (id, session_id, property_object_id, apply_filter_event_id, started_at, ended_at)
SELECT md5('view ' || n || ' ' || v)::uuid, md5('session ' || n)::uuid, md5('object ' || mod(n * 7 + v, 2000))::uuid,
       CASE WHEN v = 2 THEN md5('event ' || n || ' 1')::uuid END, at - interval '20 minutes', at
  FROM times, generate_series(1, 3) AS v
 ORDER BY n;

INSERT INTO user_activity.action_events (id, session_id, event_type, property_object_view_id, occurred_at, payload)
SELECT md5('event ' || n || ' ' || e)::uuid, md5('session ' || n)::uuid, 'filter_applied',
       CASE WHEN mod(n + e, 10) < 7 THEN md5('view ' || n || ' ' || 1 + mod(e, 3))::uuid END,
       at - interval '15 minutes', jsonb_build_object('price_to', 5000000 + mod(n, 100) * 100000)
  FROM times, generate_series(1, 8) AS e
 ORDER BY n;
