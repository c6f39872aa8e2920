"""`pgretention plan`: what it prints is what a run does, and printing it changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString

import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from tests.databases import WORKER, Database
from tests.support import planted, rows
from tests.support.command import Command
from tests.support.counters import table_counters
from tests.support.gates import one
from tests.support.planted import expired, old_favorites, old_sessions, plant
from tests.support.psql import psql
from tests.support.rows import FAVORITES, SESSIONS
from tests.support.serverlog import logged

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
BOTH = pytest.mark.parametrize("job", [ACTIVITY, GUESTS])


@dataclass(frozen=True)
class Printed:
    """What `plan` has printed, taken apart."""

    head: dict[str, str]
    rows: list[tuple[str, int]]
    script: str
    statements: list[str]
    cutoff: datetime


def taken_apart(text: str) -> Printed:
    prose, _, script = text.partition("\\set cutoff")
    script = f"\\set cutoff{script}"
    (cutoff,) = re.findall(r"^\\set cutoff '(.+)'$", script, re.MULTILINE)
    return Printed(
        head=dict(re.findall(r"^  (\w+)  +(.+)$", prose, re.MULTILINE)),
        rows=[
            (table, int(count.replace(",", "")))
            for table, count in re.findall(r"^  \d\. +(\S+) +([\d,]+)$", prose, re.MULTILINE)
        ],
        script=script,
        statements=re.findall(r"^-- \d\. .+\n((?:.+\n)*?.+);$", script, re.MULTILINE),
        cutoff=datetime.fromisoformat(cutoff),
    )


def every_row(admin: Admin) -> list[tuple[object, ...]]:
    """Every row of every table where it stands and with who wrote or locked it last."""
    found = []
    tables = admin.execute(
        "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
    ).fetchall()
    for (table,) in tables:
        query = (
            f"SELECT {table!r}, ctid::text, xmin::text, xmax::text, cmin::text, t::text FROM {table} t ORDER BY ctid"
        )
        found += admin.execute(query.encode()).fetchall()
    return found


@BOTH
def test_a_plan_is_made_by_a_role_that_can_only_read_and_leaves_every_byte_as_it_was(
    command: Command, admin: Admin, job: str
) -> None:
    plant(admin)
    for table in rows.EVENTS, rows.VIEWS, SESSIONS, FAVORITES:
        admin.execute(f"REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {table} FROM {WORKER}".encode())
        admin.execute(f"REVOKE UPDATE (id) ON {table} FROM {WORKER}".encode())
        for able in "has_table_privilege(%s, %s, 'DELETE')", "has_any_column_privilege(%s, %s, 'UPDATE')":
            assert one(admin, f"SELECT {able}", WORKER, str(table)) is False
    before, counters, objects = every_row(admin), table_counters(admin), one(admin, "SELECT count(*) FROM pg_class")

    planned = command("plan", job, "--explain")

    assert planned.code == 0
    assert planned.stderr == ""
    assert "not shown, since the role lacks a privilege that a run needs" in planned.stdout
    assert every_row(admin) == before
    after = table_counters(admin)
    assert {table: counts.written for table, counts in after.items()} == {
        table: counts.written for table, counts in counters.items()
    }
    assert one(admin, "SELECT count(*) FROM pg_class") == objects
    failed = command("run", job, "--json")
    assert (failed.code, failed.result["error"]["kind"]) == (1, "privilege"), "a run could not have done without"


@BOTH
def test_the_plan_counts_what_sql_counts_in_the_order_of_deletion(command: Command, admin: Admin, job: str) -> None:
    plant(admin)
    counted = expired(admin)
    before = one(admin, "SELECT now() - interval '8760 hours'")

    printed = taken_apart(command("plan", job).stdout)

    after = one(admin, "SELECT now() - interval '8760 hours'")
    assert isinstance(before, datetime)
    assert isinstance(after, datetime)
    assert before <= printed.cutoff <= after
    assert printed.cutoff.isoformat() in printed.head["expired"]
    assert printed.rows == [(table, counted[table]) for table, _ in printed.rows]
    assert all(count for _, count in printed.rows)
    assert printed.rows == list(command("run", job, "--json").result["deleted"].items())


def test_the_plan_says_its_limits_its_lock_and_how_many_runs_it_takes(command: Command, admin: Admin) -> None:
    old_sessions(admin, 7)
    old_favorites(admin, 3)
    limits = {"ActivityRetention__BatchSize": "2", "ActivityRetention__MaxBatchesPerRun": "3"}

    sessions = taken_apart(command("plan", ACTIVITY, ActivityRetention__MaxRunDuration="90s", **limits).stdout)
    favorites = taken_apart(command("plan", GUESTS, Favorites__GuestRetention__BatchSize="1").stdout)

    assert sessions.head["limits"] == "2 rows a batch, 3 batches a run, 00:01:30 a run"
    assert sessions.head["needs"] == "4 batches, 2 runs"
    assert sessions.head["lock"].startswith("job:scheduled:activity-retention")
    assert favorites.head["limits"] == "1 row a batch, any number of batches a run, 00:10:00 a run"
    assert favorites.head["needs"] == "3 batches, 1 run"
    assert favorites.head["lock"].startswith("none")


@BOTH
def test_the_plan_of_an_empty_database_needs_nothing(command: Command, job: str) -> None:
    planned = command("plan", job)

    printed = taken_apart(planned.stdout)
    assert planned.code == 0
    assert {count for _, count in printed.rows} == {0}
    assert printed.head["needs"] == "0 batches, 0 runs"


def numbered(statement: str) -> str:
    """A statement as a server logs it: each variable a number, in the order in which they first come."""
    names = list(dict.fromkeys(re.findall(r":'(\w+)'", statement)))
    return re.sub(r":'(\w+)'", lambda name: f"${names.index(name[1]) + 1}", statement)


@BOTH
def test_the_statements_printed_are_the_ones_that_a_run_executes_and_no_other_one_writes(
    command: Command, database: Database, admin: Admin, job: str
) -> None:
    old_sessions(admin, 4)
    old_favorites(admin, 4)
    batches = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}
    with logged(database, admin) as statements:
        printed = taken_apart(command("plan", job, **batches).stdout)
        of_the_plan = statements()
        assert command("run", job, "--json", **batches).result["batches"] == 2
        of_the_run = statements()[len(of_the_plan) :]

    assert len(printed.statements) == 3
    expected = [numbered(statement) for statement in printed.statements]
    writing = [statement for statement in of_the_run if re.search("DELETE|UPDATE|INSERT|TRUNCATE", statement)]
    assert set(writing) == set(expected)
    first, following, deletion = expected
    assert writing == [first, deletion, following, deletion, following, first]
    transactions = {statement[:64] for statement in of_the_plan if statement.startswith("BEGIN")}
    assert transactions == {'BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL "lock_'}
    assert not [statement for statement in of_the_plan if re.search("DELETE|FOR UPDATE|INSERT", statement)]


@BOTH
def test_the_statements_printed_can_be_pasted_into_psql(
    command: Command, database: Database, admin: Admin, job: str
) -> None:
    sessions, favorites = old_sessions(admin, 5), old_favorites(admin, 5)
    keys = sessions if job == ACTIVITY else favorites
    batches = {"ActivityRetention__BatchSize": "2", "Favorites__GuestRetention__BatchSize": "2"}
    printed = taken_apart(command("plan", job, **batches).stdout)
    before = every_row(admin)

    first, _, _ = printed.statements
    cutoff = printed.script.splitlines()[0]
    ((count, addresses, claimed, last_expiry, last_key),) = psql(
        database, database.worker_dsn, f"BEGIN;\n{cutoff}\n{first};\nROLLBACK;\n"
    )
    assert (count, claimed) == ("2", f"{{{keys[0]},{keys[1]}}}")
    assert last_key == str(keys[1])
    variables = {"addresses": addresses, "keys": claimed, "after_expiry": last_expiry, "after_key": last_key}
    one_claim, next_claim, counts = psql(
        database, database.worker_dsn, f"BEGIN;\n{printed.script}\nROLLBACK;\n", **variables
    )

    assert one_claim == [count, addresses, claimed, last_expiry, last_key]
    assert next_claim[2] == f"{{{keys[2]},{keys[3]}}}"
    assert counts == ["2"] * len(printed.rows)
    kept = [row[-1] for row in every_row(admin)]
    assert kept == [row[-1] for row in before]


def missing_schema(admin: Admin) -> None:
    admin.execute("DROP SCHEMA user_activity, favorites CASCADE")


def two_wrong_columns(admin: Admin) -> None:
    admin.execute("ALTER TABLE user_activity.sessions ALTER ended_at TYPE timestamp, ALTER status TYPE char(8)")
    admin.execute("ALTER TABLE favorites.favorites ALTER updated_at TYPE date, DROP CONSTRAINT favorites_pkey")


REFUSALS: dict[str, tuple[Callable[[Admin], None], dict[str, list[LiteralString]]]] = {
    "no such tables": (
        missing_schema,
        {
            ACTIVITY: [
                "user_activity.action_events: ",
                "user_activity.property_object_views: ",
                "user_activity.sessions: ",
            ],
            GUESTS: ["favorites.favorites: "],
        },
    ),
    "wrong columns": (
        two_wrong_columns,
        {
            ACTIVITY: ["user_activity.sessions.ended_at: ", "user_activity.sessions.status: "],
            GUESTS: ["favorites.favorites.id: ", "favorites.favorites.updated_at: "],
        },
    ),
}


@pytest.mark.req("A-07")
@BOTH
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_plan_that_is_refused_gives_every_reason_in_a_line_and_exit_3(
    command: Command, admin: Admin, job: str, refusal: str
) -> None:
    prepare, reasons = REFUSALS[refusal]
    prepare(admin)

    planned = command("plan", job)

    assert planned.code == 3
    assert planned.stdout == ""
    found = planned.problems
    assert len(found) == len(reasons[job])
    for problem, begin in zip(sorted(found), sorted(reasons[job]), strict=True):
        assert problem.startswith(begin)


@pytest.mark.req("H-05")
def test_a_plan_that_fails_says_why_in_a_line_and_exit_1(command: Command, database: Database, admin: Admin) -> None:
    wrong = make_conninfo(database.worker_dsn, password=planted.TEXT)
    by_password = command("plan", GUESTS, ConnectionStrings__Favorites=wrong)
    nowhere = command("plan", GUESTS, "--set", f"ConnectionStrings:Favorites={make_conninfo(wrong, port=1)}")
    admin.execute(f"REVOKE ALL ON favorites.favorites FROM {WORKER}")
    by_privilege = command("plan", GUESTS)

    for planned, word in (by_password, "password"), (nowhere, "refused"), (by_privilege, "privilege"):
        assert planned.code == 1
        assert planned.stdout == ""
        (problem,) = planned.problems
        assert word in problem


@pytest.mark.req("H-05")
def test_a_plan_with_wrong_settings_or_of_no_job_is_exit_2(alone: Command) -> None:
    wrong = alone("plan", ACTIVITY, "--set", "ActivityRetention:BatchSize=0", "--set", "Favorites:BatchSize=1")
    unknown = alone("plan", "activity-retentions")

    assert wrong.code == unknown.code == 2
    assert wrong.stdout == unknown.stdout == ""
    assert [problem.split()[0] for problem in wrong.problems] == ["ActivityRetention:BatchSize", "Favorites:BatchSize"]
    assert unknown.problems == ["no job is called activity-retentions; did you mean activity-retention?"]


@pytest.mark.req("H-05")
def test_a_plan_for_a_host_that_is_no_name_is_a_line_and_no_traceback(alone: Command) -> None:
    planned = alone("plan", GUESTS, ConnectionStrings__Favorites="host=db..internal")

    assert planned.code in {1, 2}
    assert len(planned.problems) == 1


def test_a_job_that_is_switched_off_can_be_planned_all_the_same(command: Command, admin: Admin) -> None:
    old_favorites(admin, 3)

    planned = command("plan", GUESTS, Favorites__GuestRetention__Enabled="false")

    assert planned.code == 0
    assert taken_apart(planned.stdout).rows == [(str(FAVORITES), 3)]


def test_a_plan_shows_nothing_that_stands_in_a_row(command: Command, admin: Admin) -> None:
    plant(admin)
    for job in ACTIVITY, GUESTS:
        planned = command("plan", job, "--log-level", "debug")
        assert planned.code == 0
        for key in rows.ids(admin, SESSIONS) | rows.ids(admin, FAVORITES):
            assert str(key) not in planned.stdout


@pytest.mark.parametrize(("as_of", "sessions"), [("2100-01-01T00:00:00Z", 2), ("2099-12-31T22:59:00+01:00", 1)])
def test_a_plan_as_of_another_instant_takes_its_cutoff_from_that(
    command: Command, admin: Admin, as_of: str, sessions: int
) -> None:
    rows.session(admin, "2020-01-01")
    rows.session(admin, "2098-12-31 22:59:30+00")

    planned = command("plan", ACTIVITY, "--as-of", as_of)

    assert planned.code == 0
    printed = taken_apart(planned.stdout)
    assert printed.cutoff == datetime.fromisoformat(as_of) - timedelta(days=365)
    assert dict(printed.rows)[str(SESSIONS)] == sessions
    assert "with the rows of now" in planned.stdout


def test_a_plan_says_from_when_to_when_the_rows_are_that_would_go(command: Command, admin: Admin) -> None:
    assert "spans" not in taken_apart(command("plan", ACTIVITY).stdout).head
    for day in "2020-01-01", "2021-02-03", "2022-03-04":
        rows.session(admin, day)
    rows.session(admin, "2100-01-01")
    assert (
        taken_apart(command("plan", ACTIVITY).stdout).head["spans"]
        == "2020-01-01 00:00:00+00 to 2022-03-04 00:00:00+00"
    )


@pytest.mark.parametrize(("written", "why"), [("tomorrow", "is no instant"), ("2027-01-31T03:00", "has no zone")])
def test_an_instant_that_cannot_be_meant_is_a_line_and_exit_2(alone: Command, written: str, why: str) -> None:
    ended = alone("plan", ACTIVITY, "--as-of", written)
    assert ended.code == 2
    (problem,) = ended.problems
    assert why in problem


@BOTH
def test_explained_each_statement_has_its_plan_and_a_verdict_in_words(command: Command, admin: Admin, job: str) -> None:
    plant(admin)

    plain, explained = command("plan", job), command("plan", job, "--explain")

    assert (explained.code, explained.stderr) == (0, "")
    rest = explained.stdout.partition("how PostgreSQL would execute a batch")[2]
    assert rest.count("\n-- ") >= 3
    assert "--   good: starts where the batch before ended" in rest
    assert "Index Cond: " in rest
    assert "BAD" not in rest
    assert "how PostgreSQL" not in plain.stdout


@pytest.mark.parametrize(
    "instant", ["0001-01-01T00:00+14:00", "0001-06-01T00:00Z", "9999-12-31T23:59-14:00", "1969-12-31T23:59Z"]
)
def test_an_instant_that_no_run_will_ever_see_is_refused(command: Command, instant: str) -> None:
    ended = command("plan", GUESTS, "--as-of", instant)
    assert ended.code == 2
    assert "must lie in the years 1970 to 9000" in ended.problems[0]
