"""Whether two runs deleted what they should and nothing else, told without a single statement of pgretention's own.

Every row is copied beforehand. Afterwards the conditions of the specifications, written out by hand in
`sql/demo_compare.sql`, sort the copies and what is left, for exactly the cutoffs that the runs report: rows that
expire while one looks make no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import LiteralString, cast

from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.report import RunReport

ACTIVITY = ("user_activity.action_events", "user_activity.property_object_views", "user_activity.sessions")
FAVORITES = ("favorites.favorites",)
"""The tables that each job cleans: every expired row of them has to go."""

STAYS = (
    ("user_activity.sessions", "Active sessions, however old"),
    ("user_activity.sessions", "sessions that ended at the cutoff or later"),
    ("user_activity.property_object_views", "views of sessions that stay"),
    ("user_activity.action_events", "events of sessions that stay"),
    ("user_activity.property_object_view_stats", "statistics of property objects"),
    ("favorites.favorites", "favorites of accounts, however old"),
    ("favorites.favorites", "favorites of guests updated at the cutoff or later"),
)
"""What must be the same row for row: its table, and the kind that `sql/demo_compare.sql` gives it."""

_PRIVATE: LiteralString = """
    SELECT string_agg(attrelid::regclass || '.' || attname, ', ')
      FROM pg_attribute
     WHERE attrelid IN ('favorites.favorites'::regclass, 'user_activity.sessions'::regclass,
                        'user_activity.action_events'::regclass)
       AND attname IN ('note', 'anonymous_id', 'user_agent', 'payload')
       AND has_column_privilege(%s, attrelid, attnum, 'SELECT')
"""


@dataclass(frozen=True, slots=True)
class Check:
    """A statement about the runs in plain words, whether it holds, and the numbers behind it."""

    statement: str
    holds: bool
    detail: str

    @property
    def verdict(self) -> str:
        """What stands before it where it is shown: told apart without colours, and in ASCII."""
        return "ok" if self.holds else "NO"


@dataclass(frozen=True, slots=True)
class TableCount:
    """The rows of one table as SQL counted them: before, of those the expired ones, and after."""

    table: str
    before: int
    expired: int
    after: int

    @property
    def deleted(self) -> int:
        """How many rows fewer there are."""
        return self.before - self.after


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found, check by check and table by table."""

    checks: tuple[Check, ...]
    tables: tuple[TableCount, ...]

    @property
    def holds(self) -> bool:
        """Whether every check does."""
        return all(check.holds for check in self.checks)


@dataclass(frozen=True, slots=True)
class _Rows:
    """How many rows there are, and the sum of their fingerprints, which is the same in any order."""

    count: int
    fingerprint: int


@dataclass(frozen=True, slots=True)
class _Kind:
    """The rows of one kind in one table, before and after."""

    before: _Rows = _Rows(0, 0)
    after: _Rows = _Rows(0, 0)


class _Kinds(dict[tuple[str, str], _Kind]):
    """Each kind of row by table and name; one that never had a row is there too, without any."""

    def __missing__(self, key: tuple[str, str]) -> _Kind:
        return _Kind()

    def expired(self, table: str) -> _Kind:
        return self[table, "expired"]


def remember(connection: Connection[TupleRow]) -> None:
    """Copy every row of the reference schema, as somebody who may read all of it, for `prove` on this connection."""
    connection.execute(_statement("demo_before"))


def prove(connection: Connection[TupleRow], activity: RunReport, favorites: RunReport, role: str) -> Proof:
    """Compare what is left with what `remember` copied, after one run of each job as `role` and nothing else.

    A run that never came to its cutoff must not have deleted anything.
    """
    cutoffs = {"activity": activity.cutoff or "-infinity", "favorites": favorites.cutoff or "-infinity"}
    kinds = _Kinds()
    for table, name, *numbers in connection.execute(_statement("demo_compare"), cutoffs):
        before, after, sum_before, sum_after = (int(number) for number in numbers)
        kinds[str(table), str(name)] = _Kind(_Rows(before, sum_before), _Rows(after, sum_after))
    return Proof(
        checks=(
            _gone("user_activity", ACTIVITY, kinds),
            _gone("favorites", FAVORITES, kinds),
            *(_untouched(name, kinds[table, name]) for table, name in STAYS),
            _nothing_dangles(connection),
            _told_right(activity, ACTIVITY, kinds),
            _told_right(favorites, FAVORITES, kinds),
            _kept_private(connection, role),
        ),
        tables=tuple(_count(table, kinds) for table in dict.fromkeys((*ACTIVITY, *(table for table, _ in STAYS)))),
    )


def _gone(schema: str, tables: tuple[str, ...], kinds: _Kinds) -> Check:
    left = {table: kinds.expired(table).after.count for table in tables}
    return Check(f"Nothing expired is left in {schema}", not any(left.values()), _list(left) or "0 rows")


def _untouched(name: str, kind: _Kind) -> Check:
    """The same rows with the same content, none of them rewritten, not even with the values it had."""
    before, after = kind.before, kind.after
    if before == after:
        detail = f"{before.count:,} rows, all as before"
    elif before.count == after.count:
        detail = f"{before.count:,} rows, not all as before"
    else:
        detail = f"{before.count:,} rows before, {after.count:,} after"
    return Check(f"Untouched: {name}", before == after, detail)


def _nothing_dangles(connection: Connection[TupleRow]) -> Check:
    directions = ("event to session", "view to session", "event to view", "view to event")
    counts = cast("tuple[int, ...]", connection.execute(_statement("demo_dangling")).fetchone())
    detail = _list(dict(zip(directions, counts, strict=True))) or "0 in each of four directions"
    return Check("No reference leads nowhere", not any(counts), detail)


def _kept_private(connection: Connection[TupleRow], role: str) -> Check:
    (readable,) = cast("tuple[str | None]", connection.execute(_PRIVATE, [role]).fetchone())
    statement = f"{role} cannot read note, anonymous_id, user_agent or payload"
    return Check(statement, readable is None, "asked of PostgreSQL" if readable is None else f"it can: {readable}")


def _told_right(report: RunReport, tables: tuple[str, ...], kinds: _Kinds) -> Check:
    counted = {table: kinds.expired(table).before.count for table in tables}
    told = dict(report.deleted)
    if told == counted:
        detail = f"{sum(told.values()):,} rows"
    else:
        detail = f"SQL: {_list(counted) or 0}; the run: {_list(told) or 0}"
    return Check(f"{report.job} deleted as many as SQL had counted", told == counted, detail)


def _count(table: str, kinds: _Kinds) -> TableCount:
    of_table = [kind for (name, _), kind in kinds.items() if name == table]
    return TableCount(
        table=table,
        before=sum(kind.before.count for kind in of_table),
        expired=kinds.expired(table).before.count,
        after=sum(kind.after.count for kind in of_table),
    )


def _list(numbers: Mapping[str, int]) -> str:
    """The numbers other than zero, each with its name."""
    return ", ".join(f"{name.rpartition('.')[2]} {number:,}" for name, number in numbers.items() if number)


def _statement(name: str) -> bytes:
    return files("pgretention").joinpath("sql", f"{name}.sql").read_bytes()
