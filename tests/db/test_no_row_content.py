"""Nothing that stands in a row, keys apart, comes out of a run: no fact, report, error, log line or output (F-14)."""

from __future__ import annotations

import json
import re
from uuid import UUID

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.errors import FaultKind
from pgretention.policy import Policy, Table
from pgretention.report import Outcome
from tests.databases import Database
from tests.support import rows
from tests.support.gates import one
from tests.support.rows import EVENTS, FAVORITES, SESSIONS, VIEWS
from tests.support.runs import ACTIVITY, GUESTS, Run, job, run
from tests.support.triggers import QUOTING, drop, make_room_for_copies, on_delete

Admin = Connection[TupleRow]

SECRET = re.compile("secret|0000c0ffee", re.IGNORECASE)
"""In every planted value: in texts the word, in uuids the digits."""


def planted(n: int) -> UUID:
    return UUID(f"{n:08}-0000-4000-8000-0000c0ffee00")


@pytest.fixture
def contents(admin: Admin) -> None:
    """A row of every table, with something recognisable in every column that is no key."""
    session = rows.session(
        admin, user_id=planted(1), anonymous_id=planted(2), user_agent="secret browser", created_at=rows.OLD
    )
    view = rows.view(admin, session, property_object_id=planted(3))
    rows.event(admin, session, event_type="secret event", payload='{"secret": "payload"}', property_object_view_id=view)
    rows.favorite(admin, anonymous_id=planted(4), property_object_id=planted(5), note="secret note")
    for table in EVENTS, VIEWS, SESSIONS, FAVORITES:
        assert SECRET.search(str(one(admin, f"SELECT t::text FROM {table} AS t")))
    make_room_for_copies(admin)


def assert_silent(ran: Run, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    said = [repr(fact) for fact in ran.facts]
    said += [json.dumps(ran.report.as_json()), *capfd.readouterr(), caplog.text]
    assert not [text for text in said if SECRET.search(text)]


@pytest.mark.req("F-14", "A-21")
@pytest.mark.usefixtures("contents")
@pytest.mark.parametrize(
    ("policy", "table"),
    [(ACTIVITY, SESSIONS), (ACTIVITY, EVENTS), (ACTIVITY, VIEWS), (GUESTS, FAVORITES)],
    ids=["sessions", "events", "views", "favorites"],
)
def test_no_error_of_the_server_gives_a_row_away(
    database: Database,
    admin: Admin,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    policy: Policy,
    table: Table,
) -> None:
    caplog.set_level(0)
    for how, failure in QUOTING.items():
        trigger = on_delete(admin, table, failure)

        ran = run(database, job(policy))

        left_out = how in {"foreign key", "restrict", "statement timeout"}
        assert ran.report.outcome is (Outcome.PARTIAL if left_out else Outcome.FAILED), how
        assert ran.report.error is not None
        assert ran.report.error.sqlstate is not None
        assert ran.report.error.kind is not FaultKind.INTERNAL
        assert_silent(ran, capfd, caplog)
        drop(admin, table, trigger)


@pytest.mark.req("F-14", "A-21")
@pytest.mark.usefixtures("contents")
def test_a_successful_run_gives_no_row_away_although_triggers_say_it_aloud(
    database: Database, admin: Admin, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    for table in EVENTS, VIEWS, SESSIONS, FAVORITES:
        on_delete(admin, table, "RAISE WARNING '%', OLD")

    for policy in ACTIVITY, GUESTS:
        ran = run(database, job(policy))
        assert ran.report.outcome is Outcome.COMPLETED
        assert_silent(ran, capfd, caplog)


@pytest.mark.req("F-14", "A-21")
@pytest.mark.usefixtures("contents")
def test_a_trigger_that_calls_a_row_a_constraint_gives_it_away_no_more_than_in_other_words(
    database: Database, admin: Admin, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    on_delete(
        admin,
        FAVORITES,
        """
        RAISE 'no' USING CONSTRAINT = OLD.note, TABLE = OLD.note, SCHEMA = OLD.note, COLUMN = OLD.note,
                         DATATYPE = OLD.note
        """,
    )

    assert_silent(run(database, job(GUESTS)), capfd, caplog)


@pytest.mark.req("F-14", "A-21")
@pytest.mark.usefixtures("contents")
def test_a_failing_batch_names_its_keys_and_no_other_column(database: Database, admin: Admin) -> None:
    (favorite,) = rows.ids(admin, FAVORITES)
    on_delete(admin, FAVORITES, "RAISE '%', OLD")

    error = run(database, job(GUESTS)).report.error

    assert error is not None
    assert error.keys == (str(favorite),)
    assert (error.sqlstate, error.constraint) == ("P0001", None)
