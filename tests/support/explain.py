"""The statements of a batch, outside of a run but as the worker's role and in the transaction a run gives them."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import psycopg
from psycopg import Connection, sql

from pgretention import catalog, db, plan
from pgretention.plan import Plan
from pgretention.policy import Policy
from pgretention.session import connect
from tests.databases import Database

Node = dict[str, Any]

_PATIENCE = timedelta(minutes=1)


@dataclass(frozen=True)
class BatchPlans:
    claim_first: Node
    claim_next: Node
    delete: Node


def statements_of(database: Database, policy: Policy) -> Plan:
    with psycopg.connect(database.worker_dsn) as connection:
        return plan.build(policy, catalog.read(connection, policy.tables))


@contextmanager
def batch_transaction(database: Database) -> Generator[Connection[Any]]:
    """A transaction with the limits and planner settings that the engine gives a batch, committed at the end."""
    with (
        connect(database.worker_dsn, "pgretention/alone") as session,
        db.transaction(session, _PATIENCE, plan.PLANNER) as connection,
    ):
        yield connection


def explain_batch(database: Database, policy: Policy, batch_size: int) -> BatchPlans:
    """The three statements of a batch, planned as they are planned when a run executes them."""
    statements = statements_of(database, policy)
    binds = {
        "cutoff": "2021-01-01 00:00:00+00",
        "after_expiry": "2020-01-01 00:00:00+00",
        "after_key": str(UUID(int=0)),
        "keys": "{" + ",".join(str(UUID(int=n)) for n in range(batch_size)) + "}",
        "addresses": "{" + ",".join(f'"({n // 50},{1 + n % 50})"' for n in range(batch_size)) + "}",
    }
    with batch_transaction(database) as connection:
        return BatchPlans(
            _explain(connection, statements.claim_first(batch_size), binds),
            _explain(connection, statements.claim_next(batch_size), binds),
            _explain(connection, statements.delete, binds),
        )


def nodes(plan: Node) -> Iterator[Node]:
    """Every node of a plan, parents before their children, in the order in which EXPLAIN shows them."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def _explain(connection: Connection[Any], statement: sql.Composed, binds: Mapping[str, str]) -> Node:
    """EXPLAIN itself would plan for the values it is given; only EXECUTE honours plan_cache_mode as a run does."""
    text = statement.as_string(connection)
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    numbered = re.sub(r"%\((\w+)\)s", lambda name: f"${names.index(name[1]) + 1}", text)
    connection.execute(f"PREPARE batch AS {numbered}".encode(), prepare=False)
    values = sql.SQL(", ").join(sql.Literal(binds[name]) for name in names)
    explain = sql.SQL("EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE batch ({})").format(values)
    row = cast("tuple[list[Node]]", connection.execute(explain).fetchone())
    connection.execute("DEALLOCATE batch")
    return cast("Node", row[0][0]["Plan"])
