"""The loop inside the server, with COMMIT after each batch, as it is written for pg_cron."""

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


def delete(task: Task, batch_done: BatchDone) -> None:
    tables = task.tables
    procedure = _PROCEDURE.format(
        cutoff=CUTOFF,
        oldest=tables.oldest("cutoff", "batch_size"),
        deletes=" ".join(f"{statement};" for statement in tables.deletes("= ANY (ids)")),
    )
    with psycopg.connect(task.dsn, autocommit=True) as connection:
        connection.execute(procedure.encode())
        connection.execute("CALL purge(%s)", [task.batch_size])
        batch_done()
