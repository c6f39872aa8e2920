"""`python -m bench.explain JOB`: where the server spends the time of one batch, told by EXPLAIN (ANALYZE).

The claim and the deletion of a batch of default size, in the middle of a run: plan, buffers, WAL, and the time of each
foreign key's trigger.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta

from psycopg import sql

from bench.data import Dataset
from bench.rig import Rig
from bench.tables import BY_JOB
from pgretention import app, backlog, catalog, db, plan
from pgretention.demo.binaries import find_binaries
from pgretention.session import Connection, connect

ROOTS = 40_000
"""Old root rows in the table; as many are young."""

LIMIT = timedelta(minutes=1)
_ARRAY = re.compile(r"'\{[^}]{40,}\}'")


def main(words: Sequence[str]) -> None:
    """Print what PostgreSQL says; the batch is rolled back."""
    parser = argparse.ArgumentParser(prog="python -m bench.explain", description=__doc__)
    parser.add_argument("job", choices=list(BY_JOB))
    job = app.default(parser.parse_args(words).job).job
    data = Dataset(BY_JOB[job.name], ROOTS, 2 * ROOTS)
    with Rig.up(find_binaries()) as rig, rig.copy(data), connect(rig.server.dsn("turn"), "bench") as session:
        with db.looking(session, LIMIT) as connection:
            statements = plan.build(job.policy, catalog.read(connection, job.policy.tables))
            cutoff = backlog.read_cutoff(connection, job.policy.retention)
        size = job.limits.batch_size
        with db.transaction(session, LIMIT, plan.PLANNER) as connection:
            claim = statements.claim_first(size)
            row = connection.execute(claim, {"cutoff": cutoff}).fetchone()
            assert row is not None
            binds = {"cutoff": cutoff, "addresses": row[1], "keys": row[2]}
            for title, statement in ("claim", claim), ("deletion", statements.delete):
                sys.stdout.write(f"-- {title} of {size:,} root rows\n")
                sys.stdout.writelines(f"{line}\n" for line in _explained(connection, statement, binds))
            connection.execute("ROLLBACK; BEGIN")


def _explained(connection: Connection, statement: sql.Composed, binds: dict[str, object]) -> Iterator[str]:
    explain = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, WAL) {}").format(statement)
    for (line,) in connection.execute(explain, binds):
        yield _ARRAY.sub("'{…}'", str(line))


if __name__ == "__main__":
    main(sys.argv[1:])
