"""PostgreSQL's own client, as a person would paste something into it."""

from __future__ import annotations

import subprocess

from pgretention.demo.binaries import find_binaries
from tests.databases import Database


def psql(database: Database, dsn: str, script: str, **variables: str) -> list[list[str]]:
    """The rows that the statements of a script answer; any error or notice fails the test."""
    program = find_binaries(database.server.version).path / "psql"
    given = [word for name, value in variables.items() for word in ("-v", f"{name}={value}")]
    ended = subprocess.run(
        [program, "-XqAt", "-v", "ON_ERROR_STOP=1", *given, dsn],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return [line.split("|") for line in ended.stdout.splitlines()]
