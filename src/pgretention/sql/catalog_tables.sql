-- One row per table asked for: its kind, whether others inherit from it, its columns, those unique on their own, and
-- what about it would make a deletion wrong.
SELECT n.nspname,
       c.relname,
       -- Looked up, since relhasrules stays true after the last rule is dropped, until the next VACUUM.
       CASE WHEN c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_rewrite w WHERE w.ev_class = c.oid) THEN 'rules' ELSE c.relkind::text END,
       EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid),
       (SELECT coalesce(jsonb_object_agg(
                   a.attname,
                   CASE t.typtype WHEN 'e' THEN 'enum ' WHEN 'c' THEN 'composite ' ELSE '' END
                   || pg_catalog.format_type(a.atttypid, NULL)
                   || CASE WHEN l.collisdeterministic IS FALSE THEN ' with a nondeterministic collation' ELSE '' END
               ), '{}')
          FROM pg_catalog.pg_attribute a
          JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
          LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT coalesce(array_agg(a.attname::text), '{}')
          FROM pg_catalog.pg_index x
          JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]
         WHERE x.indrelid = c.oid AND x.indisunique AND x.indisvalid AND x.indimmediate
           AND x.indnkeyatts = 1 AND x.indpred IS NULL AND a.attnotnull),
       array_remove(ARRAY[
           CASE WHEN pg_catalog.pg_is_in_recovery()
                THEN 'this server is a standby and cannot delete; connect to the primary' END,
           CASE WHEN pg_catalog.row_security_active(c.oid)
                THEN 'row-level security hides rows of it from this role; give the role BYPASSRLS' END,
           CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_trigger g
                              WHERE g.tgrelid = c.oid AND g.tgisinternal AND g.tgenabled NOT IN ('O', 'A'))
                THEN 'its foreign keys are switched off; ALTER TABLE … ENABLE TRIGGER ALL switches them on' END,
           CASE WHEN pg_catalog.current_setting('session_replication_role') = 'replica'
                THEN 'session_replication_role is replica, so its foreign keys do nothing; reset it for the role' END
       ], NULL)
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN unnest(%(schemas)s::text[], %(names)s::text[]) AS asked (schema_name, table_name)
    ON asked.schema_name = n.nspname AND asked.table_name = c.relname
