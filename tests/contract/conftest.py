"""Fixtures of the deleting path, for the tests of this folder."""

from tests.support.fixtures import admin, gate, threads

__all__ = ["admin", "gate", "threads"]
