-- Each replica: its name and state, how far it has replayed, in bytes, the lag in seconds that it tells as long as it is
-- behind, how much WAL is written, and who asks. State is NULL where the role may not see it.
SELECT application_name::text, state::text, (replay_lsn - '0/0')::int8,
       CASE WHEN replay_lsn < pg_current_wal_flush_lsn() THEN coalesce(extract(epoch FROM replay_lag), 0) ELSE 0 END::float8,
       (pg_current_wal_flush_lsn() - '0/0')::int8, current_user::text
  FROM pg_stat_replication
 WHERE state IS NULL OR state IN ('streaming', 'catchup')
