-- A year of old rows, then a year of young ones, in the order of their time, with a day free on both sides of the cutoff.
INSERT INTO times
SELECT n, now() - random() * interval '1 hour'
              - CASE WHEN n <= %(old)s THEN interval '730 days' - interval '363 days' * n / %(old)s
                     ELSE interval '364 days' - interval '363 days' * (n - %(old)s) / (%(total)s - %(old)s) END
  FROM generate_series(1, %(total)s) AS n;
