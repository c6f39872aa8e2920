"""What tests of the deleting path share: a superuser's connection, threads to run in, a gate to hold a run up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.databases import Database
from tests.support.gates import Gate


@pytest.fixture
def admin(database: Database) -> Connection[TupleRow]:
    """A superuser's connection in autocommit."""
    return database.connect()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def gate(database: Database, threads: ThreadPoolExecutor) -> Iterator[Gate]:  # noqa: ARG001  it opens before they are awaited
    gate = Gate(database)
    yield gate
    gate.dismantle()
