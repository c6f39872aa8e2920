"""How PostgreSQL would execute the statements of a batch, and what that means for a run, in words (chapter 14.1).

A run plans its statements without a look at the values (`plan.PLANNER`), which only EXPLAIN EXECUTE shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql

from pgretention import backlog, catalog, db, plan
from pgretention.errors import Fault, FaultKind
from pgretention.policy import Policy
from pgretention.session import Connection, Session

Node = dict[str, Any]

Judge = Callable[[list[Node]], Iterator[str]]

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_ORDERED = frozenset({"Index Scan", "Index Only Scan"})
_BY_INDEX = _ORDERED | {"Bitmap Index Scan"}


@dataclass(frozen=True, slots=True)
class Shape:
    """A statement by its title, the lines of its plan, and what they mean; no lines where the role may not ask."""

    title: str
    lines: tuple[str, ...]
    verdict: tuple[str, ...]


def shapes(session: Session, policy: Policy, cutoff: datetime, batch_size: int) -> tuple[Shape, ...]:
    """The statements of a batch as PostgreSQL would execute them now; executes none. Raises Refusal and Fault."""
    with db.looking(session, backlog.MEASURING) as connection:
        statements = plan.build(policy, catalog.read(connection, policy.tables))
    never = {"after_expiry": "2000-01-01 00:00:00+00", "after_key": None, "keys": "{}", "addresses": "{}"}
    binds = {"cutoff": cutoff.isoformat(), **never}
    return tuple(
        _shape(session, title, statement, binds, judge)
        for title, statement, judge in (
            ("claim the first batch", statements.claim_first(batch_size), _judge_claim),
            ("claim every further batch", statements.claim_next(batch_size), _judge_next),
            ("delete the claimed batch", statements.delete, _judge_deletion),
        )
    )


def _shape(
    session: Session, title: str, statement: sql.Composed, binds: Mapping[str, str | None], judge: Judge
) -> Shape:
    try:
        with (
            db.looking(session, backlog.MEASURING, plan.PLANNER) as connection,
            prepared(connection, statement, binds) as execute,
        ):
            lines = connection.execute(sql.SQL("EXPLAIN (COSTS OFF) {}").format(execute)).fetchall()
            root = node_of(connection, execute, "FORMAT JSON")["Plan"]
    except Fault as fault:
        if fault.kind is not FaultKind.PRIVILEGE:
            raise
        missing = "not shown, since the role lacks a privilege that a run needs: see `pgretention check`"
        return Shape(title, (), (missing,))
    return Shape(title, tuple(str(line) for (line,) in lines), tuple(judge(list(nodes(root)))))


@contextmanager
def prepared(
    connection: Connection, statement: sql.Composed, binds: Mapping[str, str | None]
) -> Generator[sql.Composed]:
    """While inside, in a transaction, the statement is prepared; yields the EXECUTE of it with these values.

    A prepared statement would outlive a transaction that fails, and behind a pooler be somebody else's.
    """
    text = statement.as_string(connection)
    names = list(dict.fromkeys(_PLACEHOLDER.findall(text)))
    numbered = _PLACEHOLDER.sub(lambda name: f"${names.index(name[1]) + 1}", text)
    values = sql.SQL(", ").join(sql.Literal(binds[name]) for name in names)
    connection.execute("SAVEPOINT pgretention_batch", prepare=False)
    try:
        connection.execute(f"PREPARE pgretention_batch AS {numbered}".encode(), prepare=False)
        yield sql.SQL("EXECUTE pgretention_batch ({})").format(values)
    except BaseException:  # Ctrl-C too
        with suppress(psycopg.Error):  # the error that led here is the one to tell
            connection.execute("ROLLBACK TO SAVEPOINT pgretention_batch", prepare=False)
            connection.execute("DEALLOCATE pgretention_batch", prepare=False)
        raise
    connection.execute("DEALLOCATE pgretention_batch", prepare=False)


def node_of(connection: Connection, execute: sql.Composed, options: LiteralString) -> Node:
    """What EXPLAIN says of a statement as JSON, with everything beside the plan."""
    explain = sql.SQL("EXPLAIN ({}) {}").format(sql.SQL(options), execute)
    row = connection.execute(explain, prepare=False).fetchone()
    return cast("tuple[list[Node]]", row)[0][0]


def nodes(node: Node) -> Iterator[Node]:
    """Every node of a plan, parents before their children."""
    yield node
    for below in node.get("Plans", []):
        yield from nodes(below)


def reads_everything(found: list[Node]) -> bool:
    """Whether a claim reads and sorts all that is expired, since no index has rows in the order of their expiry."""
    return bool({node["Node Type"] for node in found} & {"Sort", "Seq Scan"})


def _judge_claim(found: list[Node]) -> Iterator[str]:
    if reads_everything(found):
        yield "BAD: reads and sorts the whole table for every batch; `pgretention check` has the index to create"
        return
    for node in found:
        if node["Node Type"] in _ORDERED:
            yield f"good: reads {node['Index Name']} in its order and stops with the last row of the batch"
        if node["Node Type"] == "Incremental Sort":
            yield "good: sorts rows of the same expiry, which is little where these differ"


def _judge_next(found: list[Node]) -> Iterator[str]:
    yield from _judge_claim(found)
    for node in found:
        if node["Node Type"] in _ORDERED and re.search(r"ROW\(|>= ", str(node.get("Index Cond"))):
            yield "good: starts where the batch before ended, so the last batch costs as much as the first"


def _judge_deletion(found: list[Node]) -> Iterator[str]:
    for node in found:
        if node["Node Type"] != "ModifyTable":
            continue
        table = node["Relation Name"]
        scans = [below for below in nodes(node) if "Scan" in below["Node Type"]]
        indexes = sorted({below["Index Name"] for below in scans if below["Node Type"] in _BY_INDEX})
        if any(below["Node Type"] == "Seq Scan" and below["Relation Name"] == table for below in scans):
            yield f"BAD: reads all of {table} for every batch; `pgretention check` has the index to create"
        elif indexes:
            yield f"good: finds rows of {table} by {' and '.join(indexes)}"
        else:
            yield f"good: finds rows of {table} by the addresses under which they are locked"
