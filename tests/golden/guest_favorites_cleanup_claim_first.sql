WITH claimed AS MATERIALIZED (
    SELECT ctid AS address, "id" AS key, "updated_at" AS expiry
      FROM ONLY "favorites"."favorites"
     WHERE "user_id" IS NULL AND "updated_at" OPERATOR(pg_catalog.<) %(cutoff)s AND "updated_at" OPERATOR(pg_catalog.>) '-infinity'
     ORDER BY "updated_at", "id"
     LIMIT 1000
       FOR UPDATE SKIP LOCKED
)
SELECT pg_catalog.count(*), pg_catalog.array_agg(address)::text, pg_catalog.array_agg(key)::text,
       (pg_catalog.array_agg(expiry))[pg_catalog.count(*)]::text,
       (pg_catalog.array_agg(key))[pg_catalog.count(*)]::text
  FROM claimed
