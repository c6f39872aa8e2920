"""Wrong settings, flags, names and words: exit 2, a line for each problem, no traceback, no secret, nothing deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from tests.support import planted
from tests.support.command import RESULT_KEYS, Command
from tests.support.planted import left, old_sessions
from tests.support.rows import EVENTS, SESSIONS, VIEWS

Admin = Connection[TupleRow]

ACTIVITY, GUESTS = "activity-retention", "guest-favorites-cleanup"
BOTH = pytest.mark.parametrize("job", [ACTIVITY, GUESTS])

WRONG = {
    "ActivityRetention__BatchSize": "50001",
    "ActivityRetention__RetentionPeriod": "365",
    "ActivityRetention__MaxBatchesPerRun": "0",
    "ActivityRetention__MaxRunDuration": "1 month",
    "ActivityRetention__Enabled": "yes",
    "ActivityRetention__RetentionSchedule": "0 3 31 2 *",
    "ActivityRetention__TimeZone": "Europe/Moscaw",
    "Favorites__GuestRetention__Days": "-1",
    "Favorites__GuestRetention__BatchSzie": "1",
    "ActivityRetentoin__BatchSize": "1",
}


@pytest.mark.req("A-07", "F-04", "H-05")
def test_wrong_settings_are_one_refused_result_and_a_line_for_each_problem(command: Command, admin: Admin) -> None:
    sessions = old_sessions(admin, 2)

    ended = command("run", ACTIVITY, "--json", **WRONG)
    plainly = command("run", ACTIVITY, **WRONG)

    assert ended.code == plainly.code == 2
    result = ended.result
    assert list(result) == RESULT_KEYS
    assert (result["job"], result["outcome"], result["error"]["kind"]) == (ACTIVITY, "refused", "configuration")
    assert result["deleted"] == dict.fromkeys(map(str, (EVENTS, VIEWS, SESSIONS)), 0)
    assert (result["batches"], result["has_more"], result["cutoff"]) == (0, False, None)
    assert ended.problems == plainly.problems
    assert len(ended.problems) == len(WRONG)
    for name in WRONG:
        assert [line for line in ended.problems if name in line], name
    assert plainly.stdout == ""
    assert left(admin) == set(sessions)


@pytest.mark.req("A-07", "H-05")
@BOTH
def test_wrong_settings_of_one_job_keep_the_other_from_running_too(alone: Command, job: str) -> None:
    """Whoever mistypes a setting may have meant another one."""
    flags = ("--set", "ActivityRetention:RetentionPeriod=0d", "--set", "Favorites:GuestRetention:Days=")

    ended = alone("run", job, "--json", *flags)

    assert (ended.code, ended.result["job"], ended.result["outcome"]) == (2, job, "refused")
    assert [line.partition(" (--set): ")[0] for line in ended.problems] == [
        "ActivityRetention:RetentionPeriod",
        "Favorites:GuestRetention:Days",
    ]


@pytest.mark.req("H-05")
@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://someone:{}@host:54x32/db",
        "postgresql://someone:a@{}@host/db",
        "postgresql://someone:a/{}@host/db",
        "host=localhost pasword={}",
        "Host=localhost;Username=someone;Password={}",
        "host=localhost password='{}",
        "mysql://someone:{}@host/db",
        "{}",
    ],
)
def test_a_connection_string_that_cannot_be_read_is_not_shown(alone: Command, dsn: str) -> None:
    dsn = dsn.format(planted.TEXT)
    flags = ("--set", f"ConnectionStrings:UserActivity={dsn}", "--set", dsn)

    ended = alone("run", GUESTS, "--json", *flags, ConnectionStrings__Favorites=dsn)

    assert ended.code == 2
    assert len(ended.problems) == 3
    assert ended.result["outcome"] == "refused"


@pytest.mark.req("H-05")
def test_a_password_in_a_place_where_a_word_is_expected_is_not_shown(alone: Command, tmp_path: Path) -> None:
    wrong = tmp_path / "settings.toml"
    wrong.write_text(f'[ConnectionStrings]\nFavorites = "host=localhost password={planted.TEXT}\n')

    ended = alone("run", GUESTS, "--json", "--config", str(wrong))

    assert ended.code == 2
    assert len(ended.problems) == 1


@pytest.mark.req("H-05")
@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", ACTIVITY, GUESTS],
        ["run", ACTIVITY, "--jason"],
        ["run", ACTIVITY, "--log-format", "xml"],
        ["run", ACTIVITY, "--log-level", "loud"],
        ["run", ACTIVITY, "--set"],
        ["run", ACTIVITY, "--config", "/nonexistent/settings.toml"],
        ["run", "activity_retention"],
        ["walk", ACTIVITY],
        ["run", ACTIVITY, "--batches", "3"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2_and_says_what_is_wrong(alone: Command, words: list[str]) -> None:
    ended = alone(*words)

    assert ended.code == 2
    assert ended.stdout == ""
    assert ended.stderr


@pytest.mark.req("H-05")
@BOTH
def test_an_unknown_job_is_told_which_one_was_meant(alone: Command, job: str) -> None:
    ended = alone("run", job.replace("a", "e", 1).replace("-", "_"))

    assert ended.code == 2
    assert ended.problems == [f"no job is called {job.replace('a', 'e', 1).replace('-', '_')}; did you mean {job}?"]
    assert alone("run", "vacuum").problems == [f"no job is called vacuum; there are {ACTIVITY} and {GUESTS}"]


@pytest.mark.req("H-05")
def test_a_host_that_is_no_name_is_a_failure_to_connect_and_no_bug(alone: Command) -> None:
    ended = alone("run", GUESTS, "--json", ConnectionStrings__Favorites="host=db..internal")

    assert ended.code in {1, 2}
    assert ended.result["error"]["kind"] in {"connection", "configuration"}
