-- What became of every row, written down in the transaction that did it: so neither a crash nor a lost answer can make
-- the notes differ from the tables. The worker's role may neither read nor change them.

CREATE SCHEMA witness;

CREATE TABLE witness.born (
    relation  text,
    id        uuid,
    root      uuid NOT NULL, -- the session of a child; of any other row itself
    refers_to uuid,          -- the other end of a reference that is SET NULL
    PRIMARY KEY (relation, id)
);
CREATE INDEX ON witness.born (root);

-- With the last committed state of the row: what counts is whether that could be deleted.
CREATE TABLE witness.gone (
    relation text,
    id       uuid,
    root     uuid        NOT NULL,
    expiry   timestamptz,
    guarded  boolean     NOT NULL, -- whether the guard allowed it to be deleted
    by       name        NOT NULL,
    run      text        NOT NULL, -- application_name
    pid      integer     NOT NULL,
    xid      xid8        NOT NULL,
    began    timestamptz NOT NULL, -- the transaction
    at       timestamptz NOT NULL,
    locked   boolean     NOT NULL, -- whether this backend kept another run of activity-retention from beginning
    PRIMARY KEY (relation, id)
);
CREATE INDEX ON witness.gone (root);

CREATE FUNCTION witness.rows_are_born() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
$$ BEGIN
    INSERT INTO witness.born
    SELECT TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME,
           (r ->> 'id')::uuid,
           coalesce(r ->> 'session_id', r ->> 'id')::uuid,
           coalesce(r ->> 'property_object_view_id', r ->> 'apply_filter_event_id')::uuid
      FROM (SELECT to_jsonb(fresh) FROM fresh) AS rows (r);
    RETURN NULL;
END $$;

CREATE FUNCTION witness.rows_are_gone() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
$$ BEGIN
    INSERT INTO witness.gone
    SELECT TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME,
           (r ->> 'id')::uuid,
           coalesce(r ->> 'session_id', r ->> 'id')::uuid,
           CASE TG_TABLE_NAME WHEN 'sessions' THEN r ->> 'ended_at' WHEN 'favorites' THEN r ->> 'updated_at' END
               ::timestamptz,
           CASE TG_TABLE_NAME WHEN 'sessions' THEN r ->> 'status' = 'Inactive' ELSE r ->> 'user_id' IS NULL END,
           session_user,
           current_setting('application_name'),
           pg_backend_pid(),
           pg_current_xact_id(),
           now(),
           clock_timestamp(),
           witness.keeps_others_out()
      FROM (SELECT to_jsonb(stale) FROM stale) AS rows (r);
    RETURN NULL;
END $$;

-- The first connection of a run has the job's lock; those beside it share the one that a run must find free to begin.
CREATE FUNCTION witness.keeps_others_out() RETURNS boolean LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT EXISTS (
        SELECT FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
           AND ((classid::bigint << 32) | objid::bigint, mode) IN (
               (hashtextextended('job:scheduled:activity-retention', 0), 'ExclusiveLock'),
               (hashtextextended('job:scheduled:activity-retention/batches', 0), 'ShareLock'))
    );
END;

CREATE FUNCTION witness.watch(relation regclass) RETURNS void LANGUAGE plpgsql AS
$$ BEGIN
    EXECUTE format('CREATE TRIGGER rows_are_born AFTER INSERT ON %s REFERENCING NEW TABLE AS fresh'
        ' EXECUTE FUNCTION witness.rows_are_born()', relation);
    EXECUTE format('CREATE TRIGGER rows_are_gone AFTER DELETE ON %s REFERENCING OLD TABLE AS stale'
        ' EXECUTE FUNCTION witness.rows_are_gone()', relation);
END $$;

SELECT witness.watch('user_activity.sessions');
SELECT witness.watch('user_activity.action_events');
SELECT witness.watch('user_activity.property_object_views');
SELECT witness.watch('favorites.favorites');
