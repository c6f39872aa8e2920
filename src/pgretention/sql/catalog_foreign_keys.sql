-- Every foreign key from or to one of the tables asked for, with what happens to the referencing rows.
SELECT k.conname,
       n.nspname,
       c.relname,
       (SELECT array_agg(a.attname::text ORDER BY u.place)
          FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, place)
          JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum),
       rn.nspname,
       rc.relname,
       (SELECT array_agg(a.attname::text ORDER BY u.place)
          FROM unnest(k.confkey) WITH ORDINALITY AS u (attnum, place)
          JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.attnum),
       CASE k.confdeltype
           WHEN 'a' THEN 'NO ACTION' WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE'
           WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT'
       END
  FROM pg_catalog.pg_constraint k
  JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_class rc ON rc.oid = k.confrelid
  JOIN pg_catalog.pg_namespace rn ON rn.oid = rc.relnamespace
 WHERE k.contype = 'f'
   AND EXISTS (SELECT
                 FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS asked (schema_name, table_name)
                WHERE (asked.schema_name, asked.table_name) IN ((n.nspname, c.relname), (rn.nspname, rc.relname)))
 ORDER BY n.nspname, c.relname, k.conname
