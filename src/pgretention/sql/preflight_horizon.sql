-- Who keeps dead rows, or WAL, from being removed: what it keeps, who it is, and what ends it. Transactions and prepared
-- ones by their age in seconds; replicas and slots, which have no age, by how many transactions have begun since.
-- Of other roles' transactions a role sees only those that pg_read_all_stats shows it.
SELECT 'rows', format('transaction process %%s (%%s, role %%s), open for %%s s', a.pid, a.application_name, a.usename,
                      round(extract(epoch FROM now() - a.xact_start))),
       format('SELECT pg_terminate_backend(%%s);', a.pid)
  FROM pg_stat_activity a
 WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
   AND a.xact_start < now() - make_interval(secs => %(older_than)s)
UNION ALL
SELECT 'rows', format('prepared transaction %%s of role %%s, since %%s', p.gid, p.owner,
                      to_char(p.prepared, 'YYYY-MM-DD HH24:MI')),
       format('ROLLBACK PREPARED %%L;', p.gid)
  FROM pg_prepared_xacts p
 WHERE p.database = current_database() AND p.prepared < now() - make_interval(secs => %(older_than)s)
UNION ALL
SELECT 'rows', format('replica %%s, whose oldest transaction began %%s transactions ago', r.application_name,
                      age(r.backend_xmin)),
       '-- on the replica:' || chr(10) || 'SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start;'
  FROM pg_stat_replication r
 WHERE age(r.backend_xmin) > %(transactions)s
UNION ALL
SELECT 'rows', format('replication slot %%s, %%s', s.slot_name, CASE WHEN s.active THEN 'in use' ELSE 'not in use' END),
       CASE WHEN s.active
            THEN '-- on the replica:' || chr(10) || 'SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start;'
            ELSE format('-- its reader loses its place:' || chr(10) || 'SELECT pg_drop_replication_slot(%%L);', s.slot_name) END
  FROM pg_replication_slots s
 WHERE greatest(age(s.xmin), age(s.catalog_xmin)) > %(transactions)s
UNION ALL
SELECT 'WAL', format('replication slot %%s, not in use', s.slot_name),
       format('-- its reader loses its place:' || chr(10) || 'SELECT pg_drop_replication_slot(%%L);', s.slot_name)
  FROM pg_replication_slots s
 WHERE NOT s.active AND s.restart_lsn IS NOT NULL
 ORDER BY 1, 2
