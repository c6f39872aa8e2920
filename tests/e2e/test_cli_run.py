"""`pgretention run` as a scheduler sees it: a result, a log and an exit code for each way a run can end."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import pytest
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from tests.databases import WORKER, Database
from tests.support import planted, rows
from tests.support.command import CONSOLE_LINE, RESULT_KEYS, Command, Ended
from tests.support.gates import Gate, one
from tests.support.planted import expired, left, old_favorites, old_sessions, plant
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS, ids
from tests.support.triggers import drop, on_delete

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
TABLES = {ACTIVITY: [str(EVENTS), str(VIEWS), str(SESSIONS)], GUESTS: [str(FAVORITES)]}
ROOTS = {ACTIVITY: str(SESSIONS), GUESTS: str(FAVORITES)}

BOTH = pytest.mark.parametrize("job", [ACTIVITY, GUESTS])

ERROR_KEYS = ["kind", "sqlstate", "constraint", "message", "keys"]

TWO_A_BATCH = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}


def summary_lines(ended: Ended) -> dict[str, str]:
    """The result for people: the first line under "", the others under the word they begin with."""
    first, *lines = ended.stdout.splitlines()
    return {"": first, **{line.split()[0]: line for line in lines}}


@pytest.mark.req("A-06", "A-15")
@BOTH
def test_the_result_is_one_object_whose_counts_are_those_that_sql_counted_before(
    command: Command, admin: Admin, job: str
) -> None:
    plant(admin)
    counted = {table: rows for table, rows in expired(admin).items() if table in TABLES[job]}
    before = one(admin, "SELECT now() - interval '8760 hours'")

    ended = command("run", job, "--json", **TWO_A_BATCH)

    result = ended.result
    assert ended.code == 0
    assert list(result) == RESULT_KEYS
    assert list(result["deleted"]) == TABLES[job]
    assert result["deleted"] == counted
    assert all(counted.values())
    after = one(admin, "SELECT now() - interval '8760 hours'")
    assert isinstance(before, datetime)
    assert isinstance(after, datetime)
    cutoff = datetime.fromisoformat(result["cutoff"])
    assert before <= cutoff <= after
    assert cutoff.utcoffset() == timedelta(0)
    assert str(UUID(result["run_id"])) == result["run_id"]
    assert result["duration_seconds"] > 0
    roots = counted[ROOTS[job]]
    assert isinstance(roots, int)
    told_above = {"run_id", "cutoff", "deleted", "duration_seconds"}
    assert {key: value for key, value in result.items() if key not in told_above} == {
        "job": job,
        "outcome": "completed",
        "batches": (roots + 1) // 2,
        "has_more": False,
        "backlog_before": roots,
        "backlog_after": 0,
        "backlog_exact": True,
        "error": None,
    }
    assert not any(rows for table, rows in expired(admin).items() if table in TABLES[job])


@pytest.mark.req("A-14", "F-12")
@BOTH
def test_a_second_run_and_one_on_an_empty_database_succeed_with_zeros(command: Command, admin: Admin, job: str) -> None:
    empty = command("run", job, "--json")
    plant(admin)
    first = command("run", job, "--json")
    second = command("run", job, "--json")

    assert all(first.result["deleted"].values())
    for ended in empty, second:
        assert ended.code == 0
        assert ended.result["deleted"] == dict.fromkeys(TABLES[job], 0)
        assert (ended.result["outcome"], ended.result["batches"]) == ("completed", 0)
        assert (ended.result["has_more"], ended.result["error"]) == (False, None)
        assert (ended.result["backlog_before"], ended.result["backlog_after"]) == (0, 0)


@pytest.mark.req("A-11", "A-15")
def test_the_limit_on_batches_ends_a_run_well_with_has_more(command: Command, admin: Admin) -> None:
    sessions = old_sessions(admin, 7)

    limit = ("--set", "ActivityRetention:MaxBatchesPerRun=2", "--set", "ActivityRetention:BatchSize=2")
    ended = command("run", ACTIVITY, "--json", *limit)

    assert ended.code == 0
    assert (ended.result["outcome"], ended.result["batches"], ended.result["has_more"]) == ("limit_reached", 2, True)
    assert ended.result["deleted"] == dict.fromkeys(TABLES[ACTIVITY], 4)
    assert (ended.result["backlog_before"], ended.result["backlog_after"]) == (7, 3)
    assert ended.result["error"] is None
    assert left(admin) == set(sessions[4:])


@pytest.mark.req("A-11", "F-09")
@BOTH
def test_the_limit_on_time_ends_a_run_well_with_has_more(command: Command, admin: Admin, gate: Gate, job: str) -> None:
    sessions, favorites = old_sessions(admin, 4), old_favorites(admin, 4)
    root, keys = (SESSIONS, sessions) if job == ACTIVITY else (FAVORITES, favorites)
    gate.before_deleting(root, keys[2])  # and it is never opened: the second batch never ends

    limit = {"ActivityRetention__MaxRunDuration": "1s", "Favorites__GuestRetention__MaxRunDuration": "1s"}
    ended = command("run", job, "--json", **TWO_A_BATCH, **limit)

    assert ended.code == 0
    assert (ended.result["outcome"], ended.result["has_more"], ended.result["error"]) == ("limit_reached", True, None)
    assert ended.result["batches"] <= 1
    gone = 2 * ended.result["batches"]
    assert ended.result["deleted"] == dict.fromkeys(TABLES[job], gone)
    assert rows.ids(admin, root) == set(keys[gone:])
    assert left(admin) == rows.ids(admin, SESSIONS)


@pytest.mark.req("A-09")
def test_a_run_that_finds_the_lock_taken_does_nothing_and_ends_well(
    command: Command, database: Database, admin: Admin
) -> None:
    sessions = old_sessions(admin, 2)
    other = database.connect()
    other.execute("SELECT pg_advisory_lock(hashtextextended('job:scheduled:activity-retention', 0))")

    skipped = command("run", ACTIVITY, "--json", "--log-format", "json")
    said = command("run", ACTIVITY)

    assert skipped.code == said.code == 0
    assert (skipped.result["outcome"], skipped.result["error"]) == ("skipped", None)
    assert skipped.result["deleted"] == dict.fromkeys(TABLES[ACTIVITY], 0)
    assert (skipped.result["batches"], skipped.result["has_more"], skipped.result["cutoff"]) == (0, False, None)
    assert [(line["event"], line["level"]) for line in skipped.log] == [("skipped", "info")]
    assert summary_lines(said)[""] == "activity-retention: skipped, another run holds the lock"
    assert left(admin) == set(sessions)

    other.close()
    assert command("run", ACTIVITY, "--json").result["deleted"] == dict.fromkeys(TABLES[ACTIVITY], 2)


@pytest.mark.req("F-05")
def test_favorites_need_no_lock(command: Command, database: Database, admin: Admin) -> None:
    old_favorites(admin, 2)
    for name in "job:scheduled:activity-retention", "job:scheduled:guest-favorites-cleanup", GUESTS:
        database.connect().execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [name])

    assert command("run", GUESTS, "--json").result["deleted"] == {str(FAVORITES): 2}


# Each prepares the database so that the run cannot end well, and answers further settings.
Preparation = Callable[[Database, Admin], dict[str, str]]


@dataclass(frozen=True)
class Ending:
    job: str
    prepare: Preparation
    code: int
    outcome: str
    kind: str
    sqlstates: set[str | None]
    batches: int = 0


def both_databases(dsn: str) -> dict[str, str]:
    return {"ConnectionStrings__UserActivity": dsn, "ConnectionStrings__Favorites": dsn}


def no_such_host(database: Database, _: Admin) -> dict[str, str]:
    dsn = make_conninfo(database.worker_dsn, host="nowhere.invalid")
    return both_databases(dsn)


def nobody_listens(database: Database, _: Admin) -> dict[str, str]:
    return both_databases(make_conninfo(database.worker_dsn, port=1))


def wrong_password(database: Database, _: Admin) -> dict[str, str]:
    return both_databases(make_conninfo(database.worker_dsn, password=planted.TEXT))


def no_such_database(database: Database, _: Admin) -> dict[str, str]:
    return both_databases(make_conninfo(database.worker_dsn, dbname="nowhere"))


UNDECLARED: LiteralString = """
    CREATE TABLE user_activity.remarks (
        session_id uuid CONSTRAINT remarks_session REFERENCES user_activity.sessions {}, remark text
    )
"""


def raising_trigger_on_events(_: Database, admin: Admin) -> dict[str, str]:
    old_sessions(admin, 6)
    on_delete(admin, EVENTS, "RAISE '% %', OLD.payload, OLD USING DETAIL = OLD::text, HINT = OLD.payload::text")
    return {}


def raising_trigger_on_favorites(_: Database, admin: Admin) -> dict[str, str]:
    favorites = old_favorites(admin, 6)
    raising: LiteralString = "RAISE WARNING '%', OLD; RAISE '% %', OLD.note, OLD.anonymous_id USING DETAIL = OLD::text"
    on_delete(admin, FAVORITES, raising, key=favorites[5])
    return TWO_A_BATCH


def missing_privilege(_: Database, admin: Admin) -> dict[str, str]:
    old_favorites(admin, 1)
    admin.execute(f"REVOKE DELETE ON favorites.favorites FROM {WORKER}")
    return {}


def swallowing_trigger(_: Database, admin: Admin) -> dict[str, str]:
    on_delete(admin, FAVORITES, "RETURN NULL", key=old_favorites(admin, 6)[2])
    return TWO_A_BATCH


def missing_table(_: Database, admin: Admin) -> dict[str, str]:
    admin.execute("DROP TABLE user_activity.action_events CASCADE")
    return {}


def column_of_another_type(_: Database, admin: Admin) -> dict[str, str]:
    old_favorites(admin, 2)
    admin.execute("ALTER TABLE favorites.favorites ALTER updated_at TYPE timestamp")
    return {}


def switched_off(_: Database, admin: Admin) -> dict[str, str]:
    old_sessions(admin, 2)
    old_favorites(admin, 2)
    return {"ActivityRetention__Enabled": "false", "Favorites__GuestRetention__Enabled": "False"}


ENDINGS = {
    "no such host": Ending(GUESTS, no_such_host, 1, "failed", "connection", {None}),
    "nobody listens": Ending(GUESTS, nobody_listens, 1, "failed", "connection", {None}),
    "wrong password": Ending(ACTIVITY, wrong_password, 1, "failed", "connection", {None, "28P01"}),
    "no such database": Ending(GUESTS, no_such_database, 1, "failed", "connection", {None, "3D000"}),
    "a trigger that raises": Ending(ACTIVITY, raising_trigger_on_events, 1, "failed", "database", {"P0001"}),
    "one on favorites": Ending(GUESTS, raising_trigger_on_favorites, 1, "failed", "database", {"P0001"}, 2),
    "a missing privilege": Ending(GUESTS, missing_privilege, 1, "failed", "privilege", {"42501"}),
    "a trigger that swallows": Ending(GUESTS, swallowing_trigger, 1, "failed", "claim_mismatch", {None}, 1),
    "a missing table": Ending(ACTIVITY, missing_table, 3, "refused", "refused", {None}),
    "a column of another type": Ending(GUESTS, column_of_another_type, 3, "refused", "refused", {None}),
    "sessions are switched off": Ending(ACTIVITY, switched_off, 3, "refused", "refused", {None}),
    "favorites are switched off": Ending(GUESTS, switched_off, 3, "refused", "refused", {None}),
}


@pytest.mark.req("A-12", "A-15", "A-21", "F-11", "F-14")
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_a_run_that_does_not_end_well_says_so_three_times_and_gives_nothing_away(
    command: Command, database: Database, admin: Admin, ending: Ending
) -> None:
    settings = ending.prepare(database, admin)
    before = rows.ids(admin, FAVORITES) if ending.job == GUESTS else rows.ids(admin, SESSIONS)

    ended = command("run", ending.job, "--json", "--log-format", "json", "--log-level", "debug", **settings)
    after = rows.ids(admin, FAVORITES) if ending.job == GUESTS else rows.ids(admin, SESSIONS)
    again = command("run", ending.job, "--log-level", "debug", **settings)

    result, error = ended.result, ended.result["error"]
    assert ended.code == again.code == ending.code
    assert list(result) == RESULT_KEYS
    assert list(error) == ERROR_KEYS
    assert (result["outcome"], error["kind"]) == (ending.outcome, ending.kind)
    assert error["sqlstate"] in ending.sqlstates
    assert (result["batches"], result["has_more"]) == (ending.batches, False)
    assert result["deleted"] == dict.fromkeys(TABLES[ending.job], 2 * ending.batches)
    assert len(before) - len(after) == 2 * ending.batches
    assert {UUID(key) for key in error["keys"]} <= after

    last = ended.log[-1]
    assert last["level"] == "error"
    assert last["event"].endswith(ending.outcome)
    assert last["kind"] == ending.kind
    assert result["run_id"] in last.values()

    assert again.stderr
    assert [line for line in again.stderr.splitlines() if not CONSOLE_LINE.fullmatch(line)] == []
    assert summary_lines(again)[""].startswith(f"{ending.job}: {ending.outcome}")
    assert error["message"] in again.stdout


@pytest.mark.req("A-12", "F-11")
def test_the_next_run_takes_the_rest_when_what_was_wrong_is_put_right(command: Command, admin: Admin) -> None:
    favorites = old_favorites(admin, 7)
    trigger = on_delete(admin, FAVORITES, "RAISE 'no'", key=favorites[4])
    failed = command("run", GUESTS, "--json", **TWO_A_BATCH)
    assert (failed.code, failed.result["deleted"]) == (1, {str(FAVORITES): 4})
    assert {UUID(key) for key in failed.result["error"]["keys"]} == set(favorites[4:6])

    drop(admin, FAVORITES, trigger)
    ended = command("run", GUESTS, "--json", **TWO_A_BATCH)

    assert (ended.code, ended.result["deleted"]) == (0, {str(FAVORITES): 3})
    assert rows.ids(admin, FAVORITES) == set()


@pytest.mark.req("A-12", "A-15", "A-17", "A-21")
@pytest.mark.parametrize(
    ("action", "sqlstates"),
    [("ON DELETE RESTRICT", {"23503", "23001"}), ("DEFERRABLE INITIALLY DEFERRED", {"23503"})],
    ids=["restrict", "deferred"],
)
def test_a_row_that_a_foreign_key_nobody_declared_protects_is_named_three_times_and_the_rest_goes(
    command: Command, admin: Admin, action: LiteralString, sqlstates: set[str]
) -> None:
    sessions = old_sessions(admin, 6)
    admin.execute(UNDECLARED.format(action))
    admin.execute("INSERT INTO user_activity.remarks VALUES (%s, %s)", [sessions[3], planted.TEXT])

    ended = command("run", ACTIVITY, "--json", "--log-format", "json", "--log-level", "debug", **TWO_A_BATCH)
    again = command("run", ACTIVITY, "--log-level", "debug", **TWO_A_BATCH)

    result, error = ended.result, ended.result["error"]
    assert (ended.code, again.code) == (1, 1)
    assert (list(result), list(error)) == (RESULT_KEYS, ERROR_KEYS)
    assert (result["outcome"], result["has_more"], error["kind"]) == ("partial", False, "foreign_key")
    assert result["deleted"] == dict.fromkeys(TABLES[ACTIVITY], 5)
    assert (error["constraint"], error["keys"]) == ("remarks_session", [str(sessions[3])])
    assert error["sqlstate"] in sqlstates
    assert error["message"].startswith("1 expired row stays: ")
    assert left(admin) == {sessions[3]}
    (kept,) = (line for line in ended.log if line["event"] == "rows kept")
    last = ended.log[-1]
    assert (kept["level"], kept["rows"], kept["batch_ids"]) == ("warning", 1, error["keys"])
    assert (last["level"], last["outcome"], last["batch_ids"]) == ("error", "partial", error["keys"])
    assert (last["kind"], last["run_id"]) == ("foreign_key", result["run_id"])
    assert [line for line in again.stderr.splitlines() if not CONSOLE_LINE.fullmatch(line)] == []
    assert again.stdout.startswith(f"{ACTIVITY}: the database kept every row that was tried\n")
    assert error["message"] in again.stdout
    assert str(sessions[3]) in again.stdout


def parsed(log: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(line["level"], line["event"]) for line in log]


@pytest.mark.req("A-21", "F-14")
def test_the_log_of_a_run_in_a_pipe_is_lines_and_nothing_else(command: Command, admin: Admin) -> None:
    old_sessions(admin, 3)
    old_favorites(admin, 3)
    on_delete(admin, SESSIONS, "RAISE WARNING '%', OLD")
    on_delete(admin, FAVORITES, "RAISE NOTICE '%', OLD")

    machine = command("run", ACTIVITY, "--json", "--log-format", "json", "--log-level", "debug", **TWO_A_BATCH)
    human = command("run", GUESTS, "--log-level", "info", **TWO_A_BATCH)

    assert parsed(machine.log) == [("info", "started"), ("debug", "batch"), ("debug", "batch"), ("info", "completed")]
    assert {line["run_id"] for line in machine.log} == {machine.result["run_id"]}
    assert machine.log[0]["cutoff"] == machine.result["cutoff"]
    assert (machine.log[0]["batch_size"], machine.log[0]["lock"]) == (2, "session")
    assert [line["deleted_sessions"] for line in machine.log[1:]] == [2, 1, 3]
    lines = human.stderr.splitlines()
    assert [line for line in lines if not CONSOLE_LINE.fullmatch(line)] == []
    said = [re.split(r"  +", line.partition(f"{GUESTS}: ")[2])[0] for line in lines]
    assert said == ["job started", "batch deleted", "batch deleted", "job completed"]
    assert "\x1b" not in human.stdout + human.stderr


@pytest.mark.req("A-21")
@pytest.mark.parametrize("words", [["--log-level", "error"], ["--log-level", "warning"]], ids=" ".join)
def test_a_run_that_ends_well_logs_nothing_above_info(command: Command, admin: Admin, words: list[str]) -> None:
    old_sessions(admin, 1)

    ended = command(*words, "run", ACTIVITY, "--json")

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.result["deleted"] == dict.fromkeys(TABLES[ACTIVITY], 1)


def test_the_result_for_people_says_the_same_as_the_one_for_machines(command: Command, admin: Admin) -> None:
    old_sessions(admin, 5)

    said = summary_lines(
        command("run", ACTIVITY, "--log-level", "error", ActivityRetention__MaxBatchesPerRun="2", **TWO_A_BATCH)
    )

    assert said[""] == "activity-retention: ended at a limit with rows left"
    assert said["deleted"].endswith(f"4 {EVENTS}")
    assert "1 expired" in said["left"]
    assert "MaxBatchesPerRun (2)" in said["why"]


@pytest.mark.req("A-15")
def test_a_log_that_cannot_be_written_does_not_stop_a_run(command: Command, admin: Admin) -> None:
    old_favorites(admin, 3)
    with Path("/dev/full").open("w") as full:
        process = command.start_into(subprocess.PIPE, full, "run", GUESTS, "--json", **TWO_A_BATCH)
        ended = command.end(process)

    assert ended.code == 0
    assert ended.result["deleted"] == {str(FAVORITES): 3}
    assert rows.ids(admin, FAVORITES) == set()


def test_a_result_that_cannot_be_written_is_a_failure_without_a_traceback_that_the_log_survives(
    command: Command, admin: Admin
) -> None:
    old_favorites(admin, 3)
    with Path("/dev/full").open("w") as full:
        ended = command.end(command.start_into(full, subprocess.PIPE, "run", GUESTS, "--json", "--log-format", "json"))

    assert ended.code == 1
    assert rows.ids(admin, FAVORITES) == set()
    assert '"deletedTotal": 3' in ended.stderr


@pytest.mark.req("A-07")
def test_without_a_connection_string_libpq_goes_by_its_own_environment(
    database: Database, admin: Admin, alone: Command, tmp_path: Path
) -> None:
    old_favorites(admin, 2)
    options = conninfo_to_dict(database.worker_dsn)
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    passwords.write_text(f"*:*:*:*:{options['password']}\n")
    own = Command({}, alone.hidden)
    where = {
        f"PG{name.upper()}": str(options[option])
        for name, option in {"host": "host", "port": "port", "user": "user", "database": "dbname"}.items()
    }

    ended = own("run", GUESTS, "--json", **where, PGPASSFILE=str(passwords))

    assert ended.result["deleted"] == {str(FAVORITES): 2}


@pytest.mark.req("A-07")
def test_a_job_that_the_settings_file_of_the_environment_switches_off_is_not_run(
    command: Command, admin: Admin, tmp_path: Path
) -> None:
    favorites = old_favorites(admin, 2)
    file = tmp_path / "settings.toml"
    file.write_text("[Favorites.GuestRetention]\nEnabled = false\n")

    by_flag = command("run", GUESTS, "--json", "--config", str(file))
    by_environment = command("run", GUESTS, "--json", PGRETENTION_CONFIG=str(file))

    for ended in by_flag, by_environment:
        assert (ended.code, ended.result["outcome"]) == (3, "refused")
    assert rows.ids(admin, FAVORITES) == set(favorites)
    assert command("run", GUESTS, "--set", "Favorites:GuestRetention:Enabled=true", "--config", str(file)).code == 0
    assert rows.ids(admin, FAVORITES) == set()


def test_a_brake_refuses_with_exit_3_and_the_override_that_it_names_lets_the_run_go_on_and_is_logged(
    command: Command, admin: Admin
) -> None:
    old = set(old_favorites(admin, 3))
    limit = {"Favorites__GuestRetention__MaxExpiredRows": "2"}

    refused = command("run", GUESTS, "--json", **limit)

    assert (refused.code, refused.result["outcome"], ids(admin, FAVORITES)) == (3, "refused", old)
    named = refused.result["error"]["message"].rpartition("--set ")[2]
    assert named == "Safety:Override=max-expired-rows"
    went_on = command("run", GUESTS, "--json", "--log-format", "json", "--set", named, **limit)
    assert (went_on.code, went_on.result["outcome"], ids(admin, FAVORITES)) == (0, "completed", set())
    (said,) = [line for line in went_on.log if line["event"] == "brake overridden"]
    assert (said["level"], said["brake"]) == ("warning", "max-expired-rows")
