WITH "deleted_1" AS (
    DELETE FROM ONLY "favorites"."favorites"
     WHERE ctid OPERATOR(pg_catalog.=) ANY (%(addresses)s::pg_catalog.tid[])
           AND ("user_id" IS NULL AND "updated_at" OPERATOR(pg_catalog.<) %(cutoff)s AND "updated_at" OPERATOR(pg_catalog.>) '-infinity') IS TRUE
 RETURNING 1
), "counted_1" AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM "deleted_1")
SELECT (SELECT rows FROM "counted_1")
