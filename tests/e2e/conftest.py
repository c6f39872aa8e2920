"""Fixtures of the deleting path and of the command, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import Database
from tests.support.command import Command, commands, commands_on
from tests.support.fixtures import admin, gate, threads

__all__ = ["admin", "gate", "threads"]


@pytest.fixture
def command(database: Database) -> Iterator[Command]:
    """The command on an empty database, as the role that has the least privileges."""
    with commands_on(database) as command:
        yield command


@pytest.fixture
def alone() -> Iterator[Command]:
    """The command where nobody listens."""
    with commands("host=127.0.0.1 port=1 user=somebody password=nobody-may-know", "nobody-may-know") as command:
        yield command
