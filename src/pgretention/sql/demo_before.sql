-- Copies of every row as it is now, and views that hold the copies together with the living rows (`is_after`).
-- The fingerprint covers the whole content and xmin, which any rewriting of a row changes. All ends with the connection.

CREATE TEMP TABLE before_sessions AS
SELECT false AS is_after, hashtextextended(t::text || t.xmin::text, 0) AS fingerprint, t.*
  FROM user_activity.sessions t;
CREATE TEMP VIEW both_sessions AS
TABLE before_sessions UNION ALL
SELECT true, hashtextextended(t::text || t.xmin::text, 0), t.* FROM user_activity.sessions t;

CREATE TEMP TABLE before_views AS
SELECT false AS is_after, hashtextextended(t::text || t.xmin::text, 0) AS fingerprint, t.*
  FROM user_activity.property_object_views t;
CREATE TEMP VIEW both_views AS
TABLE before_views UNION ALL
SELECT true, hashtextextended(t::text || t.xmin::text, 0), t.* FROM user_activity.property_object_views t;

CREATE TEMP TABLE before_events AS
SELECT false AS is_after, hashtextextended(t::text || t.xmin::text, 0) AS fingerprint, t.*
  FROM user_activity.action_events t;
CREATE TEMP VIEW both_events AS
TABLE before_events UNION ALL
SELECT true, hashtextextended(t::text || t.xmin::text, 0), t.* FROM user_activity.action_events t;

CREATE TEMP TABLE before_stats AS
SELECT false AS is_after, hashtextextended(t::text || t.xmin::text, 0) AS fingerprint, t.*
  FROM user_activity.property_object_view_stats t;
CREATE TEMP VIEW both_stats AS
TABLE before_stats UNION ALL
SELECT true, hashtextextended(t::text || t.xmin::text, 0), t.* FROM user_activity.property_object_view_stats t;

CREATE TEMP TABLE before_favorites AS
SELECT false AS is_after, hashtextextended(t::text || t.xmin::text, 0) AS fingerprint, t.*
  FROM favorites.favorites t;
CREATE TEMP VIEW both_favorites AS
TABLE before_favorites UNION ALL
SELECT true, hashtextextended(t::text || t.xmin::text, 0), t.* FROM favorites.favorites t;
