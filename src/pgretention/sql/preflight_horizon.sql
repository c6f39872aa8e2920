-- Who keeps dead rows from being removed, in words, with what ends it: transactions older than so many seconds, prepared
-- ones, and replication slots. Of other roles' transactions a role sees only those that pg_read_all_stats shows it.
SELECT 'transaction', format('process %%s (%%s, role %%s), open for %%s s', a.pid, a.application_name, a.usename,
                             round(extract(epoch FROM now() - a.xact_start))),
       format('SELECT pg_terminate_backend(%%s);', a.pid)
  FROM pg_stat_activity a
 WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
   AND a.xact_start < now() - make_interval(secs => %(older_than)s)
UNION ALL
SELECT 'prepared transaction', format('%%s of role %%s, since %%s', p.gid, p.owner, to_char(p.prepared, 'YYYY-MM-DD HH24:MI')),
       format('ROLLBACK PREPARED %%L;', p.gid)
  FROM pg_prepared_xacts p
 WHERE p.database = current_database() AND p.prepared < now() - make_interval(secs => %(older_than)s)
UNION ALL
SELECT 'replication slot', format('%%s, %%s', s.slot_name, CASE WHEN s.active THEN 'in use' ELSE 'not in use' END),
       format('SELECT pg_drop_replication_slot(%%L);', s.slot_name)
  FROM pg_replication_slots s
 WHERE s.xmin IS NOT NULL OR (s.catalog_xmin IS NOT NULL AND NOT s.active) OR (s.restart_lsn IS NOT NULL AND NOT s.active)
 ORDER BY 1, 2
