"""One DELETE for each table in one transaction: what the database itself has to do, with every lock held to the end."""

from __future__ import annotations

import psycopg

from bench.contenders import BatchDone, Task


def delete(task: Task, batch_done: BatchDone) -> None:
    with psycopg.connect(task.dsn) as connection:
        for statement in task.tables.deletes(f"IN ({task.tables.expired_ids})"):
            connection.execute(statement.encode())
        connection.commit()
        batch_done()
