WITH claimed (address, key, expiry) AS MATERIALIZED (
    SELECT ctid, "id", "updated_at"
      FROM ONLY "favorites"."favorites"
     WHERE "user_id" IS NULL AND "updated_at" OPERATOR(pg_catalog.<) %(cutoff)s AND ("updated_at", "id") OPERATOR(pg_catalog.>) (%(after_expiry)s::pg_catalog.timestamptz, %(after_key)s::pg_catalog.uuid)
     ORDER BY "updated_at", "id"
     LIMIT 1000
       FOR UPDATE SKIP LOCKED
)
SELECT pg_catalog.count(*),
       pg_catalog.array_agg(address)::pg_catalog.text, pg_catalog.array_agg(key)::pg_catalog.text,
       (pg_catalog.array_agg(expiry))[pg_catalog.count(*)]::pg_catalog.text,
       (pg_catalog.array_agg(key))[pg_catalog.count(*)]::pg_catalog.text
  FROM claimed
