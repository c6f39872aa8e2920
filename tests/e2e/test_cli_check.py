"""`pgretention check` as a process: findings for people and for machines, and what the shell is told."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tests.databases import WORKER
from tests.support.command import Command
from tests.support.planted import plant
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS, ids

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
CASCADE = "CREATE TABLE public.notes (session uuid PRIMARY KEY REFERENCES user_activity.sessions ON DELETE CASCADE)"


@pytest.fixture(autouse=True)
def _sees_the_sessions_of_others(admin: Admin) -> Iterator[None]:
    """Of which there are those of the tests; that a role does not see them is a note."""
    role = sql.Identifier(WORKER)
    admin.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(role))
    yield
    admin.execute(sql.SQL("REVOKE pg_read_all_stats FROM {}").format(role))


def test_a_database_as_it_should_be_is_said_to_be_so_and_nothing_of_it_is_touched(
    command: Command, admin: Admin
) -> None:
    plant(admin)
    before = [ids(admin, table) for table in (SESSIONS, VIEWS, EVENTS, FAVORITES)]

    ended = command("check")

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == f"{ACTIVITY}: nothing found\n\n{GUESTS}: nothing found\n"
    assert [ids(admin, table) for table in (SESSIONS, VIEWS, EVENTS, FAVORITES)] == before


def test_an_error_is_shown_with_its_reason_and_sql_and_exit_3(command: Command, admin: Admin) -> None:
    admin.execute(CASCADE)

    ended = command("check", ACTIVITY)

    assert (ended.code, ended.stderr) == (3, "")
    head, _, rest = ended.stdout.partition("\n")
    assert head == f"{ACTIVITY}: 1 error"
    assert "ERROR  public.notes (session)\n" in rest
    assert "ON DELETE RESTRICT NOT VALID;" in rest
    assert command("check", GUESTS).code == 0


def test_as_json_it_is_one_object_with_a_list_for_each_job(command: Command, admin: Admin) -> None:
    admin.execute(CASCADE)

    ended = command("check", "--json")

    assert ended.code == 3
    found = json.loads(ended.stdout)
    assert list(found) == [ACTIVITY, GUESTS]
    assert found[GUESTS] == []
    (finding,) = found[ACTIVITY]
    assert set(finding) == {"severity", "code", "object", "why", "fix"}
    assert (finding["severity"], finding["code"]) == ("error", "undeclared-cascade")


def test_a_database_that_is_away_is_one_line_and_the_others_are_looked_at(command: Command) -> None:
    ended = command("check", ConnectionStrings__Favorites="host=127.0.0.1 port=1")

    assert ended.code == 1
    assert ended.stdout == f"{ACTIVITY}: nothing found\n"
    (problem,) = ended.problems
    assert problem.startswith(f"{GUESTS}: cannot connect")


@pytest.mark.req("H-05")
def test_an_unknown_job_is_wrong_use(command: Command) -> None:
    assert command("check", "activity").code == 2
