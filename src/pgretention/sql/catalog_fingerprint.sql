-- One number for all that a plan relies on: which tables the names stand for, their columns, their triggers (those of
-- foreign keys, from and to them, among them) and their unique indexes. Any change of these is another number.
WITH asked AS (
    -- Looked up, since VACUUM is what clears relhassubclass and relhasrules, and that is no change.
    SELECT c.oid, c.relkind,
           EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid) AS has_children,
           EXISTS (SELECT FROM pg_catalog.pg_rewrite w WHERE w.ev_class = c.oid) AS has_rules
      FROM ROWS FROM (
               pg_catalog.unnest(%(schemas)s::pg_catalog.text[]), pg_catalog.unnest(%(names)s::pg_catalog.text[])
           ) AS t (schema_name, table_name)
      JOIN pg_catalog.pg_namespace n ON n.nspname = t.schema_name
      JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.table_name
), facts (fact) AS (
    SELECT pg_catalog.concat_ws(' ', 'table', oid, relkind, has_children, has_rules)
      FROM asked
    UNION ALL
    SELECT pg_catalog.concat_ws(' ', 'column', attrelid, attnum, attname, atttypid, attcollation, attnotnull)
      FROM asked JOIN pg_catalog.pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT pg_catalog.concat_ws(' ', 'trigger', tgrelid, g.oid, tgenabled)
      FROM asked JOIN pg_catalog.pg_trigger g ON tgrelid = asked.oid
    UNION ALL
    SELECT pg_catalog.concat_ws(' ', 'unique', indexrelid)
      FROM asked JOIN pg_catalog.pg_index ON indrelid = oid AND indisunique
)
SELECT pg_catalog.hashtextextended(pg_catalog.string_agg(fact, ';' ORDER BY fact), 0::pg_catalog.int8) FROM facts
