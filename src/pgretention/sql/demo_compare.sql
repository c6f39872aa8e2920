-- Every row sorted by what the specifications say of it, and how many there are of each kind, before and after.
-- This is written by hand from the specifications on purpose: it shares nothing with the statements that delete.
WITH expired_sessions AS MATERIALIZED (
    SELECT id FROM before_sessions
     WHERE status = 'Inactive' AND ended_at < %(activity)s::timestamptz AND isfinite(ended_at)
), sorted AS (
    SELECT 'user_activity.action_events' AS name, is_after, fingerprint,
           CASE WHEN session_id IN (SELECT id FROM expired_sessions) THEN 'expired'
                ELSE 'events of sessions that stay'
           END AS kind
      FROM both_events
     UNION ALL
    SELECT 'user_activity.property_object_views', is_after, fingerprint,
           CASE WHEN session_id IN (SELECT id FROM expired_sessions) THEN 'expired'
                ELSE 'views of sessions that stay'
           END
      FROM both_views
     UNION ALL
    SELECT 'user_activity.sessions', is_after, fingerprint,
           CASE WHEN status = 'Active' THEN 'Active sessions, however old'
                WHEN ended_at < %(activity)s::timestamptz AND isfinite(ended_at) THEN 'expired'
                ELSE 'sessions that ended at the cutoff or later'
           END
      FROM both_sessions
     UNION ALL
    SELECT 'user_activity.property_object_view_stats', is_after, fingerprint, 'statistics of property objects'
      FROM both_stats
     UNION ALL
    SELECT 'favorites.favorites', is_after, fingerprint,
           CASE WHEN user_id IS NOT NULL THEN 'favorites of accounts, however old'
                WHEN updated_at < %(favorites)s::timestamptz AND isfinite(updated_at) THEN 'expired'
                ELSE 'favorites of guests updated at the cutoff or later'
           END
      FROM both_favorites
)
SELECT name, kind,
       count(*) FILTER (WHERE NOT is_after), count(*) FILTER (WHERE is_after),
       coalesce(sum(fingerprint) FILTER (WHERE NOT is_after), 0), coalesce(sum(fingerprint) FILTER (WHERE is_after), 0)
  FROM sorted
 GROUP BY name, kind
