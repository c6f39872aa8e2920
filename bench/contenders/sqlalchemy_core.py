"""The loop as it is written with SQLAlchemy Core."""

from __future__ import annotations

import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from bench.contenders import BatchDone, Task
from bench.tables import CUTOFF


def delete(task: Task, batch_done: BatchDone) -> None:
    """Until a batch is empty."""
    tables = task.tables
    root = _table(tables.root, "id", tables.expiry)
    children = [_table(name, column) for name, column in tables.children]
    with sa.create_engine(_url(task.dsn)).connect() as connection:
        cutoff = connection.scalar(sa.select(sa.text(CUTOFF)))
        oldest = (
            sa.select(root.c.id)
            .where(sa.text(tables.guard), root.c[tables.expiry] < cutoff)
            .order_by(root.c[tables.expiry])
            .limit(task.batch_size)
            .with_for_update(skip_locked=True)
        )
        while ids := connection.scalars(oldest).all():
            for child in children:
                connection.execute(sa.delete(child).where(child.c[0].in_(ids)))
            connection.execute(sa.delete(root).where(root.c.id.in_(ids)))
            connection.commit()
            batch_done()


def _table(name: str, key: str, *expiry: str) -> sa.Table:
    schema, _, table = name.partition(".")
    columns = [sa.Column(key, sa.Uuid), *(sa.Column(column, sa.DateTime(timezone=True)) for column in expiry)]
    return sa.Table(table, sa.MetaData(), *columns, schema=schema)


def _url(dsn: str) -> sa.URL:
    words = conninfo_to_dict(dsn)
    return sa.URL.create(
        "postgresql+psycopg",
        username=str(words["user"]),
        password=str(words["password"]),
        host=str(words["host"]),
        port=int(words["port"] or 5432),
        database=str(words["dbname"]),
    )
