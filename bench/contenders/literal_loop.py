"""The loop of both specifications word by word: lock the oldest ids, delete by ids, commit, again; no cursor."""

from __future__ import annotations

import psycopg

from bench.contenders import BatchDone, Task
from bench.tables import CUTOFF


def delete(task: Task, batch_done: BatchDone) -> None:
    tables = task.tables
    claim = f"{tables.oldest('%(cutoff)s', '%(size)s')} FOR UPDATE SKIP LOCKED".encode()
    *children, root = tables.deletes("= ANY (%(ids)b)")
    deletes = [*children, f"{root} AND {tables.expired('%(cutoff)s')}"]
    with psycopg.connect(task.dsn, autocommit=True) as connection:
        (cutoff,) = connection.execute(f"SELECT {CUTOFF}".encode()).fetchall()[0]
        binds = {"cutoff": cutoff, "size": task.batch_size, "ids": [None]}
        while binds["ids"]:
            with connection.transaction():
                binds["ids"] = [row[0] for row in connection.execute(claim, binds)]
                for statement in deletes if binds["ids"] else ():
                    connection.execute(statement.encode(), binds)
            batch_done()
