-- Every foreign key whose deletion rule a run can meet: those to the tables asked for, and, where a key deletes rows of
-- its own accord, those to the tables it deletes from, and so on. With what it costs to look for a referencing row.
WITH RECURSIVE asked AS (
    SELECT c.oid
      FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS t (schema_name, table_name)
      JOIN pg_namespace n ON n.nspname = t.schema_name
      JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.table_name
), met (oid, conrelid, confrelid, confdeltype, conkey, conname) AS (
    SELECT k.oid, k.conrelid, k.confrelid, k.confdeltype, k.conkey, k.conname
      FROM pg_constraint k JOIN asked ON k.confrelid = asked.oid
     WHERE k.contype = 'f' AND k.conparentid = 0
    UNION
    SELECT k.oid, k.conrelid, k.confrelid, k.confdeltype, k.conkey, k.conname
      FROM pg_constraint k JOIN met ON k.confrelid = met.conrelid
     WHERE k.contype = 'f' AND k.conparentid = 0 AND met.confdeltype = 'c'
)
SELECT met.conname::text,
       n.nspname::text,
       c.relname::text,
       (SELECT array_agg(a.attname::text ORDER BY u.place)
          FROM unnest(met.conkey) WITH ORDINALITY AS u (attnum, place)
          JOIN pg_attribute a ON a.attrelid = met.conrelid AND a.attnum = u.attnum),
       rn.nspname::text,
       rc.relname::text,
       CASE met.confdeltype
           WHEN 'a' THEN 'NO ACTION' WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE'
           WHEN 'n' THEN 'SET NULL' WHEN 'd' THEN 'SET DEFAULT'
       END,
       -- By the statistics, or where there are none yet by 100 bytes a row; a partitioned table has those of its parts.
       (SELECT coalesce(sum(CASE WHEN l.reltuples >= 0 THEN l.reltuples ELSE pg_relation_size(l.oid) / 100 END), 0)::bigint
          FROM pg_class l
         WHERE l.oid = c.oid OR l.oid IN (SELECT t.relid FROM pg_partition_tree(c.oid) t WHERE t.isleaf)),
       EXISTS (SELECT
                 FROM pg_index x
                WHERE x.indrelid = met.conrelid AND x.indisvalid
                  AND (x.indpred IS NULL
                       OR pg_get_expr(x.indpred, x.indrelid) = format('(%%I IS NOT NULL)', (
                           SELECT a.attname FROM pg_attribute a WHERE a.attrelid = x.indrelid AND a.attnum = met.conkey[1])))
                  AND (SELECT array_agg(i.attnum) FROM unnest(x.indkey[0:cardinality(met.conkey) - 1]) AS i (attnum))
                      @> met.conkey)
  FROM met
  JOIN pg_class c ON c.oid = met.conrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_class rc ON rc.oid = met.confrelid
  JOIN pg_namespace rn ON rn.oid = rc.relnamespace
 ORDER BY 2, 3, 1
