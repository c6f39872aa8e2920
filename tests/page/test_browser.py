"""The browser tests' own equipment: a good page passes, and each kind of bad one is complained of."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.page.browser import SHOTS, Look, Viewport, Visit, visiting

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'"
PAGE = """<!doctype html><html lang="en"><head><title>A page</title><meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="/page.css">{head}</head><body><main><h1>A page</h1><p>Text.</p>{main}</main></body></html>
"""
EMPTY = PAGE.format(head="", main="")
FILES = {
    "/page.css": "body { color: #111; background: #fff } .pale { color: #ccc }",
    "/error.js": "console.error('spoken up')",
    "/warning.js": "console.warn('spoken up')",
    "/raise.js": "throw new Error('not caught')",
    "/write.js": "document.querySelector('p').textContent = 'Scripts run.'",
}
USER, PASSWORD = "somebody", "a password"


class Handler(BaseHTTPRequestHandler):
    """Answers with what the site has, under its policy; /secret asks for a password and /reset never answers."""

    @property
    def site(self) -> Site:
        assert isinstance(self.server, Site)
        return self.server

    def do_GET(self) -> None:
        if self.path == "/reset":
            self.close_connection = True
        elif self.path == "/picture":
            self._answer(200, "image/svg+xml", '<svg xmlns="http://www.w3.org/2000/svg"/>')
        elif self.path == "/secret" and self.headers["Authorization"] != _basic(USER, PASSWORD):
            self._answer(401, "text/html", EMPTY, asks=True)
        elif self.path in FILES:
            kind = "text/css" if self.path.endswith("css") else "text/javascript"
            self._answer(200, kind, FILES[self.path])
        else:
            self._answer(200, "text/html", self.site.pages.get(self.path, EMPTY))

    def _answer(self, status: int, kind: str, text: str, *, asks: bool = False) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", self.site.policy)
        if asks:
            self.send_header("WWW-Authenticate", 'Basic realm="page"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
        pass


class Site(ThreadingHTTPServer):
    """Pages on the loopback, each with what `put` gave it; `policy` is sent with every answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, str] = {}
        self.policy = POLICY
        self.url = f"http://127.0.0.1:{self.server_port}"

    def put(self, main: str = "", head: str = "") -> str:
        """The address of a page with this in it."""
        self.pages["/page"] = PAGE.format(head=head, main=main)
        return f"{self.url}/page"


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@contextmanager
def serving() -> Generator[Site]:
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture
def elsewhere() -> Iterator[Site]:
    with serving() as site:
        yield site


def brief_visit(browser: Browser, url: str, *expected: str) -> None:
    with visiting(browser, Look()) as visit:
        visit.expect(*expected)
        visit.open(url)


LOOKS = [Look(), Look(Viewport.PHONE, "dark"), Look(Viewport.WIDE)]


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_a_good_page_passes_with_each_look(visit: Visit, look: Look, site: Site) -> None:
    assert visit.open(site.put(head='<script src="/write.js" defer></script>')).status == 200
    visit.axe()

    assert visit.page.inner_text("p") == "Scripts run."
    width, height = look.viewport.value
    assert visit.page.evaluate("[innerWidth, innerHeight]") == [width, height]
    assert visit.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (look.scheme == "dark")


@pytest.mark.parametrize("look", [Look(scripts=False)], ids=str)
def test_without_scripts_none_runs_and_axe_says_so(visit: Visit, site: Site) -> None:
    visit.open(site.put(head='<script src="/write.js" defer></script>'))

    assert visit.page.inner_text("p") == "Text."
    with pytest.raises(AssertionError, match="this visit runs none"):
        visit.axe()


@pytest.mark.parametrize(
    ("main", "complaint"),
    [
        ('<script src="/error.js"></script>', "console error: spoken up"),
        ('<script src="/warning.js"></script>', "console warning: spoken up"),
        ('<script src="/raise.js"></script>', "page error: not caught"),
        ('<script src="/reset"></script>', r"failed request: \S+/reset "),
        ("<script>document.title = 'inline'</script>", "console error: .*Content Security Policy"),
        ('<p style="color: red">Red.</p>', "console error: .*Content Security Policy"),
    ],
)
def test_a_bad_page_is_complained_of(browser: Browser, site: Site, main: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        brief_visit(browser, site.put(main))


@pytest.mark.parametrize("allowed", [True, False])
def test_a_request_to_elsewhere_is_complained_of(
    browser: Browser, site: Site, elsewhere: Site, *, allowed: bool
) -> None:
    if allowed:
        site.policy = f"{POLICY}; img-src {elsewhere.url}"
    with visiting(browser, Look()) as visit:
        visit.expect("outside request", *([] if allowed else ["console error", "failed request"]))
        visit.open(site.put(f'<img src="{elsewhere.url}/picture" alt="A picture">'))
        assert f"outside request: {elsewhere.url}/picture" in visit.complaints
        assert len(visit.complaints) == (1 if allowed else 3)


@pytest.mark.parametrize(
    ("main", "found"),
    [
        ('<p class="pale">Pale.</p>', r"color-contrast: .*\n    \.pale"),
        ('<input id="nameless">', r"label: .*\n    #nameless"),
    ],
)
def test_axe_names_the_rule_and_the_place(visit: Visit, site: Site, main: str, found: str) -> None:
    visit.open(site.put(main))

    with pytest.raises(AssertionError, match=found):
        visit.axe()


def test_a_server_that_asks_who_it_is_gets_the_credentials(visits: Callable[[Look], Visit], site: Site) -> None:
    known = visits(Look(credentials=(USER, PASSWORD)))
    assert known.open(f"{site.url}/secret").status == 200

    wrong = visits(Look(credentials=(USER, "another")))
    wrong.expect("status of 401")
    assert wrong.open(f"{site.url}/secret").status == 401


def test_what_was_expected_has_to_come(browser: Browser, site: Site) -> None:
    brief_visit(browser, site.put('<script src="/error.js"></script>'), "spoken up")

    with pytest.raises(AssertionError, match="never came: spoken up"):
        brief_visit(browser, site.put(), "spoken up")


def test_a_picture_is_kept_only_where_a_directory_is_named(
    visit: Visit, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit.open(site.put())
    monkeypatch.delenv(SHOTS, raising=False)
    visit.shot("page")
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setenv(SHOTS, str(tmp_path))
    visit.shot("page")
    assert (tmp_path / "page-laptop-light.png").read_bytes().startswith(b"\x89PNG")
