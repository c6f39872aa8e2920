"""The same rows with no foreign key checked: the physical limit, only measured, never to be offered to anybody."""

from __future__ import annotations

import psycopg

from bench.contenders import BatchDone, Task


def delete(task: Task, batch_done: BatchDone) -> None:
    with psycopg.connect(task.dsn) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        for statement in task.tables.deletes(f"IN ({task.tables.expired_ids})"):
            connection.execute(statement.encode())
        connection.commit()
        batch_done()
