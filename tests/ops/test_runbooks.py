"""Every command of every runbook is run, on a database with the fault that the runbook is about, and what it prints is
what the runbook says it does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.demo.binaries import find_binaries
from pgretention.sinks.metric_names import COMMON, OWN
from tests.databases import Database
from tests.support.planted import HIDDEN, old_favorites, old_sessions

Admin = Connection[TupleRow]

FOLDER = Path(__file__).parents[2] / "docs" / "runbooks"
PAGES = sorted(page.name for page in FOLDER.glob("*.md") if page.name != "README.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOCK = "hashtextextended('job:scheduled:activity-retention', 0)"


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((FOLDER / page).read_text("utf-8"))


def note(admin: Admin, action: str) -> list[UUID]:
    """A table that nobody declared refers to the oldest of five sessions."""
    old = old_sessions(admin, 5)
    admin.execute(
        "CREATE TABLE public.notes (id int PRIMARY KEY, session_id uuid REFERENCES user_activity.sessions "
        f"ON DELETE {action})".encode()
    )
    admin.execute("CREATE INDEX ON public.notes (session_id)")
    admin.execute("INSERT INTO public.notes VALUES (1, %s)", [old[0]])
    return old


def lock(database: Database) -> None:
    """Somebody keeps the lock until he is terminated."""
    somebody = database.connect()
    somebody.execute(f"SELECT pg_advisory_lock({LOCK})".encode())


def nothing(_: Admin) -> None:
    pass


FAULTS: dict[str, Callable[[Admin], object]] = {
    "backlog-grows.md": lambda admin: old_sessions(admin, 7),
    "dead-rows.md": nothing,
    "hold-a-job.md": nothing,
    "lock-not-released.md": nothing,
    "no-run.md": nothing,
    "run-fails.md": lambda admin: note(admin, "NO ACTION"),
    "run-refused.md": lambda admin: [*note(admin, "CASCADE"), *old_favorites(admin, 3)],
    "too-much-deleted.md": lambda admin: old_favorites(admin, 3),
}
SETTINGS = {
    "backlog-grows.md": {"ActivityRetention__BatchSize": "2", "ActivityRetention__MaxBatchesPerRun": "3"},
    "no-run.md": {"JOB": "guest-favorites-cleanup"},
    "run-refused.md": {"Favorites__GuestRetention__MaxExpiredRows": "1"},
}


@pytest.fixture
def environment(database: Database, tmp_path: Path) -> dict[str, str]:
    """What a runbook takes for granted: the commands on the path and the connection strings."""
    program = tmp_path / "pgretention"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pgretention "$@"\n')
    program.chmod(0o755)
    psql = find_binaries(database.server.version).path
    return {
        "PATH": f"{tmp_path}:{psql}:{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OWNER_DSN": database.dsn,
        "ConnectionStrings__UserActivity": database.worker_dsn,
        "ConnectionStrings__Favorites": database.worker_dsn,
    }


@pytest.mark.req("A-26", "F-19")
@pytest.mark.parametrize("page", PAGES)
def test_every_command_does_and_prints_what_the_runbook_says(
    database: Database, admin: Admin, environment: dict[str, str], page: str
) -> None:
    FAULTS[page](admin)
    if page == "lock-not-released.md":
        lock(database)
    printed = ""
    typed = database.connect()
    for kind, text in blocks(page):
        if kind == "sql":  # into a psql that stays open
            printed = "\n".join({True: "t", False: "f"}[answer] for (answer,) in typed.execute(text.encode()))
        elif kind == "sh":
            done = subprocess.run(
                ["bash", "-eu", "-c", text],
                env={**environment, **SETTINGS.get(page, {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            printed = done.stdout
            assert done.returncode == 0, (text, printed)
            assert "Traceback" not in printed
            assert not any(hidden in printed for hidden in HIDDEN)
        elif kind == "text":
            assert_says(printed, text)


def test_whoever_holds_the_same_lock_in_another_database_is_neither_named_nor_ended(
    database: Database, environment: dict[str, str]
) -> None:
    with psycopg.connect(database.server.dsn(), autocommit=True) as elsewhere:
        elsewhere.execute(f"SELECT pg_advisory_lock({LOCK})".encode())
        asked = [text for kind, text in blocks("lock-not-released.md") if kind == "sh" and "pg_locks" in text]
        said = [subprocess.check_output(["bash", "-eu", "-c", text], env=environment, text=True) for text in asked]
        assert len(said) == 2
        assert said[0].endswith("(0 rows)\n\n")
        assert said[1] == ""
        assert elsewhere.execute("SELECT 1").fetchone() == (1,)


def assert_says(printed: str, wanted: str) -> None:
    """Each line of what is wanted, … standing for anything, begins a line of what was printed, in that order."""
    lines = iter(printed.splitlines())
    for line in wanted.splitlines():
        pattern = ".*".join(re.escape(part) for part in line.rstrip().split("…"))
        assert any(re.match(pattern, found) for found in lines), f"{line!r} is not in\n{printed}"


def test_every_runbook_has_a_fault_to_be_tried_on_and_stands_in_the_list() -> None:
    index = (FOLDER / "README.md").read_text("utf-8")
    assert sorted(FAULTS) == PAGES
    for page in PAGES:
        assert f"({page})" in index
        kinds = [kind for kind, _ in blocks(page)]
        assert set(kinds) <= {"sh", "sql", "text", "promql"}
        assert kinds.count("sh") + kinds.count("sql") == kinds.count("text") >= 2, page


def test_every_expression_names_metrics_that_there_are() -> None:
    names = {metric.name for metrics in (COMMON, *OWN.values()) for metric in metrics}
    for page in PAGES:
        for kind, text in blocks(page):
            if kind == "promql":
                assert set(re.findall(r"pgretention_\w+", text)) <= names
