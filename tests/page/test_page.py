"""The page in a real browser, in every state: nothing in the console, nothing from elsewhere, readable by everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Error

from pgretention import web
from pgretention.config import AccessToken, HostPort
from pgretention.page import routes
from pgretention.page.guard import Gate
from pgretention.report import Outcome, RunFinished, RunReport
from tests.page.browser import Look, Viewport, Visit
from tests.page.states import ACTIVITY, DRAINED, GUESTS, NOW, STATES, Planted, serving

ANYWHERE = HostPort("127.0.0.1", 0)
PHONE_DARK = Look(Viewport.PHONE, "dark")
WIDE_DARK = Look(Viewport.WIDE, "dark")
BARE = Look(scripts=False)


@cache
def planted(state: str) -> Planted:
    """One for all tests that only look."""
    return STATES[state]()


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a planted worker until the visits are judged, so that nothing is asked for in vain; answers where.

    It stands before `visit` among the arguments of a test, since what is set up first is taken down last.
    """
    with ExitStack() as servers:
        yield lambda planted, token=None: f"http://{servers.enter_context(serving(planted, token))}"


def address(state: str, page: str) -> str:
    """Where a page is in that state; a run stands for the last one of activity-retention, or the one that is on."""
    if page != "run":
        return page
    known = planted(state).history.of(ACTIVITY.name)
    run = known.running or known.last
    assert run is not None
    return f"/runs/{run.run_id}"


RUNBOOK = "/runbooks/no-run"
JOB, POLICY = "/jobs/activity-retention", "/jobs/activity-retention/policy"
VIEWS = [
    *((state, "/") for state in STATES),
    *((state, JOB) for state in ("nothing", "once", "fine", "failing", "running")),
    *((state, POLICY) for state in ("nothing", "fine", "refused")),
    ("fine", "/jobs/guest-favorites-cleanup/policy"),
    *((state, "run") for state in ("fine", "failing", "running")),
    ("fine", "/runbooks"),
    ("fine", "/runbooks/run-refused"),
]
"""No data, some, failing and running, of each kind of page; of much data the charts are looked at, below."""


def seen(serve: Serve, visit: Visit, state: str, page: str) -> None:
    """The page is there, sound for everybody, and no wider than the screen."""
    at = serve(planted(state))
    visit.open(f"{at}{address(state, page)}")
    visit.axe()
    assert narrow(visit)
    name = page.strip("/").replace("/", "-") or "overview"
    visit.shot(f"{state}-{name}")


def narrow(visit: Visit) -> bool:
    """Whether the page is no wider than the screen."""
    return bool(visit.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize(("state", "page"), VIEWS)
def test_every_view_of_every_state(serve: Serve, visit: Visit, state: str, page: str) -> None:
    seen(serve, visit, state, page)


@pytest.mark.parametrize(
    ("look", "state", "page"),
    [
        (PHONE_DARK, "failing", "/"),
        (PHONE_DARK, "fine", JOB),
        (PHONE_DARK, "refused", POLICY),
        (PHONE_DARK, "running", "run"),
        (PHONE_DARK, "fine", RUNBOOK),
        (WIDE_DARK, "failing", "/"),
        (WIDE_DARK, "fine", JOB),
        (WIDE_DARK, "refused", POLICY),
    ],
    ids=str,
)
def test_in_the_dark_on_a_phone_and_on_a_wall(serve: Serve, visit: Visit, state: str, page: str) -> None:
    seen(serve, visit, state, page)


def test_a_page_that_is_not_there_says_so_and_leads_back(serve: Serve, visit: Visit) -> None:
    visit.expect("status of 404")
    at = serve(planted("fine"))
    visit.open(f"{at}/runs/unknown")
    visit.axe()
    visit.page.get_by_role("link", name="All jobs").click()
    assert visit.page.get_by_role("heading", level=1).inner_text() == "All is well"


def test_whoever_only_glances_sees_the_job_in_trouble_why_and_what_to_do(serve: Serve, visit: Visit) -> None:
    at = serve(planted("failing"))
    visit.open(f"{at}/")
    assert "need somebody" in visit.page.get_by_role("heading", level=1).inner_text()
    banner = visit.page.get_by_role("region", name="guest-favorites-cleanup needs somebody")
    assert banner.is_visible()
    assert "cannot connect: connection refused" in banner.inner_text()
    assert "What to do:" in banner.inner_text()
    banner.get_by_role("link", name="Runbook").click()
    assert visit.page.url.endswith("/runbooks/no-run")


def drawn(visit: Visit) -> int:
    """Charts that have something on their canvas."""
    return int(
        visit.page.evaluate(
            """[...document.querySelectorAll("figure.chart canvas")].filter(canvas => {
                const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                return pixels.some(value => value > 0);
            }).length"""
        )
    )


@pytest.mark.parametrize(("state", "charts"), [("once", 1), ("fine", 1), ("much", 2)])
def test_charts_are_drawn_of_one_run_and_of_a_thousand(serve: Serve, visit: Visit, state: str, charts: int) -> None:
    at = serve(planted(state))
    visit.open(f"{at}{JOB}")
    visit.page.locator("figure.chart canvas").nth(charts - 1).wait_for()
    assert drawn(visit) == charts
    assert narrow(visit)
    visit.shot(f"charts-{state}")


def test_numbers_behind_a_chart_are_a_table_that_leads_to_each_run(serve: Serve, visit: Visit) -> None:
    at = serve(planted("fine"))
    visit.open(f"{at}{JOB}")
    visit.page.get_by_text("Rows deleted per run as numbers").click()
    numbers = visit.page.get_by_role("group", name="Rows deleted per run")
    assert numbers.get_by_role("row").count() == 15
    numbers.get_by_role("link").first.click()
    assert "/runs/" in visit.page.url


@pytest.mark.parametrize("look", [BARE], ids=str)
@pytest.mark.parametrize(
    ("state", "page", "words"),
    [
        ("failing", "/", "What to do:"),
        ("fine", JOB, "46,752"),
        ("running", "run", "waits for the replica standby_1"),
        ("refused", POLICY, "ON DELETE CASCADE"),
    ],
)
def test_without_scripts_everything_is_there(serve: Serve, visit: Visit, state: str, page: str, words: str) -> None:
    at = serve(planted(state))
    visit.open(f"{at}{address(state, page)}")
    assert words in visit.page.locator("main").inner_text()
    for numbers in visit.page.locator("figure.chart table").all():
        assert numbers.is_visible()
    for canvas in visit.page.locator("figure.chart .canvas").all():
        assert not canvas.is_visible()
    visit.shot(f"{state}-{page.strip('/').replace('/', '-') or 'overview'}")


def test_a_keyboard_is_enough(serve: Serve, visit: Visit) -> None:
    at = serve(planted("failing"))
    visit.open(f"{at}/")
    visit.page.keyboard.press("Tab")
    assert focused(visit) == "Skip to the content"
    visit.page.keyboard.press("Tab")
    assert focused(visit) == "pgretention"
    reached = set()
    for _ in range(30):
        visit.page.keyboard.press("Tab")
        reached.add(focused(visit))
    assert {"activity-retention", "Charts and runs", "What it deletes", "JSON"} <= reached


def focused(visit: Visit) -> Any:
    return visit.page.evaluate("document.activeElement.innerText")


def test_a_run_is_followed_while_it_goes_on_and_left_alone_when_it_is_over(serve: Serve, visit: Visit) -> None:
    worker = STATES["running"]()
    running = worker.history.of(ACTIVITY.name).running
    assert running is not None
    at = serve(worker)
    visit.open(f"{at}/runs/{running.run_id}")
    assert visit.page.locator("body").get_attribute("data-refresh") == "2"
    visit.page.get_by_text("Batch durations as numbers").click()
    visit.page.evaluate("document.querySelector('h1').dataset.kept = 'yes'")
    worker.batches(ACTIVITY, running.run_id, NOW, 5)
    worker.tell(NOW)
    after = worker.history.of(ACTIVITY.name).running
    assert after is not None
    rows = after.deleted["user_activity.sessions"]
    visit.page.get_by_text(f"{rows:,} rows of user_activity.sessions gone").wait_for()
    assert visit.page.locator("#numbers-durations").get_attribute("open") is not None

    end_of(worker, after.deleted, running.run_id)
    visit.page.get_by_text("It ended because nothing expired was left").wait_for()
    assert visit.page.locator("body").get_attribute("data-refresh") is None
    assert visit.page.locator("#head .outcome").text_content() == "completed"
    assert visit.page.locator("#numbers-durations").get_attribute("open") is not None


def end_of(worker: Planted, deleted: Any, run_id: str) -> None:
    report = RunReport(
        job=ACTIVITY.name,
        run_id=run_id,
        outcome=Outcome.COMPLETED,
        cutoff=NOW - ACTIVITY.policy.retention,
        deleted=deleted,
        batches=65,
        has_more=False,
        backlog_before=None,
        backlog_after=DRAINED,
        duration=timedelta(seconds=90),
    )
    worker.tell(NOW, RunFinished(report))


def test_trouble_that_comes_while_somebody_looks_is_shown_and_they_stay_where_they_are(
    serve: Serve, visit: Visit
) -> None:
    worker = STATES["fine"]()
    at = serve(worker)
    visit.open(f"{at}/")
    visit.page.get_by_role("link", name="What it deletes").nth(1).focus()
    worker.lost.add(GUESTS.name)
    visit.page.get_by_role("region", name="guest-favorites-cleanup needs somebody").wait_for()
    assert focused(visit) == "What it deletes"
    assert "needs somebody" in visit.page.title()


def test_a_worker_that_is_gone_is_said_to_be_and_one_that_comes_back_is_shown(visit: Visit) -> None:
    visit.expect("failed request: .*ERR_CONNECTION_REFUSED", "console error: .*ERR_CONNECTION_REFUSED")
    worker = STATES["fine"]()
    gate = Gate.at(ANYWHERE, None, (), "worker-7")
    with web.serving(ANYWHERE, routes.routes(worker.watched, gate)) as at:
        visit.open(f"http://{at}/")
    lost = visit.page.get_by_text("No answer from the worker")
    lost.wait_for()
    worker.lost.add(GUESTS.name)
    with web.serving(at, routes.routes(worker.watched, gate)):
        visit.page.get_by_role("region", name="guest-favorites-cleanup needs somebody").wait_for()
        lost.wait_for(state="hidden")


@pytest.fixture
def credentials() -> tuple[str, str]:
    return "anybody", "0123456789abcdef"


@pytest.fixture
def guarded(serve: Serve, credentials: tuple[str, str]) -> str:
    return serve(planted("fine"), AccessToken(credentials[1]))


@pytest.mark.req("H-06")
def test_a_browser_shows_the_token_as_a_password(
    guarded: str, visits: Callable[[Look], Visit], credentials: tuple[str, str]
) -> None:
    stranger = visits(Look())
    stranger.expect("failed request: .*ERR_INVALID_AUTH_CREDENTIALS", "status of 401")
    with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):  # nobody is there to fill the dialogue in
        stranger.open(f"{guarded}/")

    friend = visits(Look(credentials=credentials))
    assert friend.open(f"{guarded}{JOB}").status == 200
    friend.page.locator("figure.chart canvas").first.wait_for()
    friend.axe()


@pytest.mark.req("H-06")
def test_nothing_is_kept_in_the_browser(serve: Serve, visit: Visit) -> None:
    at = serve(planted("fine"))
    visit.open(f"{at}/")
    visit.open(f"{at}{JOB}")
    assert visit.page.context.cookies() == []
    assert visit.page.evaluate("localStorage.length + sessionStorage.length") == 0
