"""The page over real sockets, of planted workers: what is there, to whom, with which headers, and the same as JSON."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pgretention import app, web
from pgretention.config import AccessToken, HostPort
from pgretention.errors import FaultKind
from pgretention.page import routes, runbooks
from pgretention.page.guard import Gate
from pgretention.report import Outcome, RunError
from tests.page.states import ACTIVITY, CASCADE, DRAINED, GUESTS, HOUR, NOW, STATES, Planted, serving
from tests.support.gates import until
from tests.support.scrapes import Answer, ask

DOC = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text("utf-8")
PAGES = (
    "/",
    "/jobs/activity-retention",
    "/jobs/guest-favorites-cleanup",
    "/jobs/activity-retention/policy",
    "/jobs/guest-favorites-cleanup/policy",
    "/runbooks",
    *(f"/runbooks/{name}" for name in runbooks.names()),
)
FILES = ("/static/page.css", "/static/page.js", "/static/uplot.js", "/static/uplot.css", "/static/favicon.svg")
API = (
    "/api/jobs",
    "/api/jobs/activity-retention",
    "/api/jobs/activity-retention/policy",
    "/api/jobs/activity-retention/runs",
)
MISSING = ("/nowhere", "/jobs/x", "/jobs/x/policy", "/runs/x", "/runbooks/x", "/runbooks/README", "/static/base.html")
MISSING_API = ("/api", "/api/x", "/api/jobs/x", "/api/jobs/x/runs", "/api/jobs/x/policy", "/api/runs/x")


class Text(HTMLParser):
    """The ids, addresses and text of a page; refuses what is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self.attributes |= said.keys()
        self.ids += [str(said["id"])] if "id" in said else []
        self.addresses += [str(said[name]) for name in ("href", "src") if name in said]
        if tag not in {"meta", "link", "br", "img", "input", "hr"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module", params=STATES)
def planted(request: pytest.FixtureRequest) -> Planted:
    return STATES[request.param]()


@pytest.fixture(scope="module")
def at(planted: Planted) -> Iterator[HostPort]:
    with serving(planted) as at:
        yield at


def runs_of(planted: Planted) -> list[str]:
    """Addresses of the first and the last run of each job, and of those that are on."""
    found = []
    for job in ACTIVITY, GUESTS:
        known = planted.history.of(job.name)
        found += [run.run_id for run in (*known.runs[:1], *known.runs[-1:], known.running) if run]
    return [f"/runs/{run_id}" for run_id in dict.fromkeys(found)]


def test_every_page_of_every_state_is_sound_and_all_it_links_to_is_there(planted: Planted, at: HostPort) -> None:
    linked = set()
    for path in (*PAGES, *runs_of(planted)):
        answer = ask(at, path)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), path
        page = Text(answer.text)
        assert len(page.ids) == len(set(page.ids)), path
        assert not {name for name in page.attributes if name.startswith("on")} | page.attributes & {"style"}
        for address in page.addresses:
            target, _, fragment = address.partition("#")
            if target.startswith("/"):
                linked.add(target)
            elif not target:
                assert fragment in page.ids, (path, address)
    linked -= {"/metrics"}  # which is the worker's
    assert {path: status for path in linked if (status := ask(at, path).status) != 200} == {}


def test_json_says_what_the_page_says(at: HostPort) -> None:
    for card in answered(ask(at, "/api/jobs"))["jobs"]:
        page = Text(ask(at, f"/jobs/{card['name']}").text).text
        assert card["state"]["word"] in page
        assert card["state"]["why"].replace("`", "") in page
        runs = answered(ask(at, f"/api/jobs/{card['name']}/runs"))["runs"]
        assert [run["run_id"] for run in runs[:1]] == ([card["last_run"]["run_id"]] if card["last_run"] else [])
        for run in runs[:2]:
            whole = answered(ask(at, f"/api/runs/{run['run_id']}"))
            assert run == {name: value for name, value in whole.items() if name not in {"timeline", "notes"}}
            assert sum(sum(each["rows"]) for each in whole["timeline"]) == (
                sum(run["deleted"].values()) if run["detailed"] else 0
            )


def answered(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    return dict(json.loads(answer.text))


@pytest.fixture(scope="module")
def fine() -> Iterator[HostPort]:
    with serving(STATES["fine"]()) as at:
        yield at


@pytest.mark.req("H-06")
@pytest.mark.parametrize("path", [*PAGES[:4], *FILES, *API, *MISSING, *MISSING_API])
def test_every_answer_lets_nothing_in_or_out_and_sets_no_cookie(fine: HostPort, path: str) -> None:
    answer = ask(fine, path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "set-cookie" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", [*MISSING, *MISSING_API])
def test_what_is_not_there_is_a_404_of_the_kind_that_was_asked_for(fine: HostPort, path: str) -> None:
    answer = ask(fine, path)
    assert answer.status == 404
    if path.startswith("/api"):
        assert list(json.loads(answer.text)) == ["error"]
    else:
        assert Text(answer.text).text.count("Not found") == 2


@pytest.mark.req("H-06")
@pytest.mark.parametrize("path", ["/", "/api/jobs", "/static/page.js", "/nowhere"])
def test_nothing_can_be_changed(fine: HostPort, path: str) -> None:
    for method in "POST", "PUT", "DELETE", "PATCH":
        assert ask(fine, path, method).status == 405


@pytest.mark.req("H-06")
@pytest.mark.parametrize("path", ["/", "/jobs/activity-retention", "/api/jobs", "/static/page.js", "/x"])
def test_without_the_token_or_under_another_name_nothing_is_told(path: str) -> None:
    with serving(STATES["fine"](), AccessToken("0123456789abcdef")) as at:
        for answer, status in (
            (ask(at, path), 401),
            (ask(at, path, Authorization="Bearer 0123456789abcdee"), 401),
            (ask(at, path, Host="evil.example", Authorization="Bearer 0123456789abcdef"), 421),
        ):
            assert answer.status == status
            assert "activity-retention" not in answer.text
            assert answer.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert ask(at, path, Authorization="Bearer 0123456789abcdef").status == (404 if path == "/x" else 200)


HOSTILE = "`<b>` </script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


def test_whatever_stands_in_a_name_or_a_message_is_text() -> None:
    planted = Planted()
    error = RunError(FaultKind.DATABASE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), 1)
    run_id = planted.run(ACTIVITY, NOW - HOUR, Outcome.FAILED, error=error)
    finding = CASCADE.__class__(CASCADE.severity, "x", HOSTILE, HOSTILE, HOSTILE)
    planted.seen(ACTIVITY, DRAINED, finding)
    planted.unseen[ACTIVITY.name] = HOSTILE
    with serving(planted) as at:
        for path in ("/", f"/runs/{run_id}", "/jobs/activity-retention", "/jobs/activity-retention/policy"):
            html = ask(at, path).text
            assert "<script>alert" not in html
            assert "<img" not in html
            assert HOSTILE.replace("`", "") in Text(html).text


def test_probes_are_answered_while_a_page_is_being_drawn() -> None:
    drawing, go_on = threading.Event(), threading.Event()

    def survey(_: str) -> None:
        drawing.set()
        assert go_on.wait(30)

    watched = replace(STATES["nothing"]().watched, survey=survey)
    gate = Gate.at(HostPort("127.0.0.1", 0), None, (), "worker-7")
    probes = web.routes(dead=list, unready=list, metrics=lambda _: (b"", "text/plain"))
    with (
        web.serving(HostPort("127.0.0.1", 0), [*probes, *routes.routes(watched, gate)]) as at,
        ThreadPoolExecutor() as viewers,
    ):
        looking = [viewers.submit(ask, at, "/") for _ in range(3)]
        assert drawing.wait(30)
        assert (ask(at, "/livez").status, ask(at, "/metrics").status) == (200, 200)
        go_on.set()
        assert {each.result().status for each in looking} == {200}


def test_more_people_than_can_be_drawn_for_are_sent_away_and_whoever_left_is_not_drawn_for() -> None:
    drawing, go_on, drawn = threading.Event(), threading.Event(), []

    def survey(_: str) -> None:
        drawn.append(1)
        drawing.set()
        assert go_on.wait(30)

    watched = replace(STATES["nothing"]().watched, survey=survey)
    gate = Gate.at(HostPort("127.0.0.1", 0), None, (), "worker-7")
    probes = web.routes(dead=list, unready=list, metrics=lambda _: (b"", "text/plain"))
    with web.serving(HostPort("127.0.0.1", 0), [*probes, *routes.routes(watched, gate)]) as at, ExitStack() as people:
        for _ in range(60):
            person = people.enter_context(socket.create_connection((at.host, at.port)))
            person.sendall(b"GET /jobs/activity-retention/policy HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert drawing.wait(30)
        until(lambda: ask(at, "/").status == 503)
        assert ask(at, "/livez").status == 200
        people.close()
        go_on.set()
        until(lambda: ask(at, "/runbooks").status == 200)
    assert len(drawn) < 60


@pytest.mark.parametrize("name", ["x" * 50_000, "../../etc/passwd", "README", "no-run.md", "%00"])
def test_a_runbook_that_is_not_there_is_not_remembered(name: str) -> None:
    assert runbooks.runbook(name) is None


def test_the_policy_of_a_job_that_is_run_elsewhere_does_not_wait_for_a_look() -> None:
    planted = STATES["nothing"]()
    planted.here = (ACTIVITY.name,)
    with serving(planted) as at:
        html = ask(at, "/jobs/guest-favorites-cleanup/policy").text
    assert "This worker does not run the job" in html
    assert "data-refresh" not in html


def test_the_past_is_drawn_anew_when_a_run_has_ended() -> None:
    planted = STATES["fine"]()
    with serving(planted) as at:
        before = [ask(at, f"/jobs/{ACTIVITY.name}").text.count("data-at=") for _ in range(2)]
        planted.run(ACTIVITY, NOW, left=DRAINED)
        after = ask(at, f"/jobs/{ACTIVITY.name}").text.count("data-at=")
    assert (before, after) == ([3 * 14] * 2, 3 * 15)


def test_a_thousand_runs_are_all_in_the_charts_and_the_latest_in_the_list() -> None:
    with serving(STATES["much"]()) as at:
        html = ask(at, "/jobs/activity-retention").text
    assert html.count("data-at=") == 3 * 1000
    assert "The latest 100 of 1,000 runs" in Text(html).text


def test_a_page_looks_again_more_often_while_a_run_is_on_and_not_at_all_when_it_is_over() -> None:
    for state, path, seconds in (
        ("running", "/", "2"),
        ("fine", "/", "5"),
        ("fine", "/runbooks/no-run", None),
    ):
        with serving(STATES[state]()) as at:
            found = re.search(r'<body[^>]* data-refresh="(\d+)"', ask(at, path).text)
        assert (found and found[1]) == seconds


def test_a_run_that_is_on_shows_how_far_it_is() -> None:
    planted = STATES["running"]()
    running = planted.history.of(ACTIVITY.name).running
    assert running is not None
    with serving(planted) as at:
        page = Text(ask(at, f"/runs/{running.run_id}").text)
    gone, tables = running.deleted["user_activity.sessions"], app.default(ACTIVITY.name).job.policy.tables
    assert f"{gone:,} rows of user_activity.sessions gone, of 90,000 rows" in page.text
    assert "waits for the replica standby_1, which is 12 s behind" in page.text
    assert all(f"{running.deleted[str(table)]:,}" in page.text for table in tables)


def test_every_address_and_every_field_is_in_the_reference() -> None:
    planted = STATES["running"]()
    planted.seen(ACTIVITY, DRAINED, CASCADE)
    with serving(planted) as at:
        said = [answered(ask(at, path)) for path in API]
        run = planted.history.of(ACTIVITY.name).running
        assert run is not None
        said.append(answered(ask(at, f"/api/runs/{run.run_id}")))
    fields = set().union(*(keys_in(each) for each in said)) - {
        str(table) for job in (ACTIVITY, GUESTS) for table in job.policy.tables
    }
    fields -= {"replica_lag", "claim the first batch", "delete the claimed batch, in the same transaction"}
    assert {field for field in fields if f"`{field}`" not in DOC} == set()
    for path in ("/jobs/JOB", "/jobs/JOB/policy", "/runs/RUN", "/runbooks/NAME", "/api/jobs/JOB/runs", "/api/runs/RUN"):
        assert f"`{path}`" in DOC


def keys_in(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | set().union(*(keys_in(each) for each in value.values()))
    return set().union(*(keys_in(each) for each in value)) if isinstance(value, list) else set()


@pytest.mark.parametrize(
    ("state", "headline"),
    [
        ("failing", "activity-retention and guest-favorites-cleanup need somebody"),
        ("off", "activity-retention needs somebody"),
        ("running", "activity-retention running"),
        ("fine", "All is well"),
        ("nothing", "Nothing needs anybody"),
    ],
)
def test_the_headline_says_it_in_a_sentence(state: str, headline: str) -> None:
    with serving(STATES[state]()) as at:
        assert f">{headline}</h1>" in ask(at, "/").text
