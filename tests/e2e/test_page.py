"""The page of a real worker: what happened in the database is what it shows, while it happens and after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from pgretention.config import HostPort
from pgretention.demo.server import free_port
from tests.support.command import Command
from tests.support.gates import until
from tests.support.planted import expired, old_favorites, old_sessions, plant
from tests.support.scrapes import ask
from tests.support.workers import ACTIVITY, GUESTS, Worker, just_now, not_today

Admin = Connection[TupleRow]


def somewhere() -> HostPort:
    return HostPort("127.0.0.1", free_port())


def api(at: HostPort, path: str) -> dict[str, Any]:
    answer = ask(at, f"/api{path}")
    assert answer.status == 200
    return dict(json.loads(answer.text))


def until_remembered(at: HostPort, job: str) -> dict[str, Any]:
    """The card of a job once its run is over, of which the page hears after the log."""
    until(lambda: api(at, f"/jobs/{job}")["last_run"] is not None)
    return api(at, f"/jobs/{job}")


@pytest.mark.req("H-06")
def test_the_page_shows_what_sql_counted(command: Command, admin: Admin) -> None:
    plant(admin)
    due = expired(admin)
    at = somewhere()
    worker = Worker(command, Http__Listen=str(at), Favorites__GuestRetention__BatchSize="2", **just_now())
    worker.until_said("completed", job=ACTIVITY)
    worker.until_said("job completed", job=GUESTS)

    for job in ACTIVITY, GUESTS:
        card = until_remembered(at, job)
        run = api(at, f"/runs/{card['last_run']['run_id']}")
        assert run["deleted"] == {table: due[table] for table in run["deleted"]}
        assert (run["outcome"], card["backlog"]["rows"], card["overdue_seconds"]) == ("completed", 0, 0)
        assert (card["state"]["word"], card["here"], card["running"]) == ("Fine", True, None)
        assert len(run["timeline"]) == run["batches"] == (3 if job == GUESTS else 1)
        page = ask(at, f"/runs/{run['run_id']}").text
        assert all(f"{rows:,}" in page for rows in run["deleted"].values())
        until(lambda job=job: api(at, f"/jobs/{job}/policy")["looked_at"] is not None)  # type: ignore[misc]
        assert api(at, f"/jobs/{job}/policy")["statements"]
    assert "All is well" in ask(at, "/").text
    assert worker.end().code == 0


def test_a_run_is_shown_while_it_goes_on_batch_by_batch(command: Command, admin: Admin) -> None:
    old_sessions(admin, 9)
    at = somewhere()
    slow = {"ActivityRetention__BatchSize": "2", "ActivityRetention__BatchPause": "2s"}
    worker = Worker(command, ACTIVITY, "--log-level", "debug", Http__Listen=str(at), **slow, **just_now())
    worker.until_said("batch", job=ACTIVITY, batch_index=2)

    until(lambda: len(api(at, f"/jobs/{ACTIVITY}")["running"]["deleted"]) > 0)
    card = api(at, f"/jobs/{ACTIVITY}")
    assert card["state"]["word"] == "Running"
    run = api(at, f"/runs/{card['running']['run_id']}")
    assert (run["outcome"], run["ended"], run["backlog_before"]["rows"]) == (None, None, 9)
    assert {each["rows"][-1] for each in run["timeline"]} == {2}
    assert "of user_activity.sessions gone, of 9 rows" in ask(at, f"/runs/{run['run_id']}").text
    other = api(at, f"/jobs/{GUESTS}")
    assert (other["here"], other["state"]["word"]) == (False, "Elsewhere")
    assert worker.end().code == 0


@pytest.mark.req("H-03")
def test_a_worker_whose_database_is_away_says_so_and_stays_up(alone: Command) -> None:
    at = somewhere()
    worker = Worker(alone, Http__Listen=str(at), **not_today())
    worker.until_said("worker started")
    until(lambda: api(at, f"/jobs/{ACTIVITY}")["state"]["word"] == "Unreachable")
    assert "Its database was not seen yet: cannot connect" in ask(at, "/").text
    assert api(at, f"/jobs/{ACTIVITY}/policy")["not_looked_at_because"].startswith("cannot connect")
    assert worker.end().code == 0


def test_a_job_that_is_refused_names_the_finding_and_the_way_out(command: Command, admin: Admin) -> None:
    old_sessions(admin, 1)
    admin.execute("CREATE TABLE public.notes (session uuid REFERENCES user_activity.sessions ON DELETE CASCADE)")
    at = somewhere()
    worker = Worker(command, ACTIVITY, Http__Listen=str(at), **just_now())
    worker.until_said("refused", job=ACTIVITY)
    state = until_remembered(at, ACTIVITY)["state"]
    assert (state["word"], state["runbook"]) == ("Refused", "/runbooks/run-refused")
    assert "ON DELETE CASCADE" in state["why"]
    until(lambda: "ALTER TABLE" in ask(at, f"/jobs/{ACTIVITY}/policy").text)
    assert worker.end().code == 0


def test_a_history_file_outlives_the_worker(command: Command, admin: Admin, tmp_path: Path) -> None:
    old_favorites(admin, 3)
    at, file = somewhere(), tmp_path / "history"
    kept = {"Http__Listen": str(at), "History__File": str(file)}
    worker = Worker(command, GUESTS, **kept, **just_now())
    worker.until_said("job completed", job=GUESTS)
    until_remembered(at, GUESTS)
    before = api(at, f"/jobs/{GUESTS}/runs")
    assert worker.end().code == 0

    worker = Worker(command, **kept, **not_today())
    worker.until_said("scheduled", job=GUESTS)
    assert api(at, f"/jobs/{GUESTS}/runs") == before
    assert before["runs"][0]["deleted"] == {"favorites.favorites": 3}
    assert worker.end().code == 0


def test_a_history_that_cannot_be_kept_is_said_before_anything_runs(command: Command, tmp_path: Path) -> None:
    (tmp_path / "history").write_text("my diary")
    ended = command("worker", History__File=str(tmp_path / "history"), Http__Listen=str(somewhere()), **just_now())
    assert ended.code == 2
    (problem,) = ended.problems
    assert problem.startswith(f"History:File: {tmp_path / 'history'}: file is not a database; name a file")


@pytest.mark.req("H-06")
def test_where_others_can_ask_the_page_is_closed_until_a_token_is_set(command: Command) -> None:
    at = somewhere()
    listen = {"Http__Listen": f"0.0.0.0:{at.port}"}
    worker = Worker(command, **listen, **not_today())
    closed = worker.until_said("page closed")
    assert closed["level"] == "warning"
    assert {path: ask(at, path).status for path in ("/", "/api/jobs", "/static/page.js")} == {
        "/": 403,
        "/api/jobs": 403,
        "/static/page.js": 403,
    }
    assert {ask(at, path).status for path in ("/livez", "/metrics")} == {200}
    assert worker.end().code == 0

    worker = Worker(command, **listen, Http__Token="a-token-of-the-page", **not_today())
    worker.until_said("listening")
    assert ask(at, "/").status == 401
    assert ask(at, "/", Authorization="Bearer a-token-of-the-page").status == 200
    assert worker.end().code == 0
    assert "a-token-of-the-page" not in str(worker.log)
