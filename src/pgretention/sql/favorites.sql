-- The reference schema of the favorites domain: what guest-favorites-cleanup cleans.
-- The domain owns this table; pgretention creates it only for its demo, its tests and whoever asks.

CREATE SCHEMA favorites;

CREATE TABLE favorites.favorites (
    id                 uuid        PRIMARY KEY,
    user_id            uuid,
    anonymous_id       uuid,
    property_object_id uuid        NOT NULL,
    note               text,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT favorites_has_an_owner CHECK (user_id IS NOT NULL OR anonymous_id IS NOT NULL)
);

CREATE INDEX ix_favorites_created_at ON favorites.favorites (created_at);

-- The claim reads this index in its own order; account-owned rows are not even in it.
CREATE INDEX ix_favorites_guest_updated_at ON favorites.favorites (updated_at, id) WHERE user_id IS NULL;
