-- Every fifth favorite has a user, however old it is.
INSERT INTO favorites.favorites (id, user_id, anonymous_id, property_object_id, note, created_at, updated_at)
SELECT md5('favorite ' || n)::uuid, CASE WHEN mod(n, 5) = 0 THEN md5('user ' || mod(n, 4000))::uuid END,
       md5('guest ' || mod(n, 12000))::uuid, md5('object ' || mod(n, 2000))::uuid,
       CASE WHEN mod(n, 5) = 1 THEN 'call on Monday, ask about parking place ' || mod(n, 90) END,
       at - random() * interval '90 days', at
  FROM times
 ORDER BY n;
