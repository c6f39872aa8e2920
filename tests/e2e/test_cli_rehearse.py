"""`pgretention rehearse` as a process: what batches cost, for people and for machines, and nothing is gone."""

from __future__ import annotations

import json

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.databases import WORKER
from tests.support.command import Command
from tests.support.planted import old_favorites, old_sessions, plant
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS, ids

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
BOTH = pytest.mark.parametrize("job", [ACTIVITY, GUESTS])
TWO_A_BATCH = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}


def everything(admin: Admin) -> list[set[object]]:
    return [ids(admin, table) for table in (SESSIONS, VIEWS, EVENTS, FAVORITES)]


@BOTH
def test_batches_are_told_and_nothing_is_gone(command: Command, admin: Admin, job: str) -> None:
    plant(admin)
    before = everything(admin)

    ended = command("rehearse", job, **TWO_A_BATCH)

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"{job}: 3 batches deleted and rolled back; nothing is gone\n")
    for words in "WAL kB", "RowExclusiveLock on ", "BatchSize", "dead row versions":
        assert words in ended.stdout
    assert ("foreign key or trigger" in ended.stdout) is (job == ACTIVITY)
    assert everything(admin) == before


def test_as_json_it_is_one_object(command: Command, admin: Admin) -> None:
    old_sessions(admin, 5)

    ended = command("rehearse", ACTIVITY, "--batches", "2", "--json", **TWO_A_BATCH)

    result = json.loads(ended.stdout)
    assert [batch["rows"] for batch in result["batches"]] == [{str(EVENTS): 2, str(VIEWS): 2, str(SESSIONS): 2}] * 2
    assert (result["backlog"], result["batches_needed"], result["runs_needed"]) == (5, 3, 1)
    assert {trigger["name"] for trigger in result["batches"][0]["triggers"]} >= {"action_events_session_id_fkey"}


def test_nothing_expired_is_said(command: Command) -> None:
    ended = command("rehearse", GUESTS)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == f"{GUESTS}: nothing to rehearse, no row is expired that nobody else has locked\n"


def test_a_run_that_would_be_refused_is_refused(command: Command, admin: Admin) -> None:
    admin.execute("ALTER TABLE user_activity.sessions DROP COLUMN status CASCADE")
    ended = command("rehearse", ACTIVITY)
    assert ended.code == 3
    assert "has no column status" in ended.stderr


def test_a_role_that_lacks_a_privilege_is_told_in_one_line(command: Command, admin: Admin) -> None:
    old_favorites(admin, 2)
    admin.execute(f"REVOKE DELETE ON favorites.favorites FROM {WORKER}".encode())
    ended = command("rehearse", GUESTS)
    assert ended.code == 1
    (problem,) = ended.problems
    assert "privilege" in problem


@pytest.mark.parametrize("batches", ["0", "101", "x"])
def test_the_number_of_batches_has_bounds(command: Command, batches: str) -> None:
    assert command("rehearse", GUESTS, "--batches", batches).code == 2
