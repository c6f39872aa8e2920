"""Fixtures of the command and the database, for the tests of what operators use."""

from tests.e2e.conftest import alone, command
from tests.support.fixtures import admin, gate, threads

__all__ = ["admin", "alone", "command", "gate", "threads"]
