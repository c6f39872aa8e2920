"""Ways to delete expired rows: functions that commit what they delete and call `batch_done` after each COMMIT.

Each runs in a process of its own, which imports no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from bench.tables import BY_JOB, Tables


@dataclass(frozen=True, slots=True)
class Contender:
    """One way, by the name it has in the results: `module:function` of this package, on so many connections."""

    name: str
    about: str
    path: str
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """What a contender is to do, as it is handed to its process."""

    path: str
    workers: int
    job: str
    dsn: str
    batch_size: int
    pause_ms: int = 0

    @property
    def tables(self) -> Tables:
        """Those of the job."""
        return BY_JOB[self.job]


BatchDone = Callable[[], None]
Delete = Callable[[Task, BatchDone], None]

OURS = Contender("pgretention", "`pgretention run`", "ours:delete")
OURS_2 = Contender("pgretention, 2 workers", "`pgretention run` with `Workers = 2`", "ours:delete", workers=2)
UNBATCHED = Contender("unbatched DELETE", "one DELETE for each table, all in one transaction", "by_hand:unbatched")
LITERAL = Contender("literal loop", "select the oldest ids, delete by ids, COMMIT, again", "by_hand:literal_loop")
PROCEDURE = Contender("procedure", "the same loop as a PL/pgSQL procedure, for pg_cron", "by_hand:procedure")
LIMITED = Contender("DELETE LIMIT", "`DELETE ... WHERE id IN (SELECT ... LIMIT n)`, again", "by_hand:limited")
SQLALCHEMY = Contender("SQLAlchemy Core", "the loop with `select()` and `delete()`", "sqlalchemy_core:delete")
DJANGO = Contender("Django", "`queryset.delete()`, batch by batch", "django_orm:delete")
TRIGGERS_OFF = Contender("triggers off", "unbatched, no foreign key checked: never do that", "by_hand:triggers_off")

ALL = (OURS, OURS_2, UNBATCHED, LITERAL, PROCEDURE, LIMITED, SQLALCHEMY, DJANGO, TRIGGERS_OFF)


def load(path: str) -> Delete:
    """The function of a contender, with what it imports and nothing else."""
    module, _, function = path.partition(":")
    return cast("Delete", getattr(import_module(f"{__name__}.{module}"), function))
