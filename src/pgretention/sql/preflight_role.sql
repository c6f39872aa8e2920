-- What the role is beyond what a run needs.
SELECT current_user::text,
       (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user),
       (SELECT coalesce(array_agg(format('%%I.%%I', n.nspname, c.relname) ORDER BY 1), '{}')
          FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS t (schema_name, table_name)
          JOIN pg_namespace n ON n.nspname = t.schema_name
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.table_name
         WHERE pg_has_role(c.relowner, 'USAGE') OR has_table_privilege(c.oid, 'TRUNCATE'))
