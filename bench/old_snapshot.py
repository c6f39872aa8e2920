"""Does a batch get slower while an old snapshot keeps vacuum away? Run with `make bench-snapshot`.

Cleans expired favorites with a REPEATABLE READ snapshot open in another session, once with pgretention and once with
the plain loop (select ids, delete by ids), and prints the mean time of the first and of the last tenth of the batches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.resources import files
from itertools import pairwise
from statistics import fmean

import psycopg

from pgretention import engine
from pgretention.clock import SystemClock
from pgretention.demo.binaries import available
from pgretention.demo.server import ThrowawayServer
from pgretention.job import Job, Limits
from pgretention.jobs import guest_favorites_cleanup
from pgretention.report import BatchDone, Fact
from pgretention.schedule import Schedule
from pgretention.stop import Stop

RETENTION = timedelta(days=365)
FILL = """
    INSERT INTO favorites.favorites (id, user_id, anonymous_id, property_object_id, created_at, updated_at)
    SELECT gen_random_uuid(), CASE WHEN g %% 5 = 0 THEN gen_random_uuid() END, gen_random_uuid(), gen_random_uuid(),
           t, t
      FROM (SELECT g, now() - interval '365 days' - random() * interval '365 days' AS t
              FROM generate_series(1, %s) AS g) AS old
"""


def with_pgretention(dsn: str, batch_size: int) -> list[float]:
    """Seconds each batch took, as the engine reports them."""
    job = Job(
        policy=guest_favorites_cleanup.policy(RETENTION),
        limits=Limits(batch_size, timedelta(hours=1)),
        schedule=Schedule.parse("0 3 * * *", "UTC"),
    )
    took: list[float] = []

    def observe(fact: Fact) -> None:
        if isinstance(fact, BatchDone):
            took.append(fact.duration.total_seconds())

    engine.run(job, dsn, run_id="old-snapshot", observe=observe, stop=Stop(), clock=SystemClock())
    return took


def with_plain_loop(dsn: str, batch_size: int) -> list[float]:
    """The same rows by the loop of the specification: select ids, delete by ids, commit, again."""
    marks = [time.perf_counter()]
    with psycopg.connect(dsn, autocommit=True) as connection:
        cutoff = connection.execute("SELECT now() - %s", [RETENTION]).fetchone()
        binds = {"cutoff": cutoff and cutoff[0], "size": batch_size, "ids": [None]}
        while binds["ids"]:
            with connection.transaction():
                rows = connection.execute(
                    "SELECT id FROM favorites.favorites WHERE user_id IS NULL AND updated_at < %(cutoff)s"
                    " ORDER BY updated_at LIMIT %(size)s FOR UPDATE SKIP LOCKED",
                    binds,
                )
                binds["ids"] = [row[0] for row in rows]
                connection.execute(
                    "DELETE FROM favorites.favorites"
                    " WHERE user_id IS NULL AND updated_at < %(cutoff)s AND id = ANY (%(ids)s)",
                    binds,
                )
            marks.append(time.perf_counter())
    return [end - begin for begin, end in pairwise(marks)][:-1]


def measure(server: ThrowawayServer, clean: Callable[[str, int], list[float]], rows: int, batch_size: int) -> None:
    """Fill a database of its own, hold an old snapshot on it, clean it, print the first and the last tenth."""
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE measured")
    dsn = server.dsn("measured")
    with psycopg.connect(dsn, autocommit=True) as connection, psycopg.connect(dsn) as reader:
        connection.execute((files("pgretention") / "sql" / "favorites.sql").read_bytes())
        connection.execute(FILL, [rows * 5 // 4])
        connection.execute("VACUUM ANALYZE favorites.favorites")
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        took = clean(dsn, batch_size)
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        connection.execute("DROP DATABASE measured")
    tenth = max(1, len(took) // 10)
    first, last = fmean(took[:tenth]) * 1000, fmean(took[-tenth:]) * 1000
    print(
        f"PostgreSQL {server.version}  {clean.__name__:17}  {len(took):4} batches  {sum(took):6.1f} s"
        f"  first tenth {first:6.2f} ms  last tenth {last:7.2f} ms  ratio {last / first:6.2f}"
    )


def main() -> None:
    """Both ways on every PostgreSQL found here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="expired favorites (default %(default)s)")
    parser.add_argument("--batch-size", type=int, default=1000, help="rows a batch (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of pgretention (default %(default)s)")
    chosen = parser.parse_args()
    for binaries in available():
        with ThrowawayServer.start(binaries, {"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server:
            for _ in range(chosen.rounds):
                measure(server, with_pgretention, chosen.rows, chosen.batch_size)
            measure(server, with_plain_loop, chosen.rows, chosen.batch_size)


if __name__ == "__main__":
    main()
