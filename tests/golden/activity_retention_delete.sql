WITH "deleted_1" AS (
    DELETE FROM ONLY "user_activity"."action_events"
     WHERE "session_id" OPERATOR(pg_catalog.=) ANY (%(keys)s::pg_catalog.uuid[])
 RETURNING 1
), "counted_1" AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM "deleted_1"),
"deleted_2" AS (
    DELETE FROM ONLY "user_activity"."property_object_views"
     WHERE "session_id" OPERATOR(pg_catalog.=) ANY (%(keys)s::pg_catalog.uuid[])
           AND (SELECT rows FROM "counted_1") OPERATOR(pg_catalog.>=) 0
 RETURNING 1
), "counted_2" AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM "deleted_2"),
"deleted_3" AS (
    DELETE FROM ONLY "user_activity"."sessions"
     WHERE ctid OPERATOR(pg_catalog.=) ANY (%(addresses)s::pg_catalog.tid[])
           AND ("status" OPERATOR(pg_catalog.=) 'Inactive' AND "ended_at" OPERATOR(pg_catalog.<) %(cutoff)s AND "ended_at" OPERATOR(pg_catalog.>) '-infinity') IS TRUE
           AND (SELECT rows FROM "counted_2") OPERATOR(pg_catalog.>=) 0
 RETURNING 1
), "counted_3" AS MATERIALIZED (SELECT pg_catalog.count(*) AS rows FROM "deleted_3")
SELECT (SELECT rows FROM "counted_1"), (SELECT rows FROM "counted_2"), (SELECT rows FROM "counted_3")
