-- The strongest lock of this session on each table that it does not only read.
SELECT DISTINCT ON (l.relation) pg_catalog.format('%s on %I.%I', l.mode, n.nspname, c.relname)
  FROM pg_catalog.pg_locks l
  JOIN pg_catalog.pg_class c ON c.oid = l.relation
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE l.pid = pg_catalog.pg_backend_pid() AND l.granted AND l.mode <> 'AccessShareLock' AND c.relkind = 'r'
   AND n.nspname <> 'pg_catalog'
 ORDER BY l.relation, pg_catalog.array_position(ARRAY[
     'AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock', 'ShareUpdateExclusiveLock',
     'RowExclusiveLock', 'RowShareLock'], l.mode)
