-- The replica that is furthest behind, and by how many seconds; NULL seconds where the role may not see that.
-- A replica that has caught up says no lag.
SELECT application_name::text,
       CASE WHEN state IS NULL THEN NULL ELSE coalesce(extract(epoch FROM replay_lag), 0)::float8 END,
       current_user::text
  FROM pg_stat_replication
 WHERE state IS NULL OR state IN ('streaming', 'catchup')
 ORDER BY 2 DESC NULLS FIRST
 LIMIT 1
