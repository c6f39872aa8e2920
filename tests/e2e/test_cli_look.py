"""The commands that only look: `jobs`, `config`, `schema`, and the help of all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import psycopg
import pytest
from psycopg import sql

import pgretention
from pgretention.config import KEYS
from tests.databases import Database
from tests.support import rows
from tests.support.command import PROGRAM, Command, Ended, commands
from tests.support.gates import one
from tests.support.planted import TEXT, expired, plant
from tests.support.psql import psql

COMMANDS = ("run", "worker", "plan", "jobs", "check", "config", "rehearse", "schema", "demo")


def off_by_default(section: str) -> dict[str, str]:
    names = (
        "BatchPause",
        "MaxReplicaLag",
        "MaxWalRate",
        "TargetBatchDuration",
        "MaxExpiredRows",
        "MaxExpiredShare",
        "MinimumRetention",
    )
    return {f"{section}:{name}": "off" for name in names}


DEFAULTS = {
    "ActivityRetention:Enabled": "true",
    "ActivityRetention:RetentionPeriod": "365.00:00:00",
    "ActivityRetention:BatchSize": "5000",
    "ActivityRetention:MaxBatchesPerRun": "200",
    "ActivityRetention:Workers": "1",
    "ActivityRetention:MaxRunDuration": "00:30:00",
    "ActivityRetention:RetentionSchedule": "0 0 3 * * *",
    "ActivityRetention:TimeZone": "Europe/Moscow",
    **off_by_default("ActivityRetention"),
    "Favorites:GuestRetention:Enabled": "true",
    "Favorites:GuestRetention:Days": "365",
    "Favorites:GuestRetention:BatchSize": "1000",
    "Favorites:GuestRetention:Workers": "1",
    "Favorites:GuestRetention:Cron": "0 3 * * *",
    "Favorites:GuestRetention:TimeZone": "UTC",
    "Favorites:GuestRetention:MaxRunDuration": "00:10:00",
    **off_by_default("Favorites:GuestRetention"),
    "Safety:Override": "off",
    "Http:Listen": "127.0.0.1:9477",
    "Http:Token": "not set",
    "Http:Hosts": "off",
    "History:File": "off",
    "Metrics:Pushgateway": "off",
    "Host:ShutdownTimeout": "00:00:25",
    "Host:MisfireGrace": "01:00:00",
}
"""The table of the contract and what came after it, typed out."""


@pytest.fixture
def bare() -> Iterator[Command]:
    """The command with no setting at all."""
    command = Command({})
    yield command
    command.kill_all()


def said(ended: Ended) -> str:
    assert (ended.code, ended.stderr) == (0, "")
    return ended.stdout


def shown(ended: Ended) -> dict[str, tuple[str, str]]:
    """Setting → value and where it came from, as `config` prints them in columns under these words."""
    text = said(ended)
    head, *lines = text[text.index("setting  ") :].splitlines()
    starts = sorted((head.index(word), word) for word in ("setting", "value", "from"))
    ends = [start for start, _ in starts[1:]] + [None]
    cells = [{word: line[start:end].strip() for (start, word), end in zip(starts, ends, strict=True)} for line in lines]
    return {row["setting"]: (row["value"], row["from"]) for row in cells}


@pytest.mark.req("A-07", "A-08", "F-04")
def test_every_setting_has_the_default_of_the_contract(bare: Command) -> None:
    values = shown(bare("config"))

    assert list(values) == [key.path for key in KEYS]
    assert {source for _, source in values.values()} == {"default"}
    connections = {path for path in values if path.startswith("ConnectionStrings:")}
    assert connections == {"ConnectionStrings:UserActivity", "ConnectionStrings:Favorites"}
    assert {path: value for path, (value, _) in values.items() if path not in connections} == DEFAULTS


def test_every_value_is_shown_with_where_it_came_from_and_the_flag_comes_before_the_environment_before_the_file(
    bare: Command, tmp_path: Path
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(
        json.dumps({"ActivityRetention": {"BatchSize": 1, "MaxBatchesPerRun": 2, "MaxRunDuration": "00:00:03"}})
    )
    values = shown(
        bare(
            "config",
            "--config",
            str(file),
            "--set",
            "activityretention:BATCHSIZE=7",
            ActivityRetention__BatchSize="6",
            ActivityRetention__MaxBatchesPerRun="5",
        )
    )

    changed = {path: value for path, value in values.items() if value[1] != "default"}
    assert changed == {
        "ActivityRetention:BatchSize": ("7", "--set"),
        "ActivityRetention:MaxBatchesPerRun": ("5", "environment ActivityRetention__MaxBatchesPerRun"),
        "ActivityRetention:MaxRunDuration": ("00:00:03", f"file {file}"),
    }


def test_the_settings_file_can_be_named_by_the_environment_and_a_flag_names_another(
    bare: Command, tmp_path: Path
) -> None:
    for name, size in ("one", 1), ("two", 2):
        (tmp_path / f"{name}.toml").write_text(f"[ActivityRetention]\nBatchSize = {size}\n")
    one_file, two_file = (str(tmp_path / f"{name}.toml") for name in ("one", "two"))

    by_environment = shown(bare("config", PGRETENTION_CONFIG=one_file))
    by_both = shown(bare("config", "--config", two_file, PGRETENTION_CONFIG=one_file))

    assert by_environment["ActivityRetention:BatchSize"] == ("1", f"file {one_file}")
    assert by_both["ActivityRetention:BatchSize"] == ("2", f"file {two_file}")


@pytest.mark.req("H-05")
def test_a_settings_file_named_by_the_environment_that_is_not_there_is_exit_2(bare: Command) -> None:
    ended = bare("config", PGRETENTION_CONFIG="/nonexistent/settings.toml")

    assert ended.code == 2
    (problem,) = ended.problems
    assert "/nonexistent/settings.toml" in problem


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_options_are_taken_before_and_after_the_name_of_the_command(
    bare: Command, tmp_path: Path, *, before: bool
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("Http:Listen: off\n")
    options = ["--config", str(file), "--set", "ActivityRetention:BatchSize=7"]

    values = shown(bare(*options, "config") if before else bare("config", *options))

    assert values["ActivityRetention:BatchSize"] == ("7", "--set")
    assert values["Http:Listen"] == ("off", f"file {file}")


def test_options_on_both_sides_of_the_name_of_the_command_are_taken_together(bare: Command, tmp_path: Path) -> None:
    for name, size in ("outer", 1), ("inner", 2):
        (tmp_path / f"{name}.toml").write_text(f"[ActivityRetention]\nBatchSize = {size}\n")
    outer = ["--config", str(tmp_path / "outer.toml"), "--set", "ActivityRetention:MaxBatchesPerRun=3"]
    inner = ["--config", str(tmp_path / "inner.toml"), "--set", "Favorites:GuestRetention:Days=30"]

    values = shown(bare(*outer, "config", *inner))

    assert values["ActivityRetention:BatchSize"] == ("2", f"file {tmp_path / 'inner.toml'}")
    assert values["ActivityRetention:MaxBatchesPerRun"] == ("3", "--set")
    assert values["Favorites:GuestRetention:Days"] == ("30", "--set")
    twice = bare("--set", "Favorites:GuestRetention:Days=1", "config", "--set", "Favorites:GuestRetention:Days=2")
    assert (twice.code, len(twice.problems)) == (2, 1)


@pytest.mark.req("H-05")
@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://someone:{}@db.internal:5433/app",
        "host=db.internal port=5433 dbname=app user=someone password={}",
        "postgresql://someone@db.internal:5433/app?password={}",
        "host=db.internal port=5433 dbname=app user=someone sslpassword={} application_name={}",
        "postgresql://db.internal:5433/app?user=someone&options=-c%20a.b%3D{}",
    ],
)
def test_a_connection_string_is_shown_without_its_secrets(bare: Command, tmp_path: Path, dsn: str) -> None:
    whole = dsn.format(TEXT, TEXT)
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"ConnectionStrings:Favorites": whole}))

    values = shown(bare("config", "--config", str(file), ConnectionStrings__UserActivity=whole))

    for domain, source in (
        ("UserActivity", "environment ConnectionStrings__UserActivity"),
        ("Favorites", f"file {file}"),
    ):
        value, came_from = values[f"ConnectionStrings:{domain}"]
        assert came_from == source
        for word in "db.internal", "5433", "app", "someone", "***":
            assert word in value


@pytest.mark.req("H-05")
def test_wrong_settings_stop_the_commands_that_look_as_well(bare: Command) -> None:
    for command in "config", "jobs":
        ended = bare(command, "--set", "ActivityRetention:BatchSize=0", Favorites__GuestRetention__Cron="never")

        assert (ended.code, ended.stdout) == (2, "")
        assert [problem.split(" ")[0] for problem in ended.problems] == [
            "Favorites:GuestRetention:Cron",
            "ActivityRetention:BatchSize",
        ]


def blocks(ended: Ended) -> dict[str, dict[str, str]]:
    """Job → what `jobs` says of it, line by line."""
    found = {}
    for block in said(ended).strip().split("\n\n"):
        name, *lines = block.splitlines()
        found[name] = dict(re.findall(r"^  (\S+(?: \S+)?)  +(.+)$", "\n".join(lines), re.MULTILINE))
    return found


@pytest.mark.req("A-08")
def test_the_jobs_are_listed_with_their_schedules_in_words_and_their_next_run_in_both_zones(bare: Command) -> None:
    before = datetime.now(UTC)
    jobs = blocks(bare("jobs"))

    assert list(jobs) == ["activity-retention", "guest-favorites-cleanup"]
    zones = {"activity-retention": "Europe/Moscow", "guest-favorites-cleanup": "UTC"}
    for name, zone in zones.items():
        told = re.fullmatch(rf"(\S+ \S+) {zone}  =  (\S+ \S+) UTC", jobs[name]["next run"])
        assert told, jobs[name]
        local = datetime.fromisoformat(told[1]).replace(tzinfo=ZoneInfo(zone))
        instant = datetime.fromisoformat(told[2]).replace(tzinfo=UTC)
        assert local == instant
        assert (local.hour, local.minute, local.second) == (3, 0, 0)
        assert 0 < (instant - before).total_seconds() <= 25 * 3600
        assert f"At 03:00 every day, {zone}" in jobs[name]["schedule"]
    assert "0 0 3 * * *" in jobs["activity-retention"]["schedule"]
    assert jobs["guest-favorites-cleanup"]["deletes"] == (
        "favorites.favorites without a user_id and updated_at older than 365.00:00:00"
    )
    assert jobs["activity-retention"]["limits"] == "5000 rows a batch, 200 batches a run, 00:30:00 a run"


def test_the_jobs_are_shown_as_they_are_set(bare: Command) -> None:
    jobs = blocks(
        bare(
            "jobs",
            "--set",
            "ActivityRetention:RetentionSchedule=30 15 2 * * 0",
            "--set",
            "ActivityRetention:TimeZone=Asia/Tokyo",
            Favorites__GuestRetention__Enabled="false",
            Favorites__GuestRetention__Days="30",
        )
    )

    assert list(jobs) == ["activity-retention", "guest-favorites-cleanup  (switched off)"]
    assert re.match(r"\S+ 02:15:30 Asia/Tokyo  =  \S+ 17:15:30 UTC", jobs["activity-retention"]["next run"])
    assert "30.00:00:00" in jobs["guest-favorites-cleanup  (switched off)"]["deletes"]


@pytest.fixture
def empty(database: Database) -> Iterator[str]:
    """A database with nothing in it, and a role of its own that may log in and nothing else; both have that name."""
    name = f"empty_{database.name}"
    with psycopg.connect(database.server.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal("nobody-may-know"))
        )
        yield name
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.mark.req("F-06", "H-05")
def test_the_schema_and_then_the_grants_are_all_that_an_empty_database_needs(
    bare: Command, database: Database, empty: str
) -> None:
    tables = said(bare("schema"))
    grants = said(bare("schema", "--role", empty))
    dsn = database.server.dsn(empty, empty, "nobody-may-know")

    owners = database.server.dsn(empty)

    psql(database, owners, tables)
    with commands(dsn, "nobody-may-know") as command, psycopg.connect(owners, autocommit=True) as owner:
        plant(owner)
        before_the_grants = command("run", "guest-favorites-cleanup", "--json")
        psql(database, owners, grants)
        counted = expired(owner)
        planned = command("plan", "activity-retention")
        ran = [command("run", job, "--json") for job in ("activity-retention", "guest-favorites-cleanup")]

        assert (before_the_grants.code, before_the_grants.result["error"]["kind"]) == (1, "privilege")
        assert planned.code == 0
        assert [ended.result["outcome"] for ended in ran] == ["completed", "completed"]
        assert ran[0].result["deleted"] | ran[1].result["deleted"] == counted
        assert all(counted.values())
        readable = "SELECT has_column_privilege(%s, 'favorites.favorites', %s, 'SELECT')"
        assert [one(owner, readable, empty, column) for column in ("note", "anonymous_id")] == [False, False]


def test_one_domain_can_be_printed_alone_and_several_in_either_spelling(bare: Command) -> None:
    both = said(bare("schema"))
    activity, favorites = said(bare("schema", "user-activity")), said(bare("schema", "favorites"))

    assert said(bare("schema", "user-activity,favorites")) == said(bare("schema", "user-activity", "favorites")) == both
    assert activity in both
    assert favorites in both
    assert "favorites." not in activity
    assert "user_activity." not in favorites
    grants = said(bare("schema", "favorites", "--role", "cleaner"))
    assert 'TO "cleaner";' in grants
    assert "user_activity" not in grants


@pytest.mark.req("H-05")
def test_an_unknown_domain_is_exit_2_and_told_which_ones_there_are(bare: Command) -> None:
    ended = bare("schema", "users,favorites", "everything", "--role", "cleaner")

    assert (ended.code, ended.stdout) == (2, "")
    assert ended.problems == [
        f"schema '{name}': no such domain; choose from user-activity, favorites" for name in ("users", "everything")
    ]


@pytest.mark.req("H-05")
@pytest.mark.parametrize("role", ["", "public", "none", "x" * 64, "two\nlines"])
def test_what_is_no_name_of_a_role_is_exit_2(bare: Command, role: str) -> None:
    ended = bare("schema", "--role", role)

    assert (ended.code, ended.stdout) == (2, "")
    assert len(ended.problems) == 1


def test_a_role_with_a_name_that_needs_quotes_gets_the_grants_and_nothing_else_happens(
    database: Database, bare: Command
) -> None:
    role = f'x"; DROP TABLE favorites.favorites; -- {database.name}'
    admin = database.connect()
    admin.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))

    admin.execute(said(bare("schema", "--role", role)).encode())

    assert one(admin, "SELECT has_table_privilege(%s, 'favorites.favorites', 'DELETE')", role) is True
    assert rows.ids(admin, rows.FAVORITES) == set()
    admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)))


def test_help_is_there_for_every_command_and_names_its_options(bare: Command) -> None:
    everything = said(bare("-h"))

    for name in COMMANDS:
        assert re.search(rf"^  {name} ", everything, re.MULTILINE), name
        told = said(bare(name, "--help"))
        for option in "--config", "--set", "--log-format", "--log-level":
            assert option in told
    listed = re.findall(r"^  (\w+) ", everything.partition("Commands:")[2], re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.req("H-05")
def test_help_and_version_need_no_right_settings(bare: Command) -> None:
    for words in ["--help"], ["run", "--help"], ["--version"]:
        assert bare(*words, ActivityRetention__BatchSize="0").code == 0


def test_the_program_can_be_started_as_a_module(bare: Command) -> None:
    assert PROGRAM[1:] == ("-m", "pgretention")
    assert said(bare("--version")) == f"pgretention, version {pgretention.__version__}\n"


def test_without_a_command_the_help_is_shown(bare: Command) -> None:
    ended = bare()

    assert "Commands:" in ended.stdout + ended.stderr
    assert ended.code in {0, 2}
