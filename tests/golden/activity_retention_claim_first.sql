WITH claimed (address, key, expiry) AS MATERIALIZED (
    SELECT ctid, "id", "ended_at"
      FROM ONLY "user_activity"."sessions"
     WHERE "status" OPERATOR(pg_catalog.=) 'Inactive' AND "ended_at" OPERATOR(pg_catalog.<) %(cutoff)s AND "ended_at" OPERATOR(pg_catalog.>) '-infinity'
     ORDER BY "ended_at", "id"
     LIMIT 5000
       FOR UPDATE SKIP LOCKED
)
SELECT pg_catalog.count(*),
       pg_catalog.array_agg(address)::pg_catalog.text, pg_catalog.array_agg(key)::pg_catalog.text,
       (pg_catalog.array_agg(expiry))[pg_catalog.count(*)]::pg_catalog.text,
       (pg_catalog.array_agg(key))[pg_catalog.count(*)]::pg_catalog.text
  FROM claimed
