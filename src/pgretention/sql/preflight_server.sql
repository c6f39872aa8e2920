-- The server itself: its version, its clock in seconds, and settings of the role or database that would end a batch.
SELECT current_setting('server_version_num')::int,
       extract(epoch FROM clock_timestamp())::float8,
       (SELECT coalesce(array_agg(format('%s = %s ms', name, reset_val) ORDER BY name), '{}')
          FROM pg_settings
         WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
           AND reset_val::bigint > 0)
