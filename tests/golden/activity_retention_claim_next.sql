WITH claimed AS MATERIALIZED (
    SELECT ctid AS address, "id" AS key, "ended_at" AS expiry
      FROM ONLY "user_activity"."sessions"
     WHERE "status" OPERATOR(pg_catalog.=) 'Inactive' AND "ended_at" OPERATOR(pg_catalog.<) %(cutoff)s AND ("ended_at", "id") OPERATOR(pg_catalog.>) (%(after_expiry)s::timestamptz, %(after_key)s::uuid)
     ORDER BY "ended_at", "id"
     LIMIT 5000
       FOR UPDATE SKIP LOCKED
)
SELECT pg_catalog.count(*), pg_catalog.array_agg(address)::text, pg_catalog.array_agg(key)::text,
       (pg_catalog.array_agg(expiry))[pg_catalog.count(*)]::text,
       (pg_catalog.array_agg(key))[pg_catalog.count(*)]::text
  FROM claimed
