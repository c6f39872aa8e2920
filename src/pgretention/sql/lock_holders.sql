-- Which sessions hold one of the advisory locks of these names, as short texts that say whom to look at.
SELECT pg_catalog.string_agg(DISTINCT holder, ', ')
  FROM (
        SELECT pg_catalog.format('process %%s (%%s, role %%s)', a.pid, a.application_name, a.usename) AS holder
          FROM pg_catalog.unnest(%(names)s::pg_catalog.text[]) AS lock_name
          JOIN pg_catalog.pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
           AND (l.classid::pg_catalog.int8 << 32 | l.objid::pg_catalog.int8)
             = pg_catalog.hashtextextended(lock_name, 0::pg_catalog.int8)
          JOIN pg_catalog.pg_stat_activity a USING (pid)
       ) AS holders
