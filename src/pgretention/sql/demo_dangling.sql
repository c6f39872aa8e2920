-- References that lead nowhere, in each of the four directions.
SELECT (SELECT count(*) FROM user_activity.action_events e
         WHERE NOT EXISTS (SELECT FROM user_activity.sessions s WHERE s.id = e.session_id)),
       (SELECT count(*) FROM user_activity.property_object_views v
         WHERE NOT EXISTS (SELECT FROM user_activity.sessions s WHERE s.id = v.session_id)),
       (SELECT count(*) FROM user_activity.action_events e
         WHERE e.property_object_view_id IS NOT NULL
           AND NOT EXISTS (SELECT FROM user_activity.property_object_views v WHERE v.id = e.property_object_view_id)),
       (SELECT count(*) FROM user_activity.property_object_views v
         WHERE v.apply_filter_event_id IS NOT NULL
           AND NOT EXISTS (SELECT FROM user_activity.action_events e WHERE e.id = v.apply_filter_event_id))
