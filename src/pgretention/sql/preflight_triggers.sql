-- Triggers of people that a deletion fires: their names, whether they can keep a row by returning NULL, their function.
SELECT n.nspname::text, c.relname::text, g.tgname::text, (g.tgtype & 3) = 3 AS before_each_row, g.tgfoid::regproc::text
  FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS t (schema_name, table_name)
  JOIN pg_namespace n ON n.nspname = t.schema_name
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.table_name
  JOIN pg_trigger g ON g.tgrelid = c.oid
 WHERE NOT g.tgisinternal AND g.tgenabled <> 'D' AND g.tgtype & 8 = 8
 ORDER BY 1, 2, 3
