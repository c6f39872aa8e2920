"""What one writes in SQL, with no more of Python around it than a loop."""

from __future__ import annotations

import psycopg

from bench.contenders import BatchDone, Task
from bench.tables import CUTOFF

_PROCEDURE = """
CREATE PROCEDURE purge(batch_size bigint) LANGUAGE plpgsql AS $$
DECLARE
    ids uuid[];
    cutoff CONSTANT timestamptz := {cutoff};
BEGIN
    LOOP
        ids := ARRAY({oldest} FOR UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(ids) = 0;
        {deletes}
        COMMIT;
    END LOOP;
END
$$
"""


def unbatched(task: Task, batch_done: BatchDone) -> None:
    """One DELETE for each table in one transaction: what the database itself has to do, every lock held to the end."""
    _in_one_transaction(task, batch_done)


def triggers_off(task: Task, batch_done: BatchDone) -> None:
    """The same with no foreign key checked: the physical limit, only measured, never to be offered to anybody."""
    _in_one_transaction(task, batch_done, "SET LOCAL session_replication_role = replica")


def literal_loop(task: Task, batch_done: BatchDone) -> None:
    """The loop of both specifications word by word: lock the oldest ids, delete by ids, commit, again; no cursor."""
    tables = task.tables
    claim = f"{tables.oldest('%(cutoff)s', '%(size)s')} FOR UPDATE SKIP LOCKED".encode()
    *children, root = tables.deletes("= ANY (%(ids)b)")
    deletes = [*children, f"{root} AND {tables.expired('%(cutoff)s')}"]
    with psycopg.connect(task.dsn, autocommit=True) as connection:
        ((cutoff,),) = connection.execute(f"SELECT {CUTOFF}".encode()).fetchall()
        binds = {"cutoff": cutoff, "size": task.batch_size, "ids": [None]}
        while binds["ids"]:
            with connection.transaction():
                binds["ids"] = [row[0] for row in connection.execute(claim, binds)]
                for statement in deletes if binds["ids"] else ():
                    connection.execute(statement.encode(), binds)
            batch_done()


def limited(task: Task, batch_done: BatchDone) -> None:
    """`DELETE ... WHERE id IN (SELECT ... LIMIT n)` until nothing is left; with children, once for each table."""
    oldest = task.tables.oldest(CUTOFF, str(task.batch_size))
    statements = task.tables.deletes(f"IN ({oldest})")
    deleted = 1
    with psycopg.connect(task.dsn) as connection:
        while deleted:
            for statement in statements:
                deleted = connection.execute(statement.encode()).rowcount
            connection.commit()
            batch_done()


def procedure(task: Task, batch_done: BatchDone) -> None:
    """The loop inside the server, with COMMIT after each batch, as it is written for pg_cron."""
    tables = task.tables
    text = _PROCEDURE.format(
        cutoff=CUTOFF,
        oldest=tables.oldest("cutoff", "batch_size"),
        deletes=" ".join(f"{statement};" for statement in tables.deletes("= ANY (ids)")),
    )
    with psycopg.connect(task.dsn, autocommit=True) as connection:
        connection.execute(text.encode())
        connection.execute("CALL purge(%s)", [task.batch_size])
        batch_done()


def _in_one_transaction(task: Task, batch_done: BatchDone, *before: str) -> None:
    with psycopg.connect(task.dsn) as connection:
        for statement in *before, *task.tables.deletes(f"IN ({task.tables.expired_ids})"):
            connection.execute(statement.encode())
        connection.commit()
        batch_done()
