"""`DELETE ... WHERE id IN (SELECT ... LIMIT n)` until nothing is left; with children, once for each table."""

from __future__ import annotations

import psycopg

from bench.contenders import BatchDone, Task
from bench.tables import CUTOFF


def delete(task: Task, batch_done: BatchDone) -> None:
    oldest = task.tables.oldest(CUTOFF, str(task.batch_size))
    statements = task.tables.deletes(f"IN ({oldest})")
    deleted = 1
    with psycopg.connect(task.dsn) as connection:
        while deleted:
            for statement in statements:
                deleted = connection.execute(statement.encode()).rowcount
            connection.commit()
            batch_done()
