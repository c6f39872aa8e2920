"""What may be deleted. A policy is a plain value, and one that would be unsafe cannot be constructed.

Nothing here knows SQL, a database or a clock: `plan.py` turns a policy into statements.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pgretention.errors import PolicyError

LONGEST_RETENTION = timedelta(days=36_500)
"""A hundred years: further back a cutoff says nothing, and dates begin to overflow."""

_LONGEST_NAME = 63  # bytes; PostgreSQL silently cuts longer identifiers off (chapter 4.1.1)


@dataclass(frozen=True, slots=True, order=True)
class Table:
    """A table by its full name; the schema is never left to a search_path."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Equals:
    """Guard: the column holds exactly this text; NULL does not."""

    column: str
    value: str

    def __post_init__(self) -> None:
        _require_name("guard column", self.column)
        if "\0" in self.value or "%" in self.value:
            raise PolicyError(f"guard on {self.column}: the value must hold neither NUL nor %")


@dataclass(frozen=True, slots=True)
class IsNull:
    """Guard: the column is NULL."""

    column: str

    def __post_init__(self) -> None:
        _require_name("guard column", self.column)


Condition = Equals | IsNull


@dataclass(frozen=True, slots=True)
class Child:
    """A table whose rows go with their root row, found by the root's key in them, never by their own age."""

    table: Table
    root_key: str

    def __post_init__(self) -> None:
        _require_name("child column", self.root_key)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which rows may go: those of `root` that meet every guard and whose `expiry` lies strictly before the cutoff.

    `children` stand in the order in which they are deleted, all before the root (A-02). `retention` is how long a
    row is kept after its `expiry`. `lock` names the advisory lock that lets one run at a time through, or None where
    several may share the rows (A-09, F-05). Raises PolicyError for anything that could delete too much.
    """

    name: str
    root: Table
    key: str
    expiry: str
    guard: tuple[Condition, ...]
    retention: timedelta
    children: tuple[Child, ...] = ()
    lock: str | None = None

    def __post_init__(self) -> None:
        for table in self.tables:
            _require_name("schema", table.schema)
            _require_name("table", table.name)
        _require_name("key column", self.key)
        _require_name("expiry column", self.expiry)
        if self.key == self.expiry:
            raise PolicyError(f"policy {self.name}: key and expiry are the same column {self.key}")
        if not self.guard:
            raise PolicyError(
                f"policy {self.name}: without a guard every old row would go; give at least one condition"
            )
        if not timedelta(0) < self.retention <= LONGEST_RETENTION:
            raise PolicyError(
                f"policy {self.name}: retention must be above zero and at most {LONGEST_RETENTION.days} days"
            )
        if len({self.root, *(child.table for child in self.children)}) != 1 + len(self.children):
            raise PolicyError(f"policy {self.name}: a table stands in it twice")
        if self.lock == "":
            raise PolicyError(f"policy {self.name}: the lock's name is empty; leave it out for no lock")

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table a run deletes from, in the order it does so."""
        return (*(child.table for child in self.children), self.root)


def _require_name(what: str, name: str) -> None:
    if not name or name != name.strip() or "\0" in name or "%" in name:
        raise PolicyError(f"{what} name {name!r}: must not be empty, be padded with blanks or hold NUL or %")
    if len(name.encode()) > _LONGEST_NAME:
        raise PolicyError(f"{what} name {name!r}: longer than PostgreSQL's {_LONGEST_NAME} bytes")
