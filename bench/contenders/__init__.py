"""Ways to delete expired rows, one file each with a function `delete(task, batch_done)`.

Each commits what it deletes, and calls `batch_done` after each COMMIT. It runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from bench.tables import BY_JOB, Tables


@dataclass(frozen=True, slots=True)
class Contender:
    """One way, by the name it has in the results: the module it is in, and how many connections it works on."""

    name: str
    about: str
    module: str
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """What a contender is to do, as it is handed to its process."""

    module: str
    workers: int
    job: str
    dsn: str
    batch_size: int

    @property
    def tables(self) -> Tables:
        return BY_JOB[self.job]


BatchDone = Callable[[], None]
Delete = Callable[[Task, BatchDone], None]

OURS = Contender("pgretention", "`pgretention run`, one connection", "ours")
OURS_2 = Contender("pgretention, 2 workers", "`pgretention run` with `Workers = 2`", "ours", workers=2)
UNBATCHED = Contender("unbatched DELETE", "one DELETE for each table, all in one transaction", "unbatched")
LITERAL = Contender("literal loop", "the loop of the specifications: select ids, delete by ids, COMMIT", "literal_loop")
PROCEDURE = Contender("procedure", "the same loop as a PL/pgSQL procedure, for pg_cron", "procedure")
LIMITED = Contender(
    "DELETE ... LIMIT", "`DELETE ... WHERE id IN (SELECT ... LIMIT n)` until nothing is left", "limited"
)
SQLALCHEMY = Contender("SQLAlchemy Core", "the loop with select() and delete()", "sqlalchemy_core")
DJANGO = Contender("Django", "`queryset.delete()` on the models, batch by batch", "django_orm")
TRIGGERS_OFF = Contender("triggers off", "as unbatched, no foreign key checked: not to be done to data", "triggers_off")

ALL = (OURS, OURS_2, UNBATCHED, LITERAL, PROCEDURE, LIMITED, SQLALCHEMY, DJANGO, TRIGGERS_OFF)


def load(module: str) -> Delete:
    """The function of a contender, with what it imports and nothing else."""
    return cast("Delete", import_module(f"bench.contenders.{module}").delete)
