-- The reference schema of the user-activity domain: what activity-retention cleans.
-- The domain owns these tables; pgretention creates them only for its demo, its tests and whoever asks.

CREATE SCHEMA user_activity;

CREATE TABLE user_activity.sessions (
    id               uuid        PRIMARY KEY,
    user_id          uuid,
    anonymous_id     uuid,
    status           text        NOT NULL CHECK (status IN ('Active', 'Inactive')),
    started_at       timestamptz NOT NULL,
    last_activity_at timestamptz NOT NULL,
    ended_at         timestamptz,
    user_agent       text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT sessions_inactive_has_ended_at CHECK ((status = 'Inactive') = (ended_at IS NOT NULL))
);

CREATE TABLE user_activity.property_object_views (
    id                    uuid        PRIMARY KEY,
    session_id            uuid        NOT NULL REFERENCES user_activity.sessions (id) ON DELETE RESTRICT,
    property_object_id    uuid        NOT NULL,
    apply_filter_event_id uuid,
    started_at            timestamptz NOT NULL,
    ended_at              timestamptz
);

CREATE TABLE user_activity.action_events (
    id                      uuid        PRIMARY KEY,
    session_id              uuid        NOT NULL REFERENCES user_activity.sessions (id) ON DELETE RESTRICT,
    event_type              text        NOT NULL,
    property_object_view_id uuid        REFERENCES user_activity.property_object_views (id) ON DELETE SET NULL,
    occurred_at             timestamptz NOT NULL,
    payload                 jsonb
);

-- The two tables point at each other, so one of the two references can only be added once both exist.
ALTER TABLE user_activity.property_object_views
    ADD FOREIGN KEY (apply_filter_event_id) REFERENCES user_activity.action_events (id) ON DELETE SET NULL;

CREATE TABLE user_activity.property_object_view_stats (
    property_object_id uuid     PRIMARY KEY,
    views_count        bigint   NOT NULL DEFAULT 0,
    total_duration     interval NOT NULL DEFAULT '0'
);

-- The claim reads this index in its own order and touches nothing else.
CREATE INDEX ix_sessions_ended_at ON user_activity.sessions (ended_at, id) WHERE status = 'Inactive';

-- Every referencing column: without these each deleted row would scan the referencing table.
CREATE INDEX ix_property_object_views_session_id ON user_activity.property_object_views (session_id);
CREATE INDEX ix_property_object_views_apply_filter_event_id
    ON user_activity.property_object_views (apply_filter_event_id);
CREATE INDEX ix_action_events_session_id ON user_activity.action_events (session_id);
CREATE INDEX ix_action_events_property_object_view_id ON user_activity.action_events (property_object_view_id);
